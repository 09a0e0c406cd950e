"""Parts of K of `gemm_wgmma`: how many `splits=auto` stands for, and by which name a kernel is known."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from times import timing

from evo.gpu import Gpu, Limits, target
from evo.loop import search_spaces
from evo.loop.member import Member
from evo.loop.warm_start import earlier_trials
from evo.store import Store
from evo.strategy import Proposal
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Interval, Outcome, Trial, Value, body_of

GEMM = load_task("gemm")
WGMMA = load_template(GEMM, "gemm_wgmma")
LIMITS = Limits.of(target("sm_90a"))


@pytest.mark.parametrize("join", ["workspace", "cluster"])
def test_k_is_split_into_as_many_parts_as_fill_the_gpu_once(join: str) -> None:
    """By `splits=auto`, one kernel of a portfolio for all sizes; on fewer SMs K is split less."""

    def launched(shape: str, gpu: Gpu, **changes: Value) -> tuple[int, int]:
        template, problem = load_template(GEMM, "gemm_wgmma", gpu=gpu), GEMM.problem(shape)
        point = {**template.space.default, "join": join, "epilogue": "tma", "bn": 128, "stages": 4, **changes}
        assert template.space.why_not(point, Limits.of(gpu), problem) is None, shape
        candidate = template.candidate(point, problem)
        parts = re.search(r"kSplits = (\d);", candidate.source)
        assert parts
        return int(parts[1]), math.prod(candidate.launch.grid)

    h200, half = LIMITS.gpu, replace(LIMITS.gpu, sms=66)
    assert launched("512,512,4096,1", h200) == (4, 128)
    assert launched("512,512,4096,1", half) == (2, 64)
    assert launched("512,512,256,1", h200) == (2, 64)  # two steps each, no fewer
    assert launched("4096,4096,4096,1", h200) == (1, 2048)
    assert launched("64,128,4096,1", h200) == (8, 8)


def test_a_number_of_parts_has_one_name() -> None:
    few, many = GEMM.problem("512,512,4096,1"), GEMM.problem("4096,4096,4096,1")
    for problem, same, others in ((few, 4, (1, 2, 8)), (many, 1, ())):
        point = {**WGMMA.space.default, "bn": 128, "stages": 4, "splits": same}
        assert WGMMA.space.why_not(point, LIMITS, problem) == "splits=auto is the same kernel"
        assert WGMMA.space.with_auto(point, problem, LIMITS.gpu)["splits"] == "auto"
        for other in others:
            assert WGMMA.space.why_not({**point, "splits": other}, LIMITS, problem) is None


def test_the_gate_checks_the_parts_that_were_rendered() -> None:
    """Other sizes get the candidate's own program, not another one with as many parts as fit there."""
    problem = GEMM.problem("512,512,4096,1")
    candidate = WGMMA.candidate({**WGMMA.space.default, "bn": 128, "stages": 4}, problem)
    assert "kSplits = 4;" in candidate.source
    for shape in ("512,4096,4096,1", "33,40,64,1"):
        body, launch = WGMMA.sibling_launch(candidate, GEMM.problem(shape))
        assert body == body_of(candidate.source)
        assert launch.grid[0] % 4 == 0


def test_what_was_good_elsewhere_is_tried_by_its_name_here(tmp_path: Path) -> None:
    """4 parts are not what `auto` stands for there, and here they are."""
    there, here = GEMM.problem("1024,1024,4096,1"), GEMM.problem("512,512,4096,1")
    point = {**WGMMA.space.default, "bn": 128, "stages": 4, "splits": 4}
    named = {**point, "splits": "auto"}
    assert WGMMA.space.why_not(point, LIMITS, there) is None
    spaces = search_spaces([WGMMA], LIMITS, here)
    feasible = {name: space.feasible for name, space in spaces.items()}
    with Store(tmp_path / "evo.db") as store:
        known = store.create(Study("known", there, "cuda:0", LIMITS.gpu.name, ("gemm_wgmma",), 60.0))
        timed = timing((9.0,), 9.0, Interval(9.0, 9.0))
        store.add(known, 0, Trial(WGMMA.candidate(point, there), Outcome.GREEN, timing=timed))
        trials = earlier_trials(store, replace(known, warm_start={"known": 1}), feasible)
        one = Member(here, lambda *_: (known, spaces), spaces=spaces)
        assert one.untried([Proposal("gemm_wgmma", point)]) == [Proposal("gemm_wgmma", named)]
    assert [dict(trial.point) for trial in trials] == [named]
