"""The loopback Hub as a client sees it that has nothing in common with `huggingface_hub`: the JavaScript one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gymdata.publish.huggingface import send
from gymdata.publish.plan import Target, planned
from gymdata.sources.hub import Credentials
from gymdata.sources.huggingface import fetch
from tests.publish.conftest import prepare, row  # noqa: F401
from tests.servers.fixtures import OTHER, OWNER, hub  # noqa: F401
from tests.servers.hub import Hub


@pytest.mark.slow  # it installs the client from the package registry
@pytest.mark.skipif(not shutil.which("node") or not shutil.which("npm"), reason="needs node and npm")
def test_both_clients_read_what_the_other_wrote(hub: Hub, prepare: Callable, tmp_path: Path) -> None:  # noqa: F811
    hub.add_repo("acme/sums")
    dataset = prepare(train=[row("a"), row("b", "0.6")])
    with planned(dataset, Target("acme/sums", create_pr=True), Credentials(OTHER)) as plan:
        send(plan, Credentials(OTHER))
    shutil.copy(Path(__file__).with_name("other_client.mjs"), tmp_path)
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "@huggingface/hub@2"]
    if subprocess.run(install, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("the package registry cannot be reached")
    command = ["node", "other_client.mjs", hub.url, OWNER, OTHER]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert saw["published"].encode() == dataset.splits[0].path.read_bytes()
    del saw["published"]
    assert saw == {
        "me": "ann",
        "commit": hub.repos["acme/from-js"].refs["main"],
        "pull": f"{hub.url}/datasets/acme/from-js/discussions/1",
        "files": ["data/large.parquet", "train.jsonl"],
        "rows": [1, 2],
        "large": "PAR1PAR1",
        "missing": False,
        "withoutRights": 403,
        "stale": 412,
    }
    (fetched,) = fetch("acme/from-js", tmp_path / "out", artifact="train.jsonl", revision="refs/pr/1")
    assert fetched.path.read_bytes().count(b"\n") == 2
