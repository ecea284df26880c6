"""Responses meant to do harm, given to every verifier in its worker: bounded time, no reward, nothing changed outside."""

import asyncio
import json
import os
import socket
from itertools import pairwise

import msgspec
import pytest

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("re2", reason="google-re2 is not installed: pip install 'gymdata[verifiers]'")
pytest.importorskip("xmltodict", reason="xmltodict is not installed: pip install 'gymdata[verifiers]'")

from gymdata.verifiers import Undecided, Verdict, make
from gymdata.verifiers.code import Code
from gymdata.verifiers.instruction_following import InstructionFollowing
from gymdata.verifiers.isolation import Workers
from gymdata.verifiers.math import Math
from gymdata.verifiers.mcqa import Mcqa
from gymdata.verifiers.responses import message
from gymdata.verifiers.sandbox import missing
from gymdata.verifiers.structured_outputs import FORMATS, StructuredOutputs
from gymdata.verifiers.tool_call import ArgumentComparison, MultiStep, SessionState, SingleToolCall

OPTIONS = [{"A": "aaaa"}, {"B": "bbbb"}]
SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
ROWS = [
    (Math(), {"expected_answer": "\\frac{7}{3}"}),
    *(
        (Mcqa(mode), {"expected_answer": "B", "options": OPTIONS})
        for mode in (None, "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md")
    ),
    (Mcqa(), {"expected_answer": "B", "options": OPTIONS, "template_metadata": {"output_regex": "(a|aa)+([B])$"}}),
    *((StructuredOutputs(), {"schema_str": SCHEMA, "schema_type": kind}) for kind in FORMATS),
    (ArgumentComparison(), {"expected_action": {"type": "function_call", "name": "f", "arguments": '{"a": 1}'}}),
    (MultiStep(), {"expected_synonym_values": [1]}),
    (SessionState(), {"initial_count": 0, "expected_count": 1}),
    (SingleToolCall(), {}),
]
JUDGED = [
    (make("math_with_judge", {}), {"expected_answer": "\\frac{7}{3}", "question": "?"}),
    *(
        (
            make("equivalence_llm_judge", {"response_extract_regex": expression}),
            {"expected_answer": "7", "responses_create_params": {}},
        )
        for expression in (None, "((a|aa)+)+!", "(.*)*=.*", "(?:x?){500}x{500}")
    ),
]
"""Of these a judge may be asked: then there is no reward yet, and no more to ask than what was said."""
ROWS += JUDGED
ROWS.append(
    (
        InstructionFollowing(),
        {
            "instruction_id_list": [
                "punctuation:no_comma",
                "detectable_format:number_highlighted_sections",
                "startend:quotation",
                "keywords:existence",
            ],
            "kwargs": [{}, {"num_highlights": 1}, {}, {"keywords": ["nowhere"]}],
        },
    )
)

TEXTS = {
    "ten megabytes": "x" * 10_000_000,
    "brackets": "\\boxed{" + "{" * 3_000_000,
    "boxes": "\\boxed{" * 1_000_000,
    "closed": "\\boxed{" * 200_000 + "}" * 200_000,
    "tower": "\\boxed{9^{9^{9^{9}}}} \\boxed{9**9**9**9}",
    "spaces": "Answer" + " " * 5_000_000 + ": \\boxed{\\text{" + " " * 1_000_000 + "}}",
    "expression bait": "\\boxed{" + "a" * 1_000_000 + "!}",
    "json": '{"a": "' + "a" * 50_000 + '!"}',
    "nesting": "[" * 1_000_000,
    "digits": "9" * 3_000_000,
    "number": '{"a": ' + "9" * 1_000_000 + "}",
    "infinity": '{"a": 1e999999999, "a": -Infinity}',
    "laughs": "a: &a [x, x]\n"
    + "".join(f"{two}: &{two} [*{one}, *{one}]\n" for one, two in pairwise("abcdefghijklmnopqrstuvwxyz")),
    "entities": '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]><a>&b;&c;</a>',
    "tables": "[a]\n" * 100_000 + "a" + ".a" * 100_000 + " = 1",
    "unicode": "\\boxed{\ud800\u0000\u202e\U0001f4a3} Answer: \ud800",
    "stars": "*" * 2_000_000 + "<<" * 500_000,
    "python": "\\boxed{__import__('os').system('touch pwned')}\n```python\nimport os; os.system('touch pwned')\n```",
    "yaml": "!!python/object/apply:os.system ['touch pwned']",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What each verifier says of each text, given as a message and as arguments of calls; and what the workers left behind."""
    folder = tmp_path_factory.mktemp("workers")
    before = os.getcwd()
    os.chdir(folder)

    async def ask(workers, text):
        names = ("f", "increment_counter", "extract_synonym_values")
        called = {"output": [{"type": "function_call", "call_id": "c", "name": name, "arguments": text} for name in names]}
        return await asyncio.gather(
            *(workers.verify(verifier, row, response) for verifier, row in ROWS for response in (message(text), called))
        )

    async def run():
        async with Workers(2, seconds=20) as workers:
            return {name: await ask(workers, text) for name, text in TEXTS.items()}

    found = asyncio.run(run())
    os.chdir(before)
    return found, os.listdir(folder)


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_harms_a_verifier(name, outcomes):
    for outcome in outcomes[0][name]:
        if isinstance(outcome, Undecided):
            assert len(msgspec.json.encode(outcome)) < 16 * len(TEXTS[name]) + 20_000
            continue
        assert isinstance(outcome, Verdict), outcome
        assert outcome.reward == 0
        assert outcome.extras["reason"]


def test_no_text_makes_a_file(outcomes):
    assert outcomes[1] == []


PROGRAMS = {
    "fork bomb": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "endless": "while True: pass",
    "memory": "x = []\nwhile True: x.append('x' * 10**7)",
    "output": "while True: print('x' * 10**6)",
    "files": "import pathlib\nfor p in ('/etc/passwd', '/proc/1/environ'): print(pathlib.Path(p).read_text())",
    "writing": "open('pwned', 'w').write('x')\nopen('/usr/lib/pwned', 'w')",
    "killing": "import os\nos.kill(-1, 9)\nos.kill(os.getppid(), 9)",
    "number": "print(9**9**9**9)",
    "recursion": "def f(): return f()\nf()",
    "crash": "import ctypes\nctypes.string_at(0)",
}


@pytest.mark.skipif(bool(missing()), reason=f"this machine gives no isolation to programs: {missing()}")
def test_no_program_harms_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"verifier_metadata": {"unit_tests": {"inputs": ["1\n"], "outputs": ["secret\n"]}}}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        programs = [*PROGRAMS.values(), f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)"]

        async def run():
            async with Workers(2) as workers:
                return await asyncio.gather(
                    *(workers.verify(Code(1.0), row, message(f"```python\n{code}\n```")) for code in programs)
                )

        for program, outcome in zip(programs, asyncio.run(run()), strict=True):
            assert isinstance(outcome, Verdict), (program, outcome)
            assert outcome.reward == 0, program
            assert outcome.extras["reason"]
        with pytest.raises(BlockingIOError):
            server.accept()
    assert os.listdir(tmp_path) == [] and not os.path.exists("/usr/lib/pwned")
