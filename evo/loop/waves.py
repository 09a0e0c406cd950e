"""What a kernel's time for one problem says of its time for another: how well its CTAs fill the SMs."""

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
    kernels: Sequence[Kernel], there: Problem, gpu: str, spaces: Mapping[str, FeasibleSet]
) -> list[float]:
    """By what the time of each kernel for the problem `there`, on the GPU of that name, is multiplied before
    it is compared with the others: how many times as long its last wave of CTAs takes here. 1 where its
    template does not say how many CTAs it launches, or is not among the `spaces` of the problem here."""
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
        before = last_wave(feasible.space, points, there, known_gpu(gpu) or own)
        here = last_wave(feasible.space, points, feasible.problem, own)
        for i, factor in zip(located, (here / before).tolist(), strict=True):
            factors[i] = factor
    return factors


def last_wave(space: Space, points: Indices, problem: Problem, gpu: Gpu) -> npt.NDArray[np.float64]:
    """How many times as long a launch takes as if its CTAs filled the SMs to the end, for `points`
    (n, parameters): with 133 CTAs on 132 SMs it takes as long as with 264."""
    waves = None
    if space.models is not None:
        with suppress(Exception):  # a template's model at a problem that it was not asked about yet
            waves = space.models.waves(space.columns(points), problem, gpu)
    if waves is None:
        return np.ones(len(points))
    return np.broadcast_to(np.ceil(waves) / waves, len(points))
