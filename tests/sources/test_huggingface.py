"""What fetching from the Hub promises: exact bytes, exact values, patience within bounds, and nothing outside the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymdata.errors import DataError, ExternalError, UsageError
from gymdata.sources.data_files import inside, matching, split_patterns
from gymdata.sources.hub import Credentials, find_credentials
from gymdata.sources.huggingface import fetch
from tests.servers.fixtures import OTHER, OWNER
from tests.servers.hub import Hub

TRICKY = (
    b'{"responses_create_params": {"input": "a", "temperature": 1e-12}, "expected_answer": "007", "day": "2024-01-02"}\n'
    b'{"responses_create_params": {"input": [{"role": "user", "content": "b"}]}, "expected_answer": 7, "extra": null}\r\n'
    b'{"responses_create_params":{"input":"\\u00e9 \\/"},"expected_answer":[1.0,12345678901234567890]}'
)
CARD = b"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.jsonl
  - split: validation
    path: data/val.jsonl
---
"""


def test_an_artifact_arrives_byte_for_byte(hub: Hub, tmp_path: Path) -> None:
    repo = hub.add_repo("acme/math", {"data/train.jsonl": TRICKY})
    (fetched,) = fetch("acme/math", tmp_path / "out", artifact="data/train.jsonl")
    assert fetched.path == tmp_path / "out" / "train.jsonl"
    assert fetched.path.read_bytes() == TRICKY
    assert (fetched.commit, fetched.files, fetched.bytes) == (repo.refs["main"], ("data/train.jsonl",), len(TRICKY))


def test_a_jsonl_split_keeps_its_bytes(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo(
        "acme/math",
        {"README.md": CARD, "data/train-0.jsonl": TRICKY, "data/train-1.jsonl": b'{"x": 1}\n', "data/val.jsonl": b"{}\n"},
    )
    train, validation = fetch("acme/math", tmp_path / "out")
    assert train.path.read_bytes() == TRICKY + b"\n" + b'{"x": 1}\n'
    assert (train.split, validation.split) == ("train", "validation")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.jsonl", "validation.jsonl"]


def test_one_split_can_be_named_like_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"README.md": CARD, "data/train-0.jsonl": b"{}\n", "data/val.jsonl": TRICKY})
    (fetched,) = fetch("acme/math", tmp_path, split="validation", output=tmp_path / "mine.jsonl")
    assert fetched.path.read_bytes() == TRICKY


def test_a_json_array_becomes_lines_with_its_numbers_as_written(hub: Hub, tmp_path: Path) -> None:
    document = b'[ {"a": 1e-12,\n   "b": "x \\n  y"},\n {"a": 1.0, "b": null} ]'
    hub.add_repo("acme/math", {"train.json": document})
    (fetched,) = fetch("acme/math", tmp_path)
    assert fetched.path.read_bytes() == b'{"a":1e-12,"b":"x \\n  y"}\n{"a":1.0,"b":null}\n'


