"""The time limit on a comparison."""

from __future__ import annotations

import signal
import time

import pytest

from gymdata.verifiers.limits import LimitError, time_limit


class Deaf:
    """Computes while it is finalised, where Python swallows whatever is raised."""

    def __del__(self) -> None:
        stop = time.process_time() + 0.2
        while time.process_time() < stop:
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_limit_that_was_swallowed_comes_again():
    with pytest.raises(LimitError), time_limit(0.05):
        Deaf()
        while True:
            pass


def test_what_keeps_to_the_limit_leaves_no_timer_behind():
    before = signal.getsignal(signal.SIGPROF)
    with time_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0) and signal.getsignal(signal.SIGPROF) is before


def test_waiting_does_not_count():
    with time_limit(0.05):
        time.sleep(0.2)
