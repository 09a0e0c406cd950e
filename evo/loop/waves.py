"""What a kernel's time for one problem says of its time for another: how its CTAs fill the SMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from evo.gpu import Gpu, known_gpu
from evo.space import FeasibleSet, Indices, Space
from evo.trial import Point, Problem


class Kernel(Protocol):
    """A point of a template: a trial, or a proposal."""

    @property
    def template(self) -> str: ...
    @property
    def point(self) -> Point: ...


def wave_factors(
    kernels: Sequence[Kernel],
    registers: Sequence[int | None],
    there: Problem,
    gpu: str,
    spaces: Mapping[str, FeasibleSet],
) -> list[float]:
    """By what the time of each kernel for the problem `there`, on the GPU of that name, is multiplied before
    it is compared with the others: how many times as long its waves of CTAs take here. 1 where its template
    does not say how many CTAs it launches, or is not among the `spaces` of the problem here. `registers` a
    thread of each; None: not known."""
    factors = [1.0] * len(kernels)
    for template, feasible in spaces.items():
        located = {
            i: at
            for i, kernel in enumerate(kernels)
            if kernel.template == template and (at := feasible.space.located(kernel.point)) is not None
        }
        if not located:
            continue
        points, own = np.stack(list(located.values())), feasible.limits.gpu
        counts = np.array([registers[i] or 0 for i in located])
        before = waves_take(feasible.space, points, counts, there, known_gpu(gpu) or own)
        here = waves_take(feasible.space, points, counts, feasible.problem, own)
        for i, factor in zip(located, (here / before).tolist(), strict=True):
            factors[i] = factor
    return factors


def waves_take(
    space: Space, points: Indices, registers: npt.NDArray[np.int64], problem: Problem, gpu: Gpu
) -> npt.NDArray[np.float64]:
    """How many times as long a launch takes as one CTA that has an SM alone, for `points` (n, parameters)
    with so many `registers` a thread (n,): 133 CTAs on 132 SMs take two rounds where one fits on an SM, and
    one round in which two share an SM where two fit."""
    filled = None
    if space.models is not None:
        with suppress(Exception):  # a template's model at a problem that it was not asked about yet
            filled = space.models.occupancy(space.columns(points, problem, gpu), problem, gpu, registers)
    return np.ones(len(points)) if filled is None else np.broadcast_to(filled.duration, len(points))
