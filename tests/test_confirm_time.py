"""How much of a short budget finalists take, and how much is left for rounds; with a real database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import evaluate, new_study, slower, spaces_of

from evo.confirm import confirm
from evo.confirm.confirmation import MISSED_ROUNDS
from evo.store import Store
from evo.study import Study
from evo.template import Template
from evo.trial import Round


def two_trials(store: Store, template: Template, factor: float = 1.0) -> Study:
    """A study with two trials, which take `factor` times as long as the landscape says."""
    study = store.create(new_study())
    for number, columns in enumerate((64, 32)):
        point = {**template.space.default, "rows": 128, "columns": columns, "stages": 3, "wide": True}
        trial = evaluate(template.candidate(point, study.problem))
        store.add(study, number, slower(trial, factor, 0))
    return study


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
        study = two_trials(store, template, factor)
        found = confirm(study, store, SimulatedWorker(), top=2, over=over)
    assert found is not None
    assert len(found.green) == 1
    assert needed[:2] == [0.0, pytest.approx(seconds, abs=0.5)]


class Hurried(SimulatedWorker):
    """Its first rounds have no `math`, its later ones no `flash`."""

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        held = super().round(protocol, seed, names)
        missing = "math" if self.held < 4 else "flash" if protocol == "cold" else ""
        return replace(held, baselines_us={n: us for n, us in held.baselines_us.items() if n != missing})

    def kernels(self) -> Mapping[str, Sequence[str]]:
        return {"cudnn": ["fprop"], "math": ["gemm"], "triton": ["flash"]}


def test_a_baseline_that_missed_rounds_is_named(tmp_path: Path) -> None:
    """It has no standing by which a verdict is found; nor do its kernels count."""
    with Store(tmp_path / "evo.db") as store:
        study = two_trials(store, spaces_of(tmp_path / "t")["landscape"].template)
        found = confirm(study, store, Hurried(), top=2)
    assert found is not None
    assert set(found.baselines["warm"]) == {"cudnn", "flash"}
    assert found.skipped == {"flex": "does not compile", "math": MISSED_ROUNDS, "triton": MISSED_ROUNDS}
    assert list(found.kernels) == ["cudnn"]
