"""What a search tries before its strategy is asked."""

from __future__ import annotations

from pathlib import Path

from landscape import LIMITS, PROBLEM, SPACE, write_template

from evo.loop.first_points import FirstPoints, key_of
from evo.strategy import Observation


def test_an_infeasible_default_gives_way_to_the_nearest_point(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE.replace("<= 8192", "<= 1024"))
    feasible = template.space.feasible(LIMITS, PROBLEM)
    first = FirstPoints({"landscape": feasible}).next([], set())
    assert first is not None
    assert feasible.contains(first.point)
    assert len([n for n, v in template.space.default.items() if first.point[n] != v]) == 1


def test_neighbours_of_slow_defaults_are_not_first_points(tmp_path: Path) -> None:
    templates = [write_template(tmp_path, name) for name in ("slow", "good", "broken", "better")]
    scores = {"slow": 21.0, "good": 19.0, "broken": None, "better": 10.0}
    first_points = FirstPoints({t.name: t.space.feasible(LIMITS, PROBLEM) for t in templates})
    history: list[Observation] = []
    tried: set[tuple[object, ...]] = set()
    order: list[str] = []
    while (proposal := first_points.next(history, tried)) is not None:
        order.append(proposal.template)
        tried.add(key_of(proposal))
        history.append(Observation(proposal.template, proposal.point, scores[proposal.template]))
    ring = len(list(templates[0].space.neighbours(templates[0].space.default)))
    assert order == ["slow", "good", "broken", "better"] + ["better"] * ring + ["good"] * ring
    assert first_points.next(history, tried) is None
