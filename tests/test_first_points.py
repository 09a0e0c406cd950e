"""What a search tries before its strategy is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from landscape import LIMITS, PROBLEM, SPACE, LandscapeWorkers, new_study, spaces_of, write_template

from evo.loop import Progress, search
from evo.loop.first_points import FAR_BEHIND, LATER, first_points
from evo.loop.proposals import UNINFORMED
from evo.store import Store
from evo.strategy import Observation, make_strategy
from evo.strategy.evolution.evo import Evo


def test_an_infeasible_default_gives_way_to_the_nearest_point(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE.replace("<= 8192", "<= 1024"))
    feasible = template.space.feasible(LIMITS, PROBLEM)
    (first,) = first_points({"landscape": feasible}).at_once
    assert feasible.contains(first.point)
    assert len([n for n, v in template.space.default.items() if first.point[n] != v]) == 1


def test_a_template_that_every_study_has_far_behind_waits(tmp_path: Path) -> None:
    (feasible,) = spaces_of(tmp_path).values()
    spaces = {"slow": feasible.feasible, "fast": feasible.feasible}
    point = feasible.feasible.points[0]
    one = [Observation("fast", point, 0.5, "one"), Observation("slow", point, 0.6 * FAR_BEHIND, "one")]
    other = [Observation("fast", point, 1.0, "other"), Observation("slow", point, 0.9 * FAR_BEHIND, "other")]

    found = first_points(spaces, one)
    assert [first.template for first in found.at_once] == ["fast"]
    assert [first.template for first in found.due(LATER - 1)] == ["fast"]
    assert [first.template for first in found.due(LATER)] == ["fast", "slow"]
    assert len(first_points(spaces, [*one, *other]).at_once) == 2  # where the other did better, it may here
    assert len(first_points(spaces, one[1:]).at_once) == 2  # and the best that a study has is not behind

    # nor does the strategy choose it before it was tried, but for the question that goes to any template
    strategy = make_strategy("evo", spaces, 0, one)
    history = [Observation("fast", point, 1.0)]
    asked = [strategy.ask(history, [], number) for number in range(1, Evo.RANDOM_TEMPLATE_EVERY)]
    assert sum(proposal is not None and proposal.template == "slow" for proposal in asked) <= 1


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
