"""What a search tries before its strategy is asked."""

from __future__ import annotations

from pathlib import Path

from landscape import LIMITS, PROBLEM, SPACE, write_template

from evo.loop.first_points import first_points


def test_an_infeasible_default_gives_way_to_the_nearest_point(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE.replace("<= 8192", "<= 1024"))
    feasible = template.space.feasible(LIMITS, PROBLEM)
    (first,) = first_points({"landscape": feasible})
    assert feasible.contains(first.point)
    assert len([n for n, v in template.space.default.items() if first.point[n] != v]) == 1
