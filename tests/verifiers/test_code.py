"""Programs on the tests of a row."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.code import Code, last_block
from gymdata.verifiers.responses import message
from gymdata.verifiers.sandbox import missing
from tests.verifiers.gym import PYTHON, needs_gym

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"this machine gives no isolation to programs: {missing()}")
SHARED = Path(__file__).parents[3] / "shared/data/code.jsonl"


def fenced(code):
    return message(f"Here it is:\n```python\n{code}\n```\nDone.")


def with_tests(inputs, outputs, **more):
    return {"verifier_metadata": {"unit_tests": {"inputs": inputs, "outputs": outputs} | more}}


DOUBLE = with_tests(["2\n", "5\n"], ["4\n", "10\n"])


def score(row, code, seconds=20.0):
    return Code(seconds).verify(row, fenced(code))


def test_all_tests_must_pass_and_the_first_that_fails_is_named():
    right = score(DOUBLE, "print(int(input()) * 2)")
    assert (right.reward, right.extras["result"], right.extras["reason"]) == (1, [True, True], "all 2 tests passed")
    wrong = score(DOUBLE, "print(4)")
    assert (wrong.reward, wrong.extras["result"]) == (0, [True, -2])
    assert wrong.extras["reason"] == "test 2 of 2: line 1 is '4' instead of '10'"


@pytest.mark.parametrize(
    ("code", "result", "words"),
    [
        ("while True: pass", -3, "longer"),
        ("raise ValueError('no')", -4, "ValueError: no"),
        ("import os; os._exit(0)", -2, "''"),
        ("syntax error", -4, "SyntaxError"),
        ("while True: print('x' * 1000)", -4, "more than it may"),
    ],
)
def test_what_went_wrong_is_said(code, result, words):
    verdict = score(DOUBLE, code, seconds=2.0)
    assert (verdict.reward, verdict.extras["result"]) == (0, [result])
    assert words in verdict.extras["reason"]


def test_what_a_program_says_on_standard_error_is_no_answer():
    code = "import sys\nprint('reading', file=sys.stderr)\nprint(int(input()) * 2)"
    assert score(DOUBLE, code).reward == 1
    assert score(DOUBLE, code.replace("print(int(input()) * 2)", "sys.exit('bad input')")).extras["reason"].endswith("bad input")


def test_a_program_may_put_away_its_streams():
    quiet = "import os, sys\nsys.stdout = sys.stderr = open(os.devnull, 'w')\n"
    assert score(with_tests(["1"] * 10, ["2"] * 10, fn_name="f"), quiet + "def f(x): return x + 1").reward == 1


def test_an_empty_list_can_be_the_right_answer():
    row = with_tests(["[]", "[1]"], ["[]", "[]"], fn_name="rest")
    assert score(row, "def rest(x): return x[1:]").reward == 1
    assert score(row, "def rest(x): return x").reward == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", ""),
        ("```\na\n```", "a"),
        ("```python\na\nb\n```\n", "a\nb"),
        ("```python\nfirst\n```\nthen\n```python\nlast\n```", "last"),
        ("```python\nopen", ""),
        ("a ``` b", ""),
        ("", ""),
    ],
)
def test_the_last_block_counts(text, code):
    assert last_block(text) == code


def test_tests_can_be_packed():
    import base64
    import zlib

    packed = base64.b64encode(zlib.compress(json.dumps({"inputs": ["[1, 2]\n3"], "outputs": ["6"]}).encode())).decode()
    row = {"verifier_metadata": {"unit_tests": {"packed": packed, "fn_name": "total"}}}
    assert score(row, "def total(numbers, more): return sum(numbers) + more").reward == 1


def test_thoughts_in_the_answer_cost_the_reward():
    row, text = DOUBLE, "<think>x</think>\n```python\nprint(int(input()) * 2)\n```"
    assert Code(3).verify(row, message(text)).reward == 0
    assert Code(3, reasoning_format_penalty=-1.0).verify(row, message(text)).reward == -1


@pytest.mark.parametrize(
    "metadata",
    [{}, {"unit_tests": {}}, {"unit_tests": {"inputs": ["1"], "outputs": []}}, {"unit_tests": {"packed": "x"}}, {"test": "x"}],
)
def test_a_row_without_tests_that_run_is_a_failure(metadata):
    with pytest.raises(VerifierFailure):
        score({"verifier_metadata": metadata}, "print(1)")


def test_humaneval_and_mbpp_rows_are_run_to_the_end_of_their_tests():
    humaneval = {"verifier_metadata": {"test": "def check(f):\n    assert f(2) == 4", "entry_point": "double"}}
    mbpp = {"verifier_metadata": {"test_setup_code": "", "test_list": ["assert double(2) == 4", "assert double(0) == 0"]}}
    for row in (humaneval, mbpp):
        assert score(row, "def double(x): return x * 2").reward == 1
        assert score(row, "def double(x): return x + 1").reward == 0
        assert score(row, "import os\ndef double(x): os._exit(0)").reward == 0
        assert score(row, "raise SystemExit(0)").reward == 0


def test_an_expected_output_is_nowhere_in_the_sandbox():
    row = with_tests(["2\n"], ["expected-4711\n"])
    peek = "import gc, inspect\nprint([o for o in gc.get_objects() if 'expected-' + '4711' in str(o)[:9999]] and 'expected-' + '4711')"
    assert score(row, peek).reward == 0


CASES = [
    (DOUBLE, code) for code in ("print(int(input()) * 2)", "print(input())", "import sys\nfor line in sys.stdin: print(int(line) * 2)",
   
    "n = int(input())\nif __name__ == '__main__':\n    print(n * 2)", "print(float(input()) * 2)",
    "print(int(input()) * 2, end='')", "import sys\nprint(1, file=sys.stderr)\nprint(int(input()) * 2)", "print()\nprint(int(input()) * 2)", "1/0")
] + [
    (with_tests([""], [wanted]), f"print({given!r})") for wanted, given in [
        ("YES", "yes"), ("Yes\nNO", "yes\nno"), ("maybe", "Maybe"), ("1.0", "1.0000001"), ("1", "1.0000001"), ("1", "1.0"), ("0.5 2", "0.5000001 2"),
       
        ("50000000000000000", "50000000000000001"), ("1 2", "1  2"), ("1 2", "1 2 "), ("1\n2", "1\n2\n\n"), ("1\n\n2", "1\n2"),
        ("nan", "nan"), ("a 1.0", "a 1.00"),
        ("1e3", "1000"), ("1000", "1e3"), ("-0.0", "0"), ("3.14159", "3.14160"), ("100000.5", "100000.55"), ("inf", "inf"), ("1_0", "10"),
    ]
] + [
    (with_tests(["1\n2"], [wanted], fn_name="f"), f"def f(a, b): return {given}") for wanted, given in [
        ("3", "a + b"), ("3", "3.0"), ("3", "'3'"), ("[1, 2]", "(a, b)"), ("[1.0]", "[1.00000001]"), ("true", "1"), ("null", "None"), ("1.0", "1.1"),
        ("{\"a\": 1}", "{'a': 1}"), ("[[1.0]]", "[[1.00000001]]"), ("\"x\"", "'x'"), ("3", "undefined"), ("[1, 2]", "[2, 1]"),
        ("[]", "[]"), ("[]", "()"), ("{}", "{}"), ("[]", "[1]"),
    ]
] + [
    (with_tests(["1"], ["2"], fn_name="g"), "class Solution:\n    def g(self, x): return x + 1"), (with_tests(["1"], ["2"], fn_name="g"), "x = 1"),
]  # fmt: skip

ASK = """
import json, multiprocessing, sys
sys.path.insert(0, sys.argv[1])
from lcb_integration.testing_util import run_test
def one(case, queue):
    tests, code = case
    sys.stdout = open("/dev/null", "w")
    results, _ = run_test({"fn_name": None} | tests, test=code, timeout=3)
    queue.put(bool(len(results) == len(tests["inputs"]) and all(result == True for result in results)))
