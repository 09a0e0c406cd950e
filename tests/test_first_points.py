"""What a search tries before its strategy is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from landscape import LIMITS, PROBLEM, SPACE, LandscapeWorkers, new_study, spaces_of, write_template

from evo.loop import Progress, search
from evo.loop.first_points import first_points
from evo.loop.proposals import UNINFORMED
from evo.store import Store
from evo.strategy.evolution.evo import Evo


def test_an_infeasible_default_gives_way_to_the_nearest_point(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE.replace("<= 8192", "<= 1024"))
    feasible = template.space.feasible(LIMITS, PROBLEM)
    (first,) = first_points({"landscape": feasible})
    assert feasible.contains(first.point)
    assert len([n for n, v in template.space.default.items() if first.point[n] != v]) == 1


@pytest.mark.parametrize(("count", "at_once"), [(8, UNINFORMED), (20, 13)])
def test_a_design_is_asked_for_at_once(tmp_path: Path, count: int, at_once: int) -> None:
    """The first points of one template need no knowledge of each other; where there are more workers, most
    of them are busy from the start: 20 take 22, and have 0.6 of that."""
    spaces, workers = spaces_of(tmp_path / "templates"), LandscapeWorkers(count, 0.01)
    submitted: list[int] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(budget_s=1.0, workers=count))

        def watch(progress: Progress) -> None:
            if progress.latest is not None:
                submitted.append(len(workers.submitted))

        search(study, store, spaces, workers, watch)
    assert UNINFORMED == Evo.INITIAL_TRIALS
    assert submitted[0] == at_once
