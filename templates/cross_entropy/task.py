"""loss = log Σ exp(x) - x[label] of each row, and log Σ exp(x) as well where it is asked for.

x: (rows, columns), fp16, bf16 or fp32; labels: (rows,), i64, from 0 on; loss, lse: (rows,), fp32. Rows of x
may have a gap between them. A row whose label is -100 is ignored: its loss is 0. Other labels outside of the
columns are not allowed. An element of -inf weighs nothing; of a row of -inf alone, of NaN and +inf nothing is
promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.task import Baseline, DeclaredTensor, Flag, In, Out, Relation, Tolerance, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "row_task.py")
_baselines = load_module(Path(__file__).with_name("baselines.py"))
IGNORED = -100


class CrossEntropy(_row.RowTask):  # type: ignore[name-defined, misc]
    """The families of evo.task.tensors suit it, as they suit softmax. In each, every fifth row is ignored."""

    name = "cross_entropy"
    outliers = 1
    far_below = 100.0  # all exponentials are 0 there, but of what is relative to the maximum
    summed = ()
    flags: Mapping[str, Flag] = {
        "lse": Flag(meaning="The logarithm of the sum of exponentials is written, too."),
        "gap": _row.GAP,
    }
    tensors: Mapping[str, DeclaredTensor] = {
        "x": In("rows", "columns", gap="gap"),
        "labels": In("rows", dtype="i64", between=(0, "columns")),
        "loss": Out("rows", dtype="fp32"),
        "lse": Out("rows", dtype="fp32", when="lse"),
    }
    timing_inputs: Mapping[str, str] = {
        **_row.RowTask.timing_inputs,
        "alike": "equal elements: no maximum moves",
    }
    tolerance = Tolerance(row_floor=4, few_rows_floor=4, element_floor=6)
    """The outputs are fp32 whatever x is: a unit is 2^-24 of the largest one. A sum, its logarithm and the
    difference round to half a unit each; ex2.approx is off by two units, and few rows may have no luck."""
    packages = _baselines.DISTRIBUTIONS

    @property
    def problems(self) -> Mapping[str, tuple[Problem, ...]]:
        """QuACK's figure, and problem 95 of KernelBench's level 1."""
        at = self.problem_of
        return {
            "quack": tuple(at(*shape) for shape in (_row.QUACK[2], *_row.QUACK)),
            "kernelbench": (at(32768, 4096, "fp32"),),
        }

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        found: dict[str, Tensor] = super().inputs(problem, family, seed, torch_device)
        found["labels"][seed % 5 :: 5] = IGNORED
        return found

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """No row has a trait of its own, and none is ignored."""
        found: dict[str, Tensor] = _row.drawn(self, problem, name, seed, torch_device)
        return found

    def compute(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x, labels = self.x(problem, inputs), inputs["labels"]
        lse = x.logsumexp(-1)
        own = x.gather(-1, labels.clamp_min(0)[..., None])[..., 0]
        loss = (lse - own).where(labels != IGNORED, 0)
        return {"loss": loss, "lse": lse} if problem["lse"] else {"loss": loss}

    def nbytes(self, problem: Problem) -> int:
        """Every element, label and output once."""
        size = self.buffers(problem)[0]
        elements = size.nbytes // size.shape[1] * problem["columns"]
        return int(elements + problem["rows"] * (8 + 4 + 4 * bool(problem["lse"])))

    def relations(self, problem: Problem) -> tuple[Relation, ...]:  # noqa: ARG002
        """sure: with everything but the label at -inf the loss is 0, exactly."""

        def sure(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            own = inputs["labels"].clamp_min(0)[:, None]
            x = inputs["x"].clone().fill_(-math.inf)
            return {**inputs, "x": x.scatter(1, own, inputs["x"].gather(1, own))}

        def none(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {"loss": outputs["loss"] * 0}

        return (Relation("sure", sure, none, exact=True),)

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem, IGNORED)
        return found | (_baselines.patient(problem, IGNORED) if patient and torch_device != "cpu" else {})


TASK = CrossEntropy()