def test_a_parquet_split_becomes_lines_of_equal_values(hub: Hub, tmp_path: Path) -> None:

    from gymdata.publish.parquet import columns, write_parquet

    source = tmp_path / "rows.jsonl"
    source.write_bytes(TRICKY.replace(b"12345678901234567890", b"1e22"))
    write_parquet(source, [tmp_path / "rows.parquet"], columns([source]))
    hub.add_repo("acme/math", {"data/train-00000-of-00001.parquet": tmp_path / "rows.parquet"})
    (fetched,) = fetch("acme/math", tmp_path / "out", split="train")
    lines = [json.loads(line) for line in fetched.path.read_bytes().splitlines()]
    expected = [json.loads(line) for line in source.read_bytes().splitlines()]
    assert json.dumps(lines, sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_an_environment_is_downloaded_to_where_it_looks_for_its_rows(hub: Hub, tmp_path: Path, monkeypatch) -> None:
    from gymdata.cli.main import main
    from gymdata.manifest import sha256
    from gymdata.sources.remote import revision_of

    repo = hub.add_repo("nvidia/Nemotron-RL-math-OpenMathReasoning", {"train.jsonl": TRICKY, "validation.jsonl": b"{}\n"})
    monkeypatch.chdir(tmp_path)
    assert main(["download", "math"]) == 0
    train = tmp_path / "data" / "math" / "source" / "train.jsonl"
    assert train.read_bytes() == TRICKY
    assert revision_of(train, sha256(train)) == repo.refs["main"]
    train.write_bytes(b"touched")
    assert revision_of(train, sha256(train)) is None


def test_another_revision_in_the_configuration_is_noticed_and_fetched(hub: Hub, tmp_path: Path, monkeypatch, capsys) -> None:
    from gymdata.cli.main import main

    def rows(prompt: str) -> bytes:
        return b'{"responses_create_params": {"input": "%s"}}\n' % prompt.encode()

    repo = hub.add_repo("acme/math", {"train.jsonl": rows("old")})
    old = repo.refs["main"]
    hub.commit("acme/math", {"train.jsonl": rows("new")})
    monkeypatch.chdir(tmp_path)

    def configure(revision: str) -> None:
        source = {"type": "huggingface", "repo_id": "acme/math", "revision": revision}
        entry = {"name": "t", "type": "train", "license": "MIT", "jsonl_fpath": "t.jsonl", "source": source}
        agent = {"entrypoint": "a.py", "resources_server": {"type": "resources_servers", "name": "r"}, "datasets": [entry]}
        server = {"resources_servers": {"x": {"entrypoint": "a.py", "domain": "math"}}}
        (tmp_path / "c.yaml").write_text(json.dumps({"r": server, "a": {"responses_api_agents": {"x": agent}}}))

    configure(old)
    assert main(["prepare", "--config", "c.yaml", "--download"]) == 0
    configure("main")
    assert main(["prepare", "--config", "c.yaml"]) == 2
    assert "another source or revision" in capsys.readouterr().err
    assert main(["prepare", "--config", "c.yaml", "--download", "--overwrite-metrics"]) == 0
    assert (tmp_path / "t.jsonl").read_bytes() == rows("new")
    (tmp_path / "t.jsonl").write_bytes(rows("mine"))
    configure(old)
    assert main(["prepare", "--config", "c.yaml", "--download", "--overwrite-metrics"]) == 0
    assert (tmp_path / "t.jsonl").read_bytes() == rows("mine"), "a file that was changed is its owner's"


def test_without_a_card_names_tell_the_splits(hub: Hub, tmp_path: Path) -> None:
    files = {"train.jsonl": b"{}\n", "validation.jsonl": b"{}\n", "train_metrics.json": b"{}", "manifest.json": b"{}"}
    hub.add_repo("acme/math", dict(files))
    assert [one.split for one in fetch("acme/math", tmp_path)] == ["train", "validation"]


def test_a_revision_is_pinned_and_resolved(hub: Hub, tmp_path: Path) -> None:
    repo = hub.add_repo("acme/math", {"train.jsonl": b'{"v": 1}\n'})
    first = repo.refs["main"]
    hub.commit("acme/math", {"train.jsonl": b'{"v": 2}\n'})
    (old,) = fetch("acme/math", tmp_path / "old", artifact="train.jsonl", revision=first)
    (new,) = fetch("acme/math", tmp_path / "new", artifact="train.jsonl")
    assert (old.commit, old.path.read_bytes()) == (first, b'{"v": 1}\n')
    assert (new.commit, new.path.read_bytes()) == (repo.refs["main"], b'{"v": 2}\n')


def test_a_public_dataset_is_read_without_sending_the_token(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n"})
    fetch("acme/math", tmp_path, artifact="train.jsonl", credentials=Credentials(OWNER))
    assert not any(request.authorized for request in hub.requests)


@pytest.mark.parametrize("kind", ["private", "gated"])
def test_a_closed_dataset_needs_credentials(hub: Hub, tmp_path: Path, kind: str) -> None:
    hub.cdn = True
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n", "big.parquet": b"PAR1"}, private=kind == "private", gated=kind == "gated")
    for credentials in (None, Credentials(OTHER)):
        with pytest.raises(ExternalError, match="HF_TOKEN"):
            fetch("acme/math", tmp_path, artifact="big.parquet", credentials=credentials)
    fetch("acme/math", tmp_path, artifact="big.parquet", credentials=Credentials(OWNER))
    assert not any(request.authorized for request in hub.requests if "/cdn/" in request.line), "the token is for the Hub alone"


@pytest.mark.parametrize("token", ["hf_canary7Qp\nsecond", "hf_canary7Qpß", "hf canary7Qp"])
def test_a_token_that_no_request_can_carry_is_refused_and_not_repeated(hub: Hub, monkeypatch, token: str) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(UsageError, match="the token holds") as error:
        find_credentials()
    assert "canary" not in str(error.value) and not hub.requests


def test_file_and_split_together_make_no_sense(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        fetch("acme/math", tmp_path, artifact="train.jsonl", split="train")
    assert not hub.requests


@pytest.mark.parametrize(
    ("ask", "files", "says"),
    [
        ({"repo_id": "acme/nothing"}, {}, "no such dataset"),
        ({"repo_id": "acme/two--hyphens"}, {}, "write OWNER/NAME"),
        ({"revision": "v9"}, {"train.jsonl": b"{}\n"}, "no such revision"),
        ({"artifact": "Train.jsonl"}, {"train.jsonl": b"{}\n"}, "case-sensitive"),
        ({"split": "test"}, {"train.jsonl": b"{}\n"}, "no split 'test'"),
        ({}, {"math.py": b"import os"}, "runs no remote code"),
        ({"artifact": "x.pkl"}, {"x.pkl": b"."}, "runs code when it is loaded"),
        ({}, {"train.csv": b"a,b\n"}, "no JSONL, JSON or Parquet"),
        ({}, {"train.jsonl": b"<!DOCTYPE html><html>404</html>"}, "HTML page"),
        ({}, {"train.jsonl": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, "LFS pointer"),
        ({}, {"README.md": CARD, "data/val.jsonl": b"{}\n"}, "no file matches data/train"),
        ({}, {"README.md": b"---\nconfigs: [\n---\n", "train.jsonl": b"{}\n"}, "YAML cannot be read"),
    ],
)
def test_what_cannot_be_fetched_is_explained_and_leaves_nothing(
    hub: Hub, tmp_path: Path, ask: dict, files: dict, says: str
) -> None:
    hub.add_repo("acme/math", files)
    with pytest.raises((DataError, ExternalError, UsageError)) as error:
        fetch(**{"repo_id": "acme/math", "folder": tmp_path / "out", **ask})
    assert says in str(error.value)
    assert not list((tmp_path / "out").glob("*") if (tmp_path / "out").exists() else [])


@pytest.mark.parametrize("how", [500, 503, 429, "cut", "slow"])
def test_a_passing_failure_of_any_request_is_waited_out(hub: Hub, tmp_path: Path, monkeypatch, how) -> None:
    monkeypatch.setattr("gymdata.sources.hub.TIMEOUT", 1.0)
    hub.add_repo("acme/math", {"README.md": CARD, "data/train-0.jsonl": TRICKY, "data/val.jsonl": b"{}\n"})
    fetch("acme/math", tmp_path / "first")
    for nth in range(1, len(hub.requests) + 1):
        hub.faults.clear()
        hub.fail(how, nth=nth, seconds=1.5)
        forget_cache(tmp_path)
        (train, _) = fetch("acme/math", tmp_path / f"out{nth}")
        assert train.path.read_bytes() == TRICKY


def test_a_broken_download_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    content = b"".join(b'{"row": %24d}\n' % number for number in range(800_000))
    hub.add_repo("acme/math", {"train.jsonl": content})
    hub.fail("truncate", "GET .*/resolve/", times=2)
    (fetched,) = fetch("acme/math", tmp_path, artifact="train.jsonl")
    assert fetched.path.read_bytes() == content
    ranges = [
        request.headers["range"] for request in hub.requests if request.line.startswith("GET") and "range" in request.headers
    ]
    assert ranges and ranges[0] != "bytes=0-"


def test_the_server_is_waited_for_as_long_as_it_asks(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n"})
    hub.fail(429, headers={"Retry-After": "7"})
    fetch("acme/math", tmp_path, artifact="train.jsonl")
    assert 7.0 in hub.slept


def test_a_server_that_asks_for_an_hour_is_not_waited_for(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n"})
    hub.fail(429, headers={"Retry-After": "3600"})
    with pytest.raises(ExternalError, match="3600 s"):
        fetch("acme/math", tmp_path, artifact="train.jsonl")
    assert sum(hub.slept) < 60


def test_patience_ends(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n"})
    hub.fail(503, times=1000)
    with pytest.raises(ExternalError, match="503"):
        fetch("acme/math", tmp_path, artifact="train.jsonl")
    assert len(hub.requests) == 5


def test_damage_on_the_way_is_noticed(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b'{"answer": "right"}\n'})
    blob = hub.repos["acme/math"].head.tree["train.jsonl"]
    (hub.blobs / blob.sha256).write_bytes(b'{"answer": "wrong"}\n')
    with pytest.raises(ExternalError, match="damaged"):
        fetch("acme/math", tmp_path / "out", artifact="train.jsonl")
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_a_proxy_page_is_not_taken_for_the_hub(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo("acme/math", {"train.jsonl": b"{}\n"})
    hub.fail("html", times=1000)
    with pytest.raises(ExternalError, match="not the Hub"):
        fetch("acme/math", tmp_path, artifact="train.jsonl")


@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "a", "", "/", "C:", "\\", "b.jsonl"]), max_size=5).map("/".join)
)
def test_a_path_never_leaves_the_folder(path: str) -> None:
    folder = Path("/srv/target")
    try:
        relative = inside(path)
    except UsageError:
        return
    assert (folder / relative).resolve().is_relative_to(folder)
    assert (folder / relative).resolve() != folder


def test_globs_mean_what_the_hub_means() -> None:
    paths = ["data/train-0.jsonl", "data/deep/train-1.jsonl", "data/.hidden.jsonl", "train.jsonl", "data/__x__/train.jsonl"]
    assert matching("data/train-*.jsonl", paths) == ["data/train-0.jsonl"]
    assert matching("data/**", paths) == ["data/deep/train-1.jsonl", "data/train-0.jsonl"]
    assert matching("**/train*", paths) == ["data/deep/train-1.jsonl", "data/train-0.jsonl", "train.jsonl"]
    assert matching("train.jsonl", paths) == ["train.jsonl"]


@pytest.mark.parametrize(
    ("configs", "patterns"),
    [
        ([{"config_name": "default", "data_files": "train.jsonl"}], {"train": ["train.jsonl"]}),
        ([{"config_name": "default", "data_files": ["a.jsonl", "b.jsonl"]}], {"train": ["a.jsonl", "b.jsonl"]}),
        (
            [{"config_name": "x", "data_dir": "d", "data_files": [{"split": "test", "path": ["*.jsonl"]}]}],
            {"test": ["d/*.jsonl"]},
        ),
        ([{"config_name": "x", "data_files": "x"}, {"config_name": "y", "default": True, "data_files": "y"}], {"train": ["y"]}),
    ],
)
def test_the_card_names_the_files_in_several_ways(configs: list, patterns: dict) -> None:
    assert split_patterns({"configs": configs}) == patterns


def forget_cache(tmp_path: Path) -> None:
    import shutil

    shutil.rmtree(tmp_path / "hf-home", ignore_errors=True)
