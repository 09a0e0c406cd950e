"""What must hold between two runs of a kernel, whatever the reference says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evo.task.tensors import DeclaredTensor, Tensors

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    from torch import Tensor


@dataclass(frozen=True)
class Relation:
    """What must hold between two runs, whatever the reference says.

    `change` gives the second run's inputs from the first's; `expected` its outputs from the first's outputs.
    Rows where `expected` is NaN, and outputs that it leaves out, are not compared. `exact`: bit for bit,
    else to rounding. `infinite`: some of what is expected is infinite, and the outputs must be so there.
    """

    name: str
    change: Callable[[Tensors], dict[str, Tensor]]
    expected: Callable[[Tensors], dict[str, Tensor]]
    exact: bool = False
    infinite: bool = False


def rows_apart(tensors: Mapping[str, DeclaredTensor]) -> Relation:
    """The relation that what one row of the inputs holds moves no bit of the other rows' outputs. Rows are
    the first dimension of the first output, and of every tensor that begins with it; the last one changes."""
    rows = next(tensor.dimensions[0] for tensor in tensors.values() if tensor.role != "in")
    shared = {name for name, tensor in tensors.items() if tensor.dimensions[:1] == (rows,)}

    def change(inputs: Tensors) -> dict[str, Tensor]:
        changed = dict(inputs)
        for name in shared & inputs.keys():
            changed[name] = inputs[name].clone()
            changed[name][-1] = inputs[name][-1].flip(-1) if inputs[name].dim() > 1 else inputs[name][0]
        return changed

    def expected(outputs: Tensors) -> dict[str, Tensor]:
        of_rows = {n: o.double() for n, o in outputs.items() if n in shared and o.dim() > 1}
        return {name: _unknown_last(output.clone()) for name, output in of_rows.items()}

    return Relation("rows apart", change, expected, exact=True)


def _unknown_last(output: Tensor) -> Tensor:
    """The output, with NaN in its last row: what it will be is not known."""
    output[-1] = math.nan
    return output
