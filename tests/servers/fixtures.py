"""Pytest fixtures that point this process, and every child, at a loopback server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.hub import Hub

OWNER, READER, OTHER = "hf_canaryOwner7Qp", "hf_canaryReader7Qp", "hf_canaryOther7Qp"
"""Tokens of ann (member of acme), ann with read rights only, and bob (a stranger with write rights of his own)."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A fresh Hub with its users; HF_ENDPOINT, the cache and the login of this process and its children belong to the test."""
    with Hub(tmp_path / "hub-blobs") as server:
        server.add_user(OWNER, "ann", ("acme",))
        server.add_user(READER, "ann", ("acme",), can_write=False)
        server.add_user(OTHER, "bob")
        home = tmp_path / "hf-home"
        environment = {
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_DATASETS_CACHE": str(home / "datasets"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        from huggingface_hub import constants, hf_api
        from huggingface_hub.hf_file_system import HfFileSystem
        from huggingface_hub.utils import _http

        for name, value in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(hf_api.api, "endpoint", server.url)
        _http.close_session()
        HfFileSystem.clear_instance_cache()
        if config := sys.modules.get("datasets.config"):
            monkeypatch.setattr(config, "HF_ENDPOINT", server.url)
        monkeypatch.setattr("time.sleep", lambda seconds: server.slept.append(seconds))
        yield server
        _http.close_session()
