"""Datasets in a GitLab model registry, through its MLflow API.

Plain HTTP: what is needed are nine requests, and `mlflow-skinny` would add 44 packages and 140 MB to make them.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from gymdata.atomic import writing
from gymdata.environments.model import Environment
from gymdata.errors import ConfigError, DataError, ExternalError, UsageError
from gymdata.manifest import sha256
from gymdata.sources.data_files import inside, refuse_impostor
from gymdata.sources.hub import ATTEMPTS, BACKOFF, TIMEOUT, Credentials, Denied, Patience
from gymdata.sources.huggingface import Fetched

if TYPE_CHECKING:
    import httpx2

_BLOCK = 1 << 20
_UNREACHABLE = "check the network and mlflow_tracking_uri, then run the same command again"


class Missing(ExternalError):
    """The registry has no such dataset, version or file."""


@dataclass(frozen=True)
class Registry:
    """A registry at `uri` (…/api/v4/projects/ID/ml/mlflow). Every method raises ExternalError for what the server refuses."""

    uri: str
    credentials: Credentials

    def upload(self, name: str, version: str, file: Path) -> str:
        """Put a file into a version of a dataset, both made if they are new, and read it back; returns its path there.

        Raises UsageError for a version that is not `x.y.z`.
        """
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            raise UsageError(f"{version!r} is no version", "write it as x.y.z, such as 0.1.0")
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
        with self._client() as client:
            try:
                place = self._artifacts(client, name, version)
            except Missing:
                with suppress(_Exists):
                    self._call(client, "POST", "registered-models/create", json={"name": name})
                tags = [{"key": "gitlab.version", "value": version}]
                self._call(client, "POST", "model-versions/create", json={"name": name, "tags": tags})
                place = self._artifacts(client, name, version)
            url = f"{place}/{quote(file.name)}"

            def put() -> None:
                with open(file, "rb") as stream:
                    size = str(file.stat().st_size)
                    _check(client.put(url, content=_blocks(stream), headers={"Content-Length": size}), f"uploading {file.name}")

            _persist(put, f"uploading {file.name}")
            digest = hashlib.sha256()
            _persist(lambda: _read(client, url, file.name, digest.update), f"reading {file.name} back")
            if digest.hexdigest() != sha256(file):
                raise ExternalError(f"{name} {version}: {file.name} did not arrive as it was sent", "upload it again")
        return file.name

    def download(self, name: str, version: str, artifact: str, target: Path) -> Fetched:
        """Fetch a file of a version to `target`, which appears whole or not at all. Raises DataError for a page in its place."""
        artifact = inside(artifact)
        with self._client() as client:
            url = f"{self._artifacts(client, name, version)}/{quote(artifact)}"
            with writing(target) as temporary:

                def get() -> None:
                    with open(temporary, "wb") as out:
                        _read(client, url, artifact, out.write)

                _persist(get, f"downloading {artifact}")
                refuse_impostor(temporary, f"{name} {version}: {artifact}")
        return Fetched(target, name, version, (artifact,), None, sha256(target), target.stat().st_size)

    def delete(self, name: str) -> None:
        """Delete a dataset with all its versions. There is no way back: ask before."""
        with self._client() as client:
            self._explain_missing(client, name, lambda: self._call(client, "GET", "registered-models/get", params={"name": name}))
            self._call(client, "DELETE", "registered-models/delete", json={"name": name})

    def names(self) -> list[str]:
        """The names of all datasets in the registry."""
        with self._client() as client:
            return self._names(client)

    def _names(self, client: httpx2.Client) -> list[str]:
        found: list[str] = []
        page: dict[str, str] = {}
        while True:
            answer = self._call(client, "GET", "registered-models/search", params={"max_results": "200", **page})
            found += [str(one["name"]) for one in answer.get("registered_models") or []]
            if not answer.get("next_page_token"):
                return found
            page = {"page_token": str(answer["next_page_token"])}

    def _artifacts(self, client: httpx2.Client, name: str, version: str) -> str:
        """The URL under which the files of a version are."""
        query = {"name": name, "version": version}
        found = self._explain_missing(client, name, lambda: self._call(client, "GET", "model-versions/get", params=query))
        run = self._call(client, "GET", "runs/get", params={"run_id": str(found["model_version"]["run_id"])})
        uri = str(run["run"]["info"]["artifact_uri"]).rstrip("/")
        # The token goes with the requests to this place, so it must be the registry's own host.
        if urlsplit(uri)[:2] != urlsplit(self.uri)[:2]:
            raise ExternalError(
                f"{name} {version}: its files are on another server ({urlsplit(uri).netloc})", "ask who runs the registry"
            )
        return uri

    def _explain_missing(self, client: httpx2.Client, name: str, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return call()
        except Missing as error:
            try:
                names = self._names(client)
            except ExternalError:
                names = []
            if name in names:
                raise Missing(f"{name}: there is no such version ({error.message})", "look at its versions in GitLab") from error
            near = [one for one in names if one.lower() == name.lower()]
            if near:
                raise Missing(f"there is no dataset {name!r}", f"names are case-sensitive: did you mean {near[0]!r}?") from error
            raise Missing(
                f"there is no dataset {name!r}", "names are case-sensitive; look at the model registry in GitLab"
            ) from error

    @contextmanager
    def _client(self) -> Iterator[httpx2.Client]:
        import httpx2

        headers = {"Authorization": f"Bearer {self.credentials.token}"}
        with httpx2.Client(headers=headers, timeout=TIMEOUT, follow_redirects=True) as client:
            client.send = Patience(client.send, "GitLab")  # type: ignore[method-assign]
            try:
                yield client
            except httpx2.HTTPError as error:
                raise ExternalError(f"{self.uri}: no connection ({error})", _UNREACHABLE) from error

    def _call(self, client: httpx2.Client, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = _check(client.request(method, f"{self.uri.rstrip('/')}/api/2.0/mlflow/{path}", **options), path)
        try:
            answer = response.json()
        except ValueError as error:
            raise ExternalError(f"{path}: what answers is no MLflow API (a login page?)", "check mlflow_tracking_uri") from error
        return answer if isinstance(answer, dict) else {}


class _Exists(ExternalError):
    """It is there already."""


def find_registry(environment: Environment | None = None) -> Registry:
    """The registry that env.yaml (`mlflow_tracking_uri`, `mlflow_tracking_token`) or MLFLOW_TRACKING_URI and …_TOKEN name.

    Raises ConfigError if one of the two is missing.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if environment is not None:
        uri = environment.settings.get("mlflow_tracking_uri") or uri
        secret = environment.secret("mlflow_tracking_token")
        token = secret.get_secret_value() if secret else token
    if not uri or not token:
        hint = "set mlflow_tracking_uri and mlflow_tracking_token in env.yaml, or MLFLOW_TRACKING_URI and MLFLOW_TRACKING_TOKEN"
        raise ConfigError("no GitLab model registry is configured", hint)
    return Registry(str(uri), Credentials(token))


