"""What a kernel's time for one problem says of another: by products that were timed on an H200."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
from landscape import LIMITS, PROBLEM, SPACE, TILES, write_template

from evo.gpu import KNOWN_GPUS, Limits
from evo.loop.waves import wave_factors, waves_take
from evo.space.rules import SHARED_SM
from evo.strategy import Proposal
from evo.task import load_task
from evo.template import load_template
from evo.trial import Problem

TIMED = Path(__file__).parents[1] / "benchmarks" / "results" / "gemm-shapes-h200.json"
GEMM = load_task("gemm")
WGMMA = load_template(GEMM, "gemm_wgmma")


def test_ctas_that_fit_together_take_one_round_and_others_two(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE + TILES)
    three_an_sm = 128 * (2 * LIMITS.gpu.sms + 1)
    problem = replace(PROBLEM, sizes={**PROBLEM.sizes, "H": 1, "L": three_an_sm})
    points = template.space.indices_of({**template.space.default, "rows": 128})[None, :]
    few, many, unknown = (
        waves_take(template.space, points, np.array([registers]), problem, LIMITS.gpu).tolist()
        for registers in (32, 255, 0)
    )
    assert few == unknown == [3**SHARED_SM]
    assert many == [2 * 2**SHARED_SM]
    silent = write_template(tmp_path, "silent")
    assert waves_take(silent.space, points, np.array([255]), problem, LIMITS.gpu).tolist() == [1.0]


def pairs() -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Of pairs of shapes the times of the same eight kernels or more: of the first shape, the factors, and of
    the second one. A time is in those of cuBLASLt, which took turns with it: large products are at the power
    limit, where the clock changes by a fifth from one kernel to the next."""
    times: dict[str, dict[str, float]] = {}
    for shape, found in json.loads(TIMED.read_text())["results"]["shapes"].items():
        for one in found["points"]:
            if "cublaslt" in one.get("ratio", {}):
                point = json.dumps(WGMMA.space.completed(one["point"]))
                times.setdefault(point, {})[shape] = 1 / one["ratio"]["cublaslt"]
    for there, here in permutations(sorted({shape for known in times.values() for shape in known}), 2):
        both = [point for point, known in times.items() if there in known and here in known]
        if len(both) >= 8:
            kernels = [Proposal(WGMMA.name, json.loads(point)) for point in both]
            feasible = WGMMA.space.feasible(Limits.of(KNOWN_GPUS["H200"]), problem(here))
            unknown = [None] * len(kernels)
            factors = wave_factors(kernels, unknown, problem(there), "NVIDIA H200", {WGMMA.name: feasible})
            yield [times[point][there] for point in both], factors, [times[point][here] for point in both]


def problem(shape: str) -> Problem:
    return replace(GEMM.problem(shape), dtype="bf16")


def test_products_of_another_shape_are_ordered_better_by_their_last_waves() -> None:
    """The best of the three kernels that promise most is within 2 % of the best of all, for every pair."""
    plain, corrected, regrets = [], [], []
    for there, factors, here in pairs():
        expected = [us * factor for us, factor in zip(there, factors, strict=True)]
        plain.append(rank_correlation(there, here))
        corrected.append(rank_correlation(expected, here))
        regrets.append(min(here[i] for i in np.argsort(expected)[:3]) / min(here))
    assert len(regrets) == 12
    assert np.mean(corrected) > 0.8 > np.mean(plain) + 0.15
    assert max(regrets) < 1.02


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    first, second = (np.argsort(np.argsort(values)) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def test_the_factor_of_a_template_that_is_not_there_is_one() -> None:
    kernels = [Proposal("gone", {"a": 1}), Proposal(WGMMA.name, {"a": 1})]
    feasible = WGMMA.space.feasible(Limits.of(KNOWN_GPUS["H200"]), problem("512,512,512,1"))
    assert wave_factors(kernels, [None, 64], problem("64,64,64,1"), "", {WGMMA.name: feasible}) == [1.0, 1.0]
