"""Token ids over several turns on a real vLLM: with the templates of public model families, whose marks are tokens of a tiny model."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymdata.cli.main import main
from gymdata.rollouts.chat_reply import Turn
from gymdata.rollouts.policy import Policy, Settings
from gymdata.rollouts.tokens import Checked, check, join
from tests.rollouts.test_vllm import CALL, PYTHON, ROOT, Server, missing
from tests.servers.templated import CONTROLS, FOLDER

pytestmark = [pytest.mark.vllm, missing(PYTHON, "vLLM")]

MAKE = "import json, sys; sys.path.insert(0, sys.argv[1]); import models; models.tiny(models.Path(sys.argv[2]), json.loads(sys.argv[3]))"
TOOL = {"type": "function", "name": "increment_counter", "parameters": {"type": "object"}, "strict": False}
CALLS = {
    "hermes": CALL,
    "llama3_json": r"\{\"name\": \"increment_counter\", \"parameters\": \{\"count\": 3\}\}",
    "mistral": r"\[TOOL_CALLS\]\[\{\"name\": \"increment_counter\", \"arguments\": \{\"count\": 3\}\}\]",
    "deepseek": (
        r"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>increment_counter\n```json\n\{\"count\": 3\}\n```"
        r"<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("families")
    model = folder / "families"
    subprocess.run([PYTHON, "-c", MAKE, str(ROOT / "serving"), str(model), json.dumps(CONTROLS)], check=True, timeout=120)
    parser = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--trust-request-chat-template")
    running = Server(folder / "vllm.log", str(model), "--dtype", "float32", *parser)
    running.start()
    try:
        running.wait()
        yield running
    finally:
        running.kill()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def converse(
    server: Server, template: str, end: str, calls: str, *, bridge: Any = "auto", count: int = 8
) -> list[tuple[Checked, dict[int, str], Any]]:
    """Trajectories of an answer, a forced call and its result where the family has such, and two more answers."""

    async def one(policy: Policy, number: int, token: int) -> tuple[Checked, dict[int, str], Any]:
        items: list[dict[str, Any]] = [user(f"What is there at {number}?")]
        unbridged: dict[int, str] = {}
        free = {"logit_bias": {str(token): 4}, "stop_token_ids": [token]}
        async with await policy.begin() as place:
            for turn in range(4):
                forced = bool(calls) and turn == 1
                extra = {"structured_outputs": {"regex": CALLS[calls]}} if forced else free
                asked = {"input": items, "temperature": 1.5, "max_output_tokens": 120 if forced else 24}
                asked["metadata"] = {"extra_body": json.dumps(extra)}
                if calls:
                    asked["tools"] = [TOOL]
                said = await place.respond(asked, number * 4 + turn)
                assert isinstance(said, Turn), said
                items = [*items, *said.items]
                if said.unbridged:
                    unbridged[turn] = said.unbridged.reason
                called = [item for item in said.items if item["type"] == "function_call"]
                assert not forced or bridge == "off" or unbridged or [item["arguments"] for item in called] == ['{"count": 3}'], (
                    said.items
                )
                items += [
                    {"type": "function_call_output", "call_id": item["call_id"], "output": "it is three now"} for item in called
                ]
                if not called:
                    items.append(user("And what else is there?"))
        return check({"response": {"output": items}}), unbridged, items

    async def work() -> list[tuple[Checked, dict[int, str], Any]]:
        extra = {"chat_template": (FOLDER / f"{template}.jinja").read_text()}
        async with asyncio.timeout(200), Policy(Settings((server.url,), extra_body=extra, token_bridge=bridge)) as policy:
            body = {"model": policy.model, "prompt": end, "add_special_tokens": False}
            _, _, data = await policy.post(policy.endpoints.all[0], "/../tokenize", json.dumps(body).encode())
            (token,) = json.loads(data)["tokens"]
            return await asyncio.gather(*(one(policy, number, token) for number in range(count)))

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("template", "end", "calls"),
    [
        ("qwen2_5", "<|im_end|>", "hermes"),
        ("qwen3", "<|im_end|>", "hermes"),
        ("llama3_1", "<|eot_id|>", "llama3_json"),
        ("mistral", "</s>", ""),
        ("gemma", "<end_of_turn>", ""),
        ("deepseek_r1", "<｜end▁of▁sentence｜>", "deepseek"),
        ("phi", "<|end|>", ""),
        ("glm", "<|user|>", ""),
        ("alpaca", "<|endoftext|>", ""),
    ],
)
def test_a_family_is_bridged_exactly(server: Server, template: str, end: str, calls: str) -> None:
    for checked, unbridged, items in converse(server, template, end, calls):
        assert unbridged == {} and not checked.faults and len(checked.turns) == 4, (unbridged, checked.faults, items)
        assert len(join(checked).ids) == len(checked.turns[-1].prompt) + len(checked.turns[-1].sampled)


@pytest.mark.parametrize(
    ("template", "end", "calls", "reason"),
    [
        ("mistral", "</s>", "mistral", "history_rewritten"),  # the tools move to the last question
        ("window", "<|im_end|>", "", "history_rewritten"),
    ],
)
def test_a_family_that_cannot_be_is_refused_with_the_reason(
    server: Server, template: str, end: str, calls: str, reason: str
) -> None:
    for _, unbridged, _ in converse(server, template, end, calls, count=2):
        assert reason in unbridged.values(), unbridged


def test_rendered_anew_trajectories_break(server: Server) -> None:
    found = converse(server, "qwen2_5", "<|im_end|>", "hermes", bridge="off")
    assert any(checked.faults for checked, _, _ in found)


def test_collected_calls_and_results_are_one_sequence(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    tool = {**TOOL, "description": "Add to the counter.", "parameters": parameters}
    row = {"responses_create_params": {"input": "Add 3.", "tools": [tool]}, "initial_count": 1, "expected_count": 16}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    forced = json.dumps({"structured_outputs": {"regex": CALL.replace("3", "[0-9]{1,6}")}})
    command = [
        "rollouts",
        "collect",
        str(tmp_path / "rows.jsonl"),
        "--env",
        "session_state",
        "--num-repeats",
        "4",
        "--max-steps",
        "6",
    ]
    command += ["--temperature", "1.5", "--max-output-tokens", "120", "--extra-body", forced, "--token-bridge", "require"]
    assert main([*command, "--model-url", server.url, "--output", str(tmp_path / "r.jsonl"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["rollouts", "check-tokens", str(tmp_path / "r.jsonl"), "--model-url", server.url]) == 0
    assert "4 rollouts: 4 whole, 0 broken, 0 without token ids; 24 turns" in capsys.readouterr().out
