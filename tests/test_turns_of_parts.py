"""Several searches of the parts of many problems, into one database: what one finds, the others try."""

from __future__ import annotations

import math
from pathlib import Path

from test_turns import BEST_ROWS, LONG_S, ShapedWorkers, member, problem, tried

from evo.loop import search
from evo.loop.turns import Turns
from evo.store import Store


def test_what_another_search_finds_is_tried_here_and_served(tmp_path: Path) -> None:
    """Two lengths are searched here, one by another search, into the same database."""
    folder = tmp_path / "t"
    with Store(tmp_path / "evo.db") as store:
        there = member(store, folder, 2048)
        study, spaces = there.open((), True)
        search(study, store, spaces, ShapedWorkers(2))
        known = {tried(row): row.score_us or math.inf for row in store.rows(study)}
        own = [member(store, folder, length) for length in (128, 512)]
        elsewhere = {"many-2048": member(store, folder, 2048), "many-4096": member(store, folder, 4096)}
        said: list[str] = []
        turns = Turns(
            own, store, ShapedWorkers(2), 1, lambda m, _: said.append(m.name), lambda _: None, elsewhere
        )
        found = turns.run(LONG_S)
        first = next(one for one in own if one.name == said[0])
        assert first.study is not None
        begun = [tried(row) for row in sorted(store.rows(first.study), key=lambda row: row.number)[:3]]
    assert problem(2048).key not in said, "it has no turn here"
    assert sorted(known[key] for key in begun) == sorted(known.values())[:3]
    assert found.unserved == [problem(4096).key], "nobody has begun with it"
    assert found.portfolio is not None
    assert set(found.portfolio.serves) == {problem(length).key for length in BEST_ROWS}