def _check(response: httpx2.Response, doing: str) -> httpx2.Response:
    """The response, if it is a success."""
    if response.is_success:
        return response
    response.read()
    try:
        said = response.json()
        code, reason = str(said.get("error_code", "")), str(said.get("message") or said.get("error") or "")
    except (ValueError, AttributeError):
        code, reason = "", ""
    status = response.status_code
    reason = f" ({reason})" if reason else ""
    if "ALREADY_EXISTS" in code or status == 409 or "already been taken" in reason or "already exists" in reason:
        raise _Exists(f"{doing}: it is there already{reason}")
    if status == 404 or code == "RESOURCE_DOES_NOT_EXIST":
        raise Missing(f"{doing}: not found{reason}", "names are case-sensitive")
    if status in (401, 403):
        raise Denied(
            f"{doing}: GitLab refuses this{reason}",
            "check mlflow_tracking_token: it needs the scope api, and rights on the project",
        )
    raise ExternalError(f"{doing}: GitLab answers {status}{reason}", "try again in a while")


def _read(client: httpx2.Client, url: str, name: str, take: Callable[[bytes], object]) -> None:
    """Stream a file to `take`; raises DataError if it is shorter than announced."""
    with client.stream("GET", url) as response:
        _check(response, name)
        size = 0
        for block in response.iter_bytes(_BLOCK):
            take(block)
            size += len(block)
        announced = response.headers.get("Content-Length")
        if announced and "Content-Encoding" not in response.headers and int(announced) != size:
            raise DataError(f"{name}: {size} of {announced} bytes arrived", "run the same command again")


def _persist(act: Callable[[], None], doing: str) -> None:
    """Do something whole again when its connection breaks, a few times."""
    import httpx2

    for attempt in range(1, ATTEMPTS + 1):
        try:
            return act()
        except httpx2.TransportError as error:
            if attempt == ATTEMPTS:
                raise ExternalError(f"{doing}: the connection breaks again and again ({error})", _UNREACHABLE) from error
            time.sleep(BACKOFF * 2**attempt)


def _blocks(stream: Any) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block
