"""Parameters that change nothing, by pairs of trials."""

from __future__ import annotations

from evo.loop import dead_parameters
from evo.store import TrialRow
from evo.trial import Outcome


def test_one_pair_that_differs_is_enough_for_a_parameter() -> None:
    def row(number: int, code: str, launch: str = "a", **point: int) -> TrialRow:
        return TrialRow(number, Outcome.TIMED, "", "t", point, "", code, launch, 1.0, None, None, None, None)

    rows = [row(0, "x", a=0, b=0), row(1, "x", a=1, b=0), row(2, "y", a=0, b=1), row(3, "z", a=1, b=1)]
    assert dead_parameters(rows) == []
    assert [(d.name, d.pairs) for d in dead_parameters(rows[:2])] == [("a", 1)]
    assert dead_parameters([row(0, "x", a=0), row(1, "x", "b", a=1)]) == [], (
        "another launch is another program"
    )
    assert dead_parameters([row(0, "", a=0), row(1, "", a=1)]) == [], "what did not compile says nothing"
