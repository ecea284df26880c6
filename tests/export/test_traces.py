"""Whole trajectories for other tools: episodes of verifiers and ATIF, by their schemas and, where they are installed, by their libraries."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gymdata.export.export import export
from gymdata.export.options import Options
from gymdata.rollouts.foreign.read import import_rollouts
from gymdata.rollouts.tokens import check
from tests.export.cases import WITH_TOKENS, WITH_TOOLS, call, exported, result, rollout, save, text, thought

REAL = Path(__file__).parents[3] / "shared" / "data" / "rollouts.jsonl"
PARALLEL = rollout(
    4,
    output=[
        call("weather", "{}", "a"),
        call("weather", "no JSON", "b"),
        result("1", "a"),
        result("2", "b"),
        thought("Hm."),
        text("3"),
    ],
    extracted_answer="3",
)
HISTORY = rollout(
    5,
    params={
        "input": [{"role": "user", "content": "?"}, call("clock", "{}", "z"), result("12", "z"), {"role": "user", "content": "!"}]
    },
)
ROWS = [WITH_TOOLS, WITH_TOKENS | {"_ng_task_index": 1}, PARALLEL, HISTORY]


def records(folder: Path, to: str, *rows: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return exported(folder, to, *rows, **options)[0]


def test_an_episode_is_a_line_of_messages_the_sampled_ones_marked(tmp_path: Path) -> None:
    [episode] = records(tmp_path, "verifiers", WITH_TOOLS)
    [trace] = episode["traces"]
    assert [(node.get("parent"), node["message"]["role"], node["sampled"]) for node in trace["nodes"]] == [
        (None, "system", False), (0, "user", False), (1, "assistant", True), (2, "tool", False), (3, "assistant", True),
    ]  # fmt: skip
    assert trace["nodes"][2]["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Look it up.",
        "tool_calls": [{"id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}],
    }
    assert trace["tools"][0]["name"] == "weather"
    assert trace["rewards"] == {"reward": {"score": 1.0}}
    assert [call["finish_reason"] for call in trace["calls"]] == ["tool_calls", "stop"]


def test_the_tokens_of_an_episode_are_the_sequence_that_the_model_saw(tmp_path: Path) -> None:
    [episode] = records(tmp_path, "verifiers", WITH_TOKENS, tokens=True)
    nodes = episode["traces"][0]["nodes"]
    assert [token for node in nodes for token in node.get("token_ids", ())] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [flag for node in nodes for flag in node.get("mask", ())] == [False] * 3 + [True] * 2 + [False] + [True] * 2
    assert [call["usage"] for call in episode["traces"][0]["calls"]] == [
        {"prompt_tokens": 3, "completion_tokens": 2}, {"prompt_tokens": 6, "completion_tokens": 2},
    ]  # fmt: skip


def test_components_are_rewards_where_they_add_up(tmp_path: Path) -> None:
    parts = {"a": 0.75, "b": 0.25}
    rows = [rollout(0, reward_components=parts), rollout(1, reward=0.5, reward_components=parts)]
    found = [episode["traces"][0]["rewards"] for episode in records(tmp_path, "verifiers", *rows)]
    assert found == [{"a": {"score": 0.75}, "b": {"score": 0.25}}, {"reward": {"score": 0.5}}]


def test_an_episode_that_is_imported_again_is_the_same_trajectory(tmp_path: Path) -> None:
    export([save(tmp_path / "rollouts.jsonl", *ROWS)], "verifiers", tmp_path / "traces.jsonl")
    import_rollouts([tmp_path / "traces.jsonl"], "verifiers", tmp_path / "again.jsonl")
    for to in ("sft", "kto"):
        texts = []
        for source in ("rollouts.jsonl", "again.jsonl"):
            export([tmp_path / source], to, tmp_path / "out.jsonl", Options(reasoning="field"))
            lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
            texts.append([{key: one for key, one in line.items() if key not in ("task", "tools")} for line in lines])
        assert texts[0] == texts[1]


def test_token_ids_survive_the_way_to_verifiers_and_back(tmp_path: Path) -> None:
    export([save(tmp_path / "rollouts.jsonl", WITH_TOKENS)], "verifiers", tmp_path / "traces.jsonl", Options(tokens=True))
    import_rollouts([tmp_path / "traces.jsonl"], "verifiers", tmp_path / "again.jsonl")
    again = check(json.loads((tmp_path / "again.jsonl").read_text()))
    before = check(WITH_TOKENS)
    assert again.faults == ()
    assert [(turn.prompt, turn.sampled, turn.logprobs) for turn in again.turns] == [
        (turn.prompt, turn.sampled, turn.logprobs) for turn in before.turns
    ]


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


TEXT, COUNT, ANYTHING = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "object"}
IDS = {"type": "array", "items": COUNT}
RESULTS = {"type": "array", "items": _object("content", source_call_id=TEXT, content=TEXT, extra=ANYTHING)}
CALL = _object("tool_call_id function_name arguments", tool_call_id=TEXT, function_name=TEXT, arguments=ANYTHING, extra=ANYTHING)
METRICS = _object("", prompt_tokens=COUNT, completion_tokens=COUNT, prompt_token_ids=IDS, completion_token_ids=IDS,
                  logprobs={"type": "array", "items": {"type": "number"}})  # fmt: skip
STEP = _object("step_id source message", step_id={"type": "integer", "minimum": 1}, source={"enum": ["system", "user", "agent"]},
               message=TEXT, model_name=TEXT, reasoning_content=TEXT, tool_calls={"type": "array", "items": CALL},
               observation=_object("results", results=RESULTS), metrics=METRICS, extra=ANYTHING)  # fmt: skip
TRAJECTORY = _object(
    "schema_version agent steps",
    schema_version={"const": "ATIF-v1.7"},
    session_id=TEXT,
    trajectory_id=TEXT,
    agent=_object(
        "name version", name=TEXT, version=TEXT, model_name=TEXT, tool_definitions={"type": "array", "items": ANYTHING}
    ),
    steps={"type": "array", "minItems": 1, "items": STEP},
    final_metrics=_object("", total_prompt_tokens=COUNT, total_completion_tokens=COUNT, total_steps=COUNT),
    extra=ANYTHING,
)
"""What ATIF 1.7 says of the keys that are used here."""


@pytest.mark.parametrize("tokens", [False, True])
def test_trajectories_are_atif(tmp_path: Path, tokens: bool) -> None:
    for record in records(tmp_path, "atif", *(ROWS[1:2] if tokens else ROWS), tokens=tokens):
        jsonschema.validate(record, TRAJECTORY)
        assert [step["step_id"] for step in record["steps"]] == list(range(1, len(record["steps"]) + 1))
        assert record["final_metrics"]["total_steps"] == len(record["steps"])
        for step in record["steps"]:
            called = {one["tool_call_id"] for one in step.get("tool_calls", ())}
            assert {one["source_call_id"] for one in step.get("observation", {}).get("results", ())} <= called
            if step["source"] != "agent":
                assert not step.keys() & {"model_name", "reasoning_content", "tool_calls", "metrics"}


def test_results_are_observations_of_the_step_that_called(tmp_path: Path) -> None:
    [record] = records(tmp_path, "atif", PARALLEL)
    assert [step["source"] for step in record["steps"]] == ["user", "agent", "agent"]
    assert record["steps"][1]["observation"]["results"] == [
        {"source_call_id": "a", "content": "1"}, {"source_call_id": "b", "content": "2"},
    ]  # fmt: skip
    assert record["steps"][1]["tool_calls"][1]["extra"] == {"arguments": "no JSON"}
    assert record["steps"][2]["reasoning_content"] == "Hm."
    assert (record["extra"]["reward"], record["extra"]["row"]["extracted_answer"]) == (1.0, "3")


def test_what_the_model_did_not_say_in_this_rollout_is_marked(tmp_path: Path) -> None:
    [record] = records(tmp_path, "atif", HISTORY)
    assert [step.get("extra") for step in record["steps"]] == [None, {"in_request": True}, None, None]


def test_a_result_that_nothing_called_for_is_refused(tmp_path: Path) -> None:
    _, found = exported(tmp_path, "atif", rollout(0), rollout(1, output=[result("x", "nobody"), text("y")]))
    assert found.removed == {"not expressible in ATIF": 1}


def test_ids_of_tokens_are_metrics_of_steps(tmp_path: Path) -> None:
    [record] = records(tmp_path, "atif", WITH_TOKENS, tokens=True)
    assert [step["metrics"] for step in record["steps"] if "metrics" in step] == [
        {"prompt_tokens": 3, "completion_tokens": 2, "prompt_token_ids": [1, 2, 3], "completion_token_ids": [4, 5], "logprobs": [-0.5] * 2},
        {"prompt_tokens": 6, "completion_tokens": 2, "prompt_token_ids": [1, 2, 3, 4, 5, 6], "completion_token_ids": [7, 8],
         "logprobs": [-0.5] * 2},
    ]  # fmt: skip


LOADERS = {
    "verifiers": """
