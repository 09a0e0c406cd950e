"""y = softmax(x), or its logarithm, of each row.

x, y: (rows, columns), fp16, bf16 or fp32. Rows of x may have a gap between them. An element of -inf has the
weight 0, exactly (its logarithm is -inf), and does not disturb its row. A row of -inf alone has no softmax:
it is NaN, as torch says it, and no other row is disturbed. Of NaN and +inf nothing is promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.dtype import dtype_named
from evo.task import Baseline, DeclaredTensor, Flag, In, Out, Relation, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "row_task.py")
_baselines = load_module(Path(__file__).with_name("baselines.py"))


class Softmax(_row.RowTask):  # type: ignore[name-defined, misc]
    """The families of evo.task.tensors suit it: `large` shows exponentials without the maximum, `spike` a
    maximum or a sum that overlooks an element, `alike` and `small` a sum that is off, `normal` a lost
    tail."""

    name = "softmax"
    outliers = 1
    far_below = 100.0  # all exponentials are 0 there, but of what is relative to the maximum
    summed = ()
    flags: Mapping[str, Flag] = {
        "log": Flag(meaning="The logarithm of the softmax."),
        "gap": _row.GAP,
    }
    tensors: Mapping[str, DeclaredTensor] = {
        "x": In("rows", "columns", gap="gap"),
        "y": Out("rows", "columns"),
    }
    packages = _baselines.DISTRIBUTIONS

    @property
    def problems(self) -> Mapping[str, tuple[Problem, ...]]:
        """QuACK's figure, scores of a few rows, and problems 23 and 24 of KernelBench's level 1."""
        at = self.problem_of
        wide = (4096, 393216)
        return {
            "quack": tuple(at(*shape) for shape in (_row.QUACK[2], *_row.QUACK)),
            "decoding": tuple(at(r, c) for r in _row.DECODING_ROWS for c in (32768, 131072)),
            "kernelbench": (at(*wide, "fp32"), at(*wide, "fp32", log=True)),
        }

    def compute(self, problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
        x = self.x(problem, inputs)
        return x.log_softmax(-1) if problem["log"] else x.softmax(-1)

    def honest(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """In fp32, of inputs that are two units off, and with sums that are `SUM_UNITS` off: the terms are
        positive, so that a chain of n additions is off by n / 2 units at most."""
        found: dict[str, Tensor] = super().honest(problem, inputs)
        exact = self.reference(problem, inputs)["y"]
        share = _row.SUM_UNITS * 2.0**-24
        seeming = exact - share if problem["log"] else exact * (1 - share)
        y = seeming.to(dtype_named(problem.dtype).torch)
        farther = (y.double() - exact).abs() > (found["y"].double() - exact).abs()
        return {"y": found["y"].where(~farther, y)}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:
        """columns    they may come in any order
        rows apart  also from a row of -inf
        masked      with some elements at -inf the others share all weight: every second one, the end of a
                    row, its beginning. In fp32, whose exponentials are off by more than a relation allows, to
                    the units of bf16"""

        def mask(y: Tensor) -> Tensor:
            import torch

            columns = torch.arange(problem["columns"], device=y.device)
            middle = problem["columns"] // 2
            kinds = torch.stack((columns % 2 == 1, columns > middle, columns < middle))
            return kinds[torch.arange(problem["rows"], device=y.device) % len(kinds)]

        def masked(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            x = inputs["x"].clone()
            own = self.x(problem, {"x": x})
            own.masked_fill_(mask(own), -math.inf)
            return {**inputs, "x": x}

        def shared(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            y = outputs["y"].double()
            logarithms = y if problem["log"] else y.log()
            left = logarithms.masked_fill(mask(y), -math.inf)
            total = left.logsumexp(-1, keepdim=True)
            found = (left - total) if problem["log"] else (left - total).exp()
            unit = dtype_named("bf16" if problem.dtype == "fp32" else problem.dtype).torch
            return {"y": found.where(total > math.log(1e-3), math.nan).to(unit)}

        found = (*super().relations(problem), _row.one_row(-math.inf, ("y",)))
        if problem["columns"] < 3:  # of one that is left the logarithm is 0: no line is relative to that
            return found
        return (*found, Relation("masked", masked, shared, infinite=bool(problem["log"])))

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem)
        return found | (_baselines.patient(problem) if patient and torch_device != "cpu" else {})


TASK = Softmax()
