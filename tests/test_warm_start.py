"""What a search learns from other studies, and when it has converged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from landscape import (
    LIMITS,
    PROBLEM,
    SPACE,
    TILES,
    LandscapeWorkers,
    enough,
    new_study,
    spaces_of,
    write_template,
)

from evo.errors import UnknownName, UsageError
from evo.loop import search, search_spaces
from evo.loop.stopping import (
    LEAST_GAIN,
    STOPPING_ESTIMATES,
    STOPPING_PATIENCE,
    STOPPING_TRIALS,
    EarlyStopping,
)
from evo.loop.warm_start import LEAST_CORRECT, earlier_trials, warm_start_sources
from evo.space.rules import SHARED_SM
from evo.store import Store
from evo.strategy.warm_points import WarmStartPoints
from evo.study import Study


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with one finished study."""
    folder = tmp_path_factory.mktemp("warm")
    with Store(folder / "evo.db") as store:
        search(
            store.create(replace(new_study(), strategy="random")),
            store,
            spaces_of(folder),
            LandscapeWorkers(),
        )
    return str(folder / "evo.db")


def first(store: Store) -> Study:
    return store.studies()[0]


def test_a_study_remembers_how_much_the_other_knew(database: str) -> None:
    with Store(database) as store:
        known = first(store)
        kept = warm_start_sources(store, replace(new_study(), name="later"), [known.name])
        count = len(store.rows(known))
        assert kept == {known.name: count}
        study = replace(new_study(), warm_start={known.name: 50})
        trials = earlier_trials(store, study, {})
        scores = [t.score_us for t in trials if t.score_us is not None]
        assert len(trials) == 50
        assert min(scores) == 1.0, "fractions of that study's best"
        assert earlier_trials(store, new_study(), {}) == []


def test_scores_of_another_shape_follow_how_well_ctas_fill_the_sms(tmp_path: Path) -> None:
    """Of the 58 SMs of an L4, 56 have a CTA where 512 rows are tiles of 64 in 7 heads. With 576 rows there
    are 63, and five SMs have two, which share it. Of tiles of 16 rows four share an SM, and then five."""
    longer = replace(PROBLEM, sizes={**PROBLEM.sizes, "H": 7, "L": 576})
    shorter = replace(longer, sizes={**longer.sizes, "L": 512})
    template = write_template(tmp_path, space=SPACE + TILES)
    with Store(tmp_path / "evo.db") as store:
        known = store.create(replace(new_study("known"), problem=shorter, strategy="random"))
        search(known, store, search_spaces([template], LIMITS, shorter), LandscapeWorkers())
        spaces = {template.name: template.space.feasible(LIMITS, longer)}
        rows = store.rows(store.study("known"))
        study = replace(new_study(), problem=longer, warm_start={"known": len(rows)})
        trials = earlier_trials(store, study, spaces)
    times: dict[int, set[float]] = {16: set(), 64: set()}
    for row, trial in zip(rows, trials, strict=True):
        if row.score_us is not None and trial.score_us is not None and row.point["rows"] in times:
            times[int(row.point["rows"])].add(round(trial.score_us / row.score_us, 9))
    (small,), (large,) = times[16], times[64]
    assert large / small == pytest.approx((2 / 1) ** SHARED_SM / (5 / 4) ** SHARED_SM)
    assert min(trial.score_us for trial in trials if trial.score_us is not None) == 1.0


def test_auto_chooses_studies_that_know_something_of_these_templates(database: str) -> None:
    with Store(database) as store:
        known = first(store)
        asked = replace(new_study(), name="later", templates=known.templates)
        assert list(warm_start_sources(store, asked, ["auto"])) == [known.name]
        assert warm_start_sources(store, replace(asked, templates=("other",)), ["auto"]) == {}
        assert list(warm_start_sources(store, asked, ())) == [known.name], "it is what nothing means"
        assert warm_start_sources(store, asked, ["none"]) == {}


def test_auto_prefers_measured_times_and_near_sizes(tmp_path: Path) -> None:
    """Of studies that know enough."""
    sizes = {"near": 1024, "far": 16384, "guessed": 256}
    with Store(tmp_path / "evo.db") as store:
        for name, length in sizes.items():
            problem = replace(PROBLEM, sizes={**PROBLEM.sizes, "L": length})
            device = "emulator" if name == "guessed" else "cuda:0"
            study = store.create(replace(new_study(name), problem=problem, device=device))
            study = replace(study, strategy="random")
            search(study, store, spaces_of(tmp_path), LandscapeWorkers(), enough(2 * LEAST_CORRECT))
        found = warm_start_sources(store, replace(new_study("later"), device="cuda:0"), ())
        assert list(found) == ["near", "far", "guessed"]


def test_a_warm_start_from_a_study_that_does_not_exist_or_fit_is_refused(database: str) -> None:
    with Store(database) as store:
        with pytest.raises(UnknownName, match="unknown study: nowhere"):
            warm_start_sources(store, new_study(), ["nowhere"])
        other = replace(new_study(), problem=replace(new_study().problem, task="matmul"))
        with pytest.raises(UsageError, match="knows nothing of this task"):
            warm_start_sources(store, other, [first(store).name])


def test_a_warm_search_begins_with_what_was_best(database: str, tmp_path: Path) -> None:
    with Store(database) as store:
        known = first(store)
        rows = sorted((r for r in store.rows(known) if r.score_us), key=lambda r: r.score_us or 0.0)
        best = [r.point for r in rows[: 2 * WarmStartPoints.COUNT]]
        sources = warm_start_sources(store, known, [known.name])
        warm = replace(new_study(), name="warm", warm_start=sources)
        result = search(store.create(warm), store, spaces_of(tmp_path), LandscapeWorkers(), enough(40))
        assert any(row.point in best for row in store.rows(result.study)[:40])


def test_a_search_has_converged_when_nothing_is_expected_for_long() -> None:
    stopping = EarlyStopping()
    for _ in range(STOPPING_PATIENCE - 1):
        stopping.add(LEAST_GAIN / 2)
    assert not stopping.reached(STOPPING_TRIALS)
    stopping.add(LEAST_GAIN / 2)
    assert stopping.reached(STOPPING_TRIALS)
    assert not stopping.reached(STOPPING_TRIALS - 1), "a model of few trials is not believed"
    stopping.add(LEAST_GAIN * 2)
    assert not stopping.reached(STOPPING_TRIALS)
    estimates = EarlyStopping(estimated=True)
    for _ in range(STOPPING_PATIENCE):
        estimates.add(LEAST_GAIN * 2)
    assert estimates.reached(STOPPING_ESTIMATES), "estimates tell less than times"
    for _ in range(2 * STOPPING_PATIENCE):
        stopping.add(None)
    assert not stopping.reached(STOPPING_TRIALS), "a strategy that does not say is never done"
