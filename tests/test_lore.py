"""What a search remembers of other studies, and when it believes that it is done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from landscape import LandscapeWorkers, ground_of, new_study

from evo.errors import UnknownName, UsageError
from evo.search import search
from evo.search.stopping import EARLIEST, NOISE, PATIENCE, Convergence
from evo.search.warm_start import earlier_trials, remembered
from evo.store import Store
from evo.strategy import Strategy
from evo.study import Study


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with one finished study."""
    folder = tmp_path_factory.mktemp("lore")
    with Store(folder / "evo.db") as store:
        search(
            store.create(replace(new_study(), strategy="random")),
            store,
            ground_of(folder),
            LandscapeWorkers(),
        )
    return str(folder / "evo.db")


def first(store: Store) -> Study:
    return store.studies()[0]


def test_a_study_remembers_how_much_the_other_knew(database: str) -> None:
    with Store(database) as store:
        known = first(store)
        kept = remembered(store, replace(new_study(), name="later"), [known.name])
        count = len(store.rows(known))
        assert kept == {known.name: count}
        study = replace(new_study(), warm_start={known.name: 50})
        trials = earlier_trials(store, study)
        scores = [t.score_us for t in trials if t.score_us is not None]
        assert len(trials) == 50
        assert min(scores) == 1.0, "fractions of that study's best"
        assert earlier_trials(store, new_study()) == []


def test_auto_chooses_studies_that_know_something_of_these_templates(database: str) -> None:
    with Store(database) as store:
        known = first(store)
        asked = replace(new_study(), name="later", templates=known.templates)
        assert list(remembered(store, asked, ["auto"])) == [known.name]
        assert remembered(store, replace(asked, templates=("other",)), ["auto"]) == {}
        assert remembered(store, asked, ()) == {}


def test_lore_that_does_not_exist_or_fit_is_refused(database: str) -> None:
    with Store(database) as store:
        with pytest.raises(UnknownName, match="unknown study: nowhere"):
            remembered(store, new_study(), ["nowhere"])
        other = replace(new_study(), problem=replace(new_study().problem, task="matmul"))
        with pytest.raises(UsageError, match="knows nothing of this task"):
            remembered(store, other, [first(store).name])


def test_a_warm_search_begins_with_what_was_best(database: str, tmp_path: Path) -> None:
    with Store(database) as store:
        known = first(store)
        rows = sorted((r for r in store.rows(known) if r.score_us), key=lambda r: r.score_us or 0.0)
        best = [r.point for r in rows[: 2 * Strategy.WARM_START_POINTS]]
        lore = remembered(store, known, [known.name])
        warm = replace(new_study(), name="warm", budget_s=8.0, warm_start=lore)
        result = search(store.create(warm), store, ground_of(tmp_path), LandscapeWorkers())
        assert any(row.point in best for row in store.rows(result.study)[:40])


def test_a_search_has_converged_when_nothing_is_expected_for_long() -> None:
    convergence = Convergence()
    for _ in range(PATIENCE - 1):
        convergence.hear(NOISE / 2)
    assert not convergence.reached(EARLIEST)
    convergence.hear(NOISE / 2)
    assert convergence.reached(EARLIEST)
    assert not convergence.reached(EARLIEST - 1), "a model of few trials is not believed"
    convergence.hear(NOISE * 2)
    assert not convergence.reached(EARLIEST)
    for _ in range(2 * PATIENCE):
        convergence.hear(None)
    assert not convergence.reached(EARLIEST), "a strategy that does not say is never done"
