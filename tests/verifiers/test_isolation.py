"""Workers: no verifier can hang, crash or fool the process that asks it."""

import asyncio
import os
from typing import Any

import pytest

from gymdata.verifiers import Verdict
from gymdata.verifiers.isolation import Failure, Workers
from tests.verifiers.misbehaving import Misbehaving

WELL = Verdict(1.0, {"extracted_answer": None})


def ask(*rows, seconds=30.0) -> list[Any]:
    """What one worker says of rows, one after the other."""

    async def run():
        async with Workers(1, seconds=seconds) as workers:
            return [await workers.verify(Misbehaving(), row, {}) for row in rows]

    return asyncio.run(run())


def test_one_worker_answers_many():
    first, second = ask({"does": "pid"}, {"does": "pid"})
    assert first.extras["pid"] == second.extras["pid"] != os.getpid()


def test_a_worker_knows_whether_programs_may_run_without_isolation_and_no_token(monkeypatch):
    monkeypatch.setenv("GYMDATA_UNSAFE_CODE", "1")
    monkeypatch.setenv("SOME_TOKEN", "s3cret")
    known = ask({"does": "pid"})[0].extras["environment"]
    assert known["GYMDATA_UNSAFE_CODE"] == "1"
    assert "SOME_TOKEN" not in known


@pytest.mark.parametrize(
    ("does", "kind", "words"),
    [
        ("die", "crashed", "exit code 7"),
        ("crash", "crashed", "SIGSEGV"),
        ("raise", "error", "KeyError"),
        ("eat", "error", "memory"),
        ("give up", "error", "the row is at fault"),
    ],
)
def test_a_verifier_that_fails_is_a_failure_with_its_kind_and_the_next_question_is_answered(does, kind, words):
    failure, verdict = ask({"does": does}, {})
    assert isinstance(failure, Failure)
    assert failure.kind == kind
    assert words in failure.message
    assert verdict == WELL


@pytest.mark.parametrize("does", ["loop", "compute"])
def test_a_verifier_that_takes_too_long_is_killed_and_replaced(does):
    # The allowance for starting is used up by the first question.
    before, failure, verdict = ask({}, {"does": does}, {}, seconds=1.0)
    assert (before, verdict) == (WELL, WELL)
    assert failure == Failure("timeout", "the verifier 'misbehaving' took longer than 1 s")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, True, "1"])
def test_only_a_finite_number_is_a_reward(reward):
    assert isinstance(ask({"reward": reward})[0], Failure)


def test_what_a_verifier_prints_goes_nowhere():
    assert ask({"does": "print"}, {}) == [WELL, WELL]


def test_a_worker_sees_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "hf_secret" not in str(ask({"does": "pid"})[0].extras)


def test_a_cancelled_question_does_not_answer_the_next_one(tmp_path):
    async def run():
        async with Workers(1) as workers:
            await workers.verify(Misbehaving(), {}, {})
            cancelled = asyncio.create_task(
                workers.verify(Misbehaving(), {"does": "wait", "until": str(tmp_path / "never"), "answer": "late"}, {})
            )
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            return await workers.verify(Misbehaving(), {"answer": "mine"}, {})

    assert asyncio.run(run()) == Verdict(1.0, {"extracted_answer": "mine"})


def test_questions_run_side_by_side(tmp_path):
    flag = tmp_path / "flag"

    async def run():
        async with Workers(2) as workers:
            waiting = asyncio.create_task(workers.verify(Misbehaving(), {"does": "wait", "until": str(flag)}, {}))
            other = await workers.verify(Misbehaving(), {}, {})
            flag.touch()
            return [other, await waiting]

    assert asyncio.run(run()) == [WELL, WELL]


def test_workers_end_with_the_pool():
    pid = ask({"does": "pid"})[0].extras["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ten_megabytes_come_through():
    row = {"answer": "x" * 10_000_000}
    assert ask(row)[0].extras["extracted_answer"] == row["answer"]
