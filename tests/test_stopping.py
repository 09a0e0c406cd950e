"""When a search ends, and how long it waits then."""

from __future__ import annotations

import os
import signal

import pytest
from landscape import new_study

from evo.loop import Turn
from evo.loop.stopping import Clock, interrupts


@pytest.mark.parametrize(
    ("reserve_s", "found", "grace_s"),
    [(0.0, True, 5.0), (15.0, True, 1.5), (120.0, True, 5.0), (15.0, False, 8.0)],
)
def test_what_is_kept_for_a_confirmation_is_not_spent_on_waiting(
    reserve_s: float, found: bool, grace_s: float
) -> None:
    assert Clock(new_study(), reserve_s).grace_s(Turn(first_s=8.0), found) == grace_s


def test_a_signal_that_a_turn_no_longer_asks_for_ends_the_search() -> None:
    with interrupts() as outer:
        with interrupts() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            assert inner()
        assert outer()
        with interrupts() as following:
            assert following()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
