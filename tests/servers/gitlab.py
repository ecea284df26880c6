"""A GitLab model registry on the loopback: the MLflow API as GitLab speaks it, and the package files behind it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = "/api/v4/projects/7/ml/mlflow"
FILES = "/api/v4/projects/7/packages/ml_models"


class GitLab:
    """Storage and rules; `uri` is what mlflow_tracking_uri should be. `fail` breaks the next requests that match."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.models: dict[str, dict[str, dict[str, bytes]]] = {}
        """name -> version -> file -> content."""
        self.requests: list[str] = []
        self.faults: list[tuple[str, int, bytes]] = []
        self.lock = threading.Lock()
        registry = self

        class Handler(_Handler):
            pass

        Handler.registry = registry
        self.server = _Server(("127.0.0.1", 0), Handler)
        self.host = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.uri = self.host + ROOT
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def fail(self, match: str, status: int, times: int = 1, body: bytes = b"{}") -> None:
        self.faults += [(match, status, body)] * times

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def run_id(self, name: str, version: str) -> str:
        return f"{sorted(self.models).index(name)}-{sorted(self.models[name]).index(version)}"

    def files(self, run: str) -> dict[str, bytes]:
        model, version = map(int, run.split("-"))
        name = sorted(self.models)[model]
        return self.models[name][sorted(self.models[name])[version]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.document = status, {"error_code": code, "message": message}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: GitLab

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do(self) -> None:
        line = f"{self.command} {self.path}"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.registry.lock:
            self.registry.requests.append(line)
            for fault in self.registry.faults:
                if re.search(fault[0], line):
                    self.registry.faults.remove(fault)
                    self.send(fault[2], fault[1])
                    return
            url = urlsplit(self.path)
            self.query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            try:
                if self.headers.get("Authorization") != f"Bearer {self.registry.token}":
                    raise _Refused(401, "UNAUTHORIZED", "401 Unauthorized")
                for method, pattern, handle in ROUTES:
                    if method == self.command and (match := re.fullmatch(pattern, url.path)):
                        handle(self, body, *map(unquote, match.groups()))
                        return
                raise _Refused(404, "ENDPOINT_NOT_FOUND", line)
            except _Refused as refused:
                self.send(json.dumps(refused.document).encode(), refused.status)

    do_GET = do_POST = do_PUT = do_DELETE = do

    def send(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def reply(self, document: Any) -> None:
        self.send(json.dumps(document).encode())

    def model(self, name: str) -> dict[str, dict[str, bytes]]:
        if name not in self.registry.models:
            raise _Refused(404, "RESOURCE_DOES_NOT_EXIST", "")
        return self.registry.models[name]

    def create_model(self, body: bytes) -> None:
        name = json.loads(body)["name"]
        if name in self.registry.models:
            raise _Refused(400, "RESOURCE_ALREADY_EXISTS", f"Registered Model (name={name}) already exists")
        self.registry.models[name] = {}
        self.reply({"registered_model": {"name": name}})

    def get_model(self, body: bytes) -> None:
        self.model(self.query["name"])
        self.reply({"registered_model": {"name": self.query["name"]}})

    def delete_model(self, body: bytes) -> None:
        name = json.loads(body)["name"]
        self.model(name)
        del self.registry.models[name]
        self.reply({})

    def search(self, body: bytes) -> None:
        self.reply({"registered_models": [{"name": name} for name in sorted(self.registry.models)], "next_page_token": ""})

    def create_version(self, body: bytes) -> None:
        wish = json.loads(body)
        version = next(tag["value"] for tag in wish["tags"] if tag["key"] == "gitlab.version")
        if version in self.model(wish["name"]):
            raise _Refused(400, "INVALID_PARAMETER_VALUE", "Version already exists")
        self.registry.models[wish["name"]][version] = {}
        self.reply(self.version(wish["name"], version))

    def get_version(self, body: bytes) -> None:
        if self.query["version"] not in self.model(self.query["name"]):
            raise _Refused(404, "RESOURCE_DOES_NOT_EXIST", "")
        self.reply(self.version(self.query["name"], self.query["version"]))

    def version(self, name: str, version: str) -> dict[str, Any]:
        run = self.registry.run_id(name, version)
        return {"model_version": {"name": name, "version": version, "run_id": run, "status": "READY"}}

    def get_run(self, body: bytes) -> None:
        run = self.query["run_id"]
        info = {"run_id": run, "run_uuid": run, "experiment_id": "1", "status": "RUNNING", "lifecycle_stage": "active"}
        info["artifact_uri"] = f"{self.registry.host}{FILES}/{run}/files/"
        self.reply({"run": {"info": info, "data": {}}})

    def put_file(self, body: bytes, run: str, path: str) -> None:
        self.registry.files(run)[path] = body
        self.send(b'{"message":"201 Created"}', 201)

    def get_file(self, body: bytes, run: str, path: str) -> None:
        if path not in self.registry.files(run):
            raise _Refused(404, "", "404 Not Found")
        self.send(self.registry.files(run)[path])


_API = re.escape(ROOT) + "/api/2.0/mlflow/"
ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("POST", _API + "registered-models/create", _Handler.create_model),
    ("GET", _API + "registered-models/get", _Handler.get_model),
    ("DELETE", _API + "registered-models/delete", _Handler.delete_model),
    ("GET", _API + "registered-models/search", _Handler.search),
    ("POST", _API + "model-versions/create", _Handler.create_version),
    ("GET", _API + "model-versions/get", _Handler.get_version),
    ("GET", _API + "runs/get", _Handler.get_run),
    ("PUT", re.escape(FILES) + r"/([\w-]+)/files/(.+)", _Handler.put_file),
    ("GET", re.escape(FILES) + r"/([\w-]+)/files/(.+)", _Handler.get_file),
]