answers = []
for case in json.load(sys.stdin):
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=one, args=(case, queue))
    process.start()
    process.join(20)
    answers.append(queue.get(timeout=1) if process.exitcode == 0 else False)
print(json.dumps(answers))
"""


@needs_gym
def test_programs_pass_where_they_pass_in_nemo_gym(tmp_path):
    where = subprocess.run(
        [PYTHON, "-c", "import resources_servers.code_gen as m; print(list(m.__path__)[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    asked = json.dumps([(row["verifier_metadata"]["unit_tests"], code) for row, code in CASES])
    done = subprocess.run(
        [PYTHON, "-c", ASK, where.stdout.strip()],
        input=asked,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        check=False,
    )
    if "No module named" in done.stderr:
        pytest.skip(f"NeMo Gym's checker cannot be imported there: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
    ours = [score(row, code).reward == 1 for row, code in CASES]
    differing = [case for case, theirs, own in zip(CASES, json.loads(done.stdout), ours, strict=True) if theirs != own]
    assert differing == []


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data/code.jsonl is not beside this checkout")
def test_real_solutions_pass_their_own_tests():
    rows = [row for row in map(json.loads, SHARED.open()) if row["dataset"] in ("humaneval", "mbpp")][::25]
    for row in rows:
        gold = Code().gold(row)
        assert gold.right is not None
        assert Code().verify(row, gold.right).reward == 1, row["source_id"]
        assert all(Code().verify(row, wrong).reward == 0 for wrong in gold.wrong), row["source_id"]
