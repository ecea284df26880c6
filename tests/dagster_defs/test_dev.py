"""`make dev` for real: the servers are started, asked over GraphQL to run, and what they recorded is read back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.dagster_defs.conftest import row

ROOT = Path(__file__).parents[2]
PATIENCE = 180
"""Seconds for a machine that has other things to do."""

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """GraphQL over `dagster dev`, started from the root of the clone, with an environment `broken` of the user's own."""
    folder = tmp_path_factory.mktemp("dev")
    (folder / "environments").mkdir()
    (folder / "broken.jsonl").write_text(
        "\n".join([row("2 + 2"), "{nonsense", row("3 + 1"), '{"responses_create_params": 1}']) + "\n"
    )
    (folder / "environments" / "broken.yaml").write_text(
        "server:\n  resources_servers:\n    math_with_judge: {entrypoint: app.py, domain: math}\n"
        "agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: server}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
        f"      datasets:\n      - {{name: t, type: train, jsonl_fpath: {folder}/broken.jsonl, license: MIT}}\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(folder / "home"),
        "GYMDATA_ENVIRONMENTS": str(folder / "environments"),
        "GYMDATA_PREPARATION": json.dumps({"folder": str(folder / "data")}),
    }
    log = folder / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster_defs.home", "dagster", "dev", "--port", str(port)],
            cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip

    def ask(query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]

    def up() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(
                ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")["repositoriesOrError"]["nodes"]
            )
        except (URLError, OSError):
            return False

    try:
        _until(up)
        yield ask
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            # The code servers notice only after some time that nobody asks them any more.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _until(done: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (result := done()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.3)
    return result


LAUNCH = """mutation ($execution: ExecutionParams!) { launchRun(executionParams: $execution) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""


def materialise(ask: Ask, partition: str) -> str:
    """Launch the job `splits` for a partition, as the UI does, and wait for its end: its status."""
    launched = ask(
        LAUNCH,
        execution={
            "selector": {"repositoryLocationName": "gymdata", "repositoryName": "__repository__", "jobName": "splits"},
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": partition}]},
            "runConfigData": {},
        },
    )["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run = launched["run"]["runId"]

    def status() -> str | None:
        found = ask("query ($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }", run=run)["runOrError"]["status"]
        return found if found in ("SUCCESS", "FAILURE", "CANCELED") else None

    return _until(status)


METADATA = """metadataEntries { label
  ... on IntMetadataEntry { intValue } ... on MarkdownMetadataEntry { mdStr } ... on TableMetadataEntry { table { records } } }"""


def materialisation(ask: Ask, asset: str, partition: str) -> dict[str, dict[str, Any]]:
    """The metadata of an asset's latest materialisation of a partition; {} if there is none."""
    found = ask(
        f"""query ($key: AssetKeyInput!, $partition: [String!]) {{ assetOrError(assetKey: $key) {{ ... on Asset {{
            assetMaterializations(partitions: $partition, limit: 1) {{ {METADATA} }} }} }} }}""",
        key={"path": [asset]}, partition=[partition],
    )["assetOrError"].get("assetMaterializations")  # fmt: skip
    return {entry["label"]: entry for entry in found[0]["metadataEntries"]} if found else {}


def test_an_environment_is_materialised_and_its_events_tell_what_was_made(ask: Ask) -> None:
    assert materialise(ask, "math") == "SUCCESS"
    assert materialisation(ask, "train_split", "math")["dagster/row_count"]["intValue"] == 40
    assert "**user**" in materialisation(ask, "train_split", "math")["first row"]["mdStr"]
    assert "data:image/svg+xml" in materialisation(ask, "row_facts", "math")["lengths"]["mdStr"]
    assert materialisation(ask, "dataset_metrics", "math")["statistics"]["table"]["records"]


def test_a_broken_one_is_stopped_and_the_check_names_the_lines(ask: Ask) -> None:
    assert materialise(ask, "broken") == "FAILURE"
    records = materialisation(ask, "validated_rows", "broken")["findings"]["table"]["records"]
    assert [json.loads(record)["line"] for record in records] == [2, 4]
    assert materialisation(ask, "train_split", "broken") == {}
    checks = ask(
        """query { assetNodeOrError(assetKey: {path: ["validated_rows"]}) { ... on AssetNode { assetChecksOrError { ... on AssetChecks {
           checks { name blocking executionForLatestMaterialization { status evaluation { partition } } } } } } } }"""
    )["assetNodeOrError"]["assetChecksOrError"]["checks"]
    failed = {one["name"] for one in checks if (one["executionForLatestMaterialization"] or {}).get("status") == "FAILED"}
    assert "no_invalid_rows" in failed and all(one["blocking"] for one in checks)
