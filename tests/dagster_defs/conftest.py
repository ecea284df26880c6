from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dagster", reason="the asset graph needs dagster: pip install 'gymdata[dagster]'")
import dagster as dg

from tests.servers.fixtures import hub  # noqa: F401

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def row(prompt: str, answer: str = "4", **more: Any) -> str:
    return json.dumps({"responses_create_params": {"input": prompt}, "question": prompt, "expected_answer": answer, **more})


class Project:
    """A directory with an environment of the user's own, `math`, which stands before the built-in one, and a Dagster instance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.splits = folder / "data" / "math"
        self.instance = dg.DagsterInstance.ephemeral()

    def declare(self, license: str | None = "MIT", kind: str = "train", **datasets: Sequence[str]) -> None:
        """Write the environment's YAML, and the rows of its datasets: `train`, `validation` or anything else, which is a `kind`."""
        (self.folder / "environments").mkdir(exist_ok=True)
        entries = ""
        for name, rows in datasets.items():
            (self.folder / f"{name}.jsonl").write_text("".join(f"{one}\n" for one in rows))
            (self.folder / f"{name}_metrics.json").unlink(missing_ok=True)
            entries += f"      - {{name: {name}, type: {name if name == 'validation' else kind}, jsonl_fpath: {name}.jsonl"
            entries += (
                (f", license: {license}" if license else "") + (", prepare_script: x.py" if kind == "benchmark" else "") + "}\n"
            )
        (self.folder / "environments" / "math.yaml").write_text(
            "server:\n  resources_servers:\n    math_with_judge: {entrypoint: app.py, domain: math, should_use_judge: false}\n"
            "agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
            "      resources_server: {type: resources_servers, name: server}\n"
            "      model_server: {type: responses_api_models, name: policy_model}\n"
            f"      datasets:\n{entries}"
            "gymdata:\n  fields:\n    expected_answer: {type: string}\n"
        )

    def run(self, job: str = "splits", *assets: str, resources: Any = None, **options: Any) -> dg.ExecuteInProcessResult:
        """Run a job for `math`, or only some assets; `options` are those of the preparation, `resources` those of others."""
        from dagster_defs.definitions import defs

        configs = {"preparation": options, **(resources or {})}
        return defs.resolve_job_def("__ASSET_JOB" if assets else job).execute_in_process(
            partition_key="math",
            instance=self.instance,
            raise_on_error=False,
            asset_selection=[dg.AssetKey(asset) for asset in assets] or None,
            run_config={**QUIET, "resources": {name: {"config": config} for name, config in configs.items()}},
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / ".dagster_home"))
    monkeypatch.delenv("GYMDATA_ENVIRONMENTS", raising=False)
    return Project(tmp_path)


@pytest.fixture
def check() -> Callable[[dg.ExecuteInProcessResult, str], dg.AssetCheckEvaluation]:
    """The one evaluation of a check in a run."""

    def of(result: dg.ExecuteInProcessResult, name: str) -> dg.AssetCheckEvaluation:
        (found,) = [one for one in result.get_asset_check_evaluations() if one.check_name == name]
        return found

    return of


def made(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    """What a run materialised, by asset."""
    return {
        event.asset_key.to_user_string(): event.materialization
        for event in result.all_events
        if event.is_step_materialization and event.asset_key
    }


def failures(result: dg.ExecuteInProcessResult) -> list[str]:
    """Why steps of a run failed, in words."""
    found = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return [str(one.user_failure_data.description if one.user_failure_data else one.error) for one in found]