from verifiers.v1.episode import WireEpisode
for line in open(sys.argv[1]):
    episode = WireEpisode.model_validate_json(line)
    [branch] = episode.traces[0].branches
    print(json.dumps([episode.traces[0].reward, branch.token_ids, branch.sampled_mask, branch.logprobs]))
""",
    "atif": """
from nemo_gym.atif_v1_7 import AtifTrajectoryV1_7
for line in open(sys.argv[1]):
    trajectory = AtifTrajectoryV1_7.model_validate_json(line)
    print(json.dumps(len(trajectory.steps)))
""",
    "verl": """
from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset
class Tokenizer:
    def apply_chat_template(self, messages, **options):
        return "".join(message["content"] for message in messages)
config = OmegaConf.create({"max_prompt_length": 4096, "filter_overlong_prompts": False, "cache_dir": sys.argv[1] + ".cache"})
rows = RLHFDataset(data_files=sys.argv[1], tokenizer=Tokenizer(), config=config)
for number in range(len(rows)):
    row = rows[number]
    print(json.dumps([row["data_source"], row["reward_model"]["ground_truth"], row["extra_info"]["responses_create_params"]]))
""",
}
PYTHONS = {
    name: os.environ.get(variable, "")
    for name, variable in {
        "verifiers": "GYMDATA_VERIFIERS_PYTHON",
        "atif": "GYMDATA_GYM_PYTHON",
        "verl": "GYMDATA_VERL_PYTHON",
    }.items()
}


def loaded(name: str, path: Path) -> list[Any]:
    """What the real library makes of the records of a file; skips where no Python has it."""
    if not PYTHONS[name]:
        pytest.skip(f"no variable names a Python that can load {name}")
    code = "import json, sys\n" + LOADERS[name]
    done = subprocess.run([PYTHONS[name], "-c", code, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "[0123456789"]


def test_verifiers_loads_its_episodes(tmp_path: Path) -> None:
    source = save(tmp_path / "rollouts.jsonl", *ROWS)
    export([source], "verifiers", tmp_path / "traces.jsonl")
    assert [reward for reward, *_ in loaded("verifiers", tmp_path / "traces.jsonl")] == [1.0] * 4
    export([source], "verifiers", tmp_path / "traces.jsonl", Options(tokens=True))
    [(_, ids, mask, logprobs)] = loaded("verifiers", tmp_path / "traces.jsonl")
    assert ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert mask == [False] * 3 + [True] * 2 + [False] + [True] * 2
    assert logprobs == [0.0] * 3 + [-0.5] * 2 + [0.0] + [-0.5] * 2


def test_nemo_gym_takes_the_trajectories(tmp_path: Path) -> None:
    export([save(tmp_path / "rollouts.jsonl", *ROWS)], "atif", tmp_path / "atif.jsonl")
    assert loaded("atif", tmp_path / "atif.jsonl") == [4, 3, 3, 4]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_verl_loads_its_rows(tmp_path: Path, suffix: str) -> None:
    rows = [WITH_TOOLS | {"expected_answer": "snow"}, HISTORY]
    export([save(tmp_path / "rollouts.jsonl", *rows)], "verl", tmp_path / f"rows{suffix}")
    found = loaded("verl", tmp_path / f"rows{suffix}")
    assert [row[:2] for row in found] == [["math", "snow"], ["math", ""]]
    assert json.loads(found[1][2]) == HISTORY["responses_create_params"]


@pytest.mark.skipif(not REAL.exists(), reason="no real rollouts beside the repository")
@pytest.mark.parametrize("name", ["verifiers", "atif"])
def test_real_rollouts_load(tmp_path: Path, name: str) -> None:
    count = export([REAL], name, tmp_path / "out.jsonl").records
    assert len(loaded(name, tmp_path / "out.jsonl")) == count
