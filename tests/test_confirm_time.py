"""How much of a short budget finalists take, and how much is left for rounds; with a real database."""

from __future__ import annotations

from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import evaluate, new_study, slower, spaces_of

from evo.confirm import confirm
from evo.store import Store


@pytest.mark.parametrize(
    ("factor", "seconds"),
    [
        (1.0, 6.0),
        # 10 rounds of 9 launches of two finalists of 100 ms and of one baseline of 150
        (20_000.0, 37.5),
    ],
)
def test_before_a_second_finalist_is_gated_time_for_rounds_is_kept(
    factor: float, seconds: float, tmp_path: Path
) -> None:
    template = spaces_of(tmp_path / "t")["landscape"].template
    needed: list[float] = []

    def over(needs_s: float) -> bool:
        needed.append(needs_s)
        return needs_s > 0

    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study())
        for number, columns in enumerate((64, 32)):
            point = {**template.space.default, "rows": 128, "columns": columns, "stages": 3, "wide": True}
            trial = evaluate(template.candidate(point, study.problem))
            store.add(study, number, slower(trial, factor, 0))
        found = confirm(study, store, SimulatedWorker(), top=2, over=over)
    assert found is not None
    assert len(found.green) == 1
    assert needed[:2] == [0.0, pytest.approx(seconds, abs=0.5)]
