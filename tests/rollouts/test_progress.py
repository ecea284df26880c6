"""The line that tells how a run fares."""

from __future__ import annotations

from collections import Counter

from gymdata.cli.rollouts_progress import line
from gymdata.rollouts.endpoints import Endpoint
from gymdata.rollouts.journal import Rewards
from gymdata.rollouts.run import Progress


def test_it_tells_what_there_is_to_tell():
    progress = Progress(
        total=1000, before=100, done=200, rewards=Rewards(300, 75.0), in_flight=64, output_tokens=20_000, started=0.0
    )
    assert line(progress, 100.0) == "300/1,000  2.0/s  200 tok/s  in flight 64  mean reward 0.250  left 0:05:50"


def test_trouble_is_told():
    progress = Progress(total=10, started=0.0, retries=3, failed=Counter({"request_failed: timeout": 2}), interrupted=True)
    progress.servers = [Endpoint("http://127.0.0.1/v1", 1, healthy=False), Endpoint("http://127.0.0.2/v1", 1)]
    told = line(progress, 10.0)
    for part in ("retries 3", "failed 2", "1 of 2 servers not answering", "Ctrl-C again gives them up"):
        assert part in told
    assert "mean reward" not in told


def test_what_an_interrupted_run_waits_for_is_seen_on_a_narrow_terminal():
    progress = Progress(total=320_000, done=10_000, in_flight=16_384, started=0.0, retries=123, interrupted=True)
    assert "Ctrl-C again gives them up" in line(progress, 10.0)[:79]
