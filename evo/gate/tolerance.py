"""The numbers: is an output the reference, but for the rounding that an honest kernel has too?

Two rules, both must hold for every row and element of every case; of a vector SEGMENT elements are a row:

- **row error**: ‖out − ref‖ / ‖ref‖ of the worst row is at most 1.75 × that of an honest computation of the
  same inputs, and never held below 1 unit of rounding (1.5 for a few rows). Measured on emulated kernels:
  honest ones (tiles of 16 and 64 keys, P rounded or not) are at most at 0.68 of this line in 54,585
  judgements (fp16 and bf16, D 32 to 128, L 1 to 317, causal and not, seven input families). In fp16 on normal
  inputs a scale that is 2 % off is at 50 × the line, one padding key at 2 to 20 ×, P in fp8 at 45 ×.
- **element error**: max|out − ref| ≤ 1.5 (max|honest − ref| + max|ref + 0.3 − 0.3 − ref|), where the tests of
  FlashAttention allow a factor of 2. The same honest kernels stay at 0.5 of it. It sees a single wrong
  element that the norm of a long row hides. Where there are few rows, 2 units of rounding of their largest
  element are always allowed: one of a weight that is not exactly 1, one of the result. Without that 29 of 337
  kernels that take exponentials as if all maxima were 0 were refused at one key, where the honest computation
  is exact, for one unit in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evo.errors import Red
from evo.task import Relation, Tensors, Tolerance
from evo.task.tensors import SEGMENT

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT = Tolerance()
NEAR_ELEMENTS = 1 << 22
"""Elements of a wrong output that are looked at on the host: a GPU would have to answer a dozen times."""
LEAST_ROW, LEAST_RUN = 1e-3, 0.1
"""Rows that are shorter than so much of their mean are held to that; the same of runs of a vector, which a
task calls no rows: of its smallest elements it promises nothing."""
ROUNDINGS = 4
"""Units of rounding are so many times as large where arithmetic is no more precise than storage (fp32, fp64):
a softmax of equal numbers is off by the roundings of its exponentials, its sum and its quotient."""


Place = Callable[[str, tuple[int, ...]], str]
"""Says of an element of an output (its name, the index) where it is."""


def _at(name: str, at: tuple[int, ...]) -> str:
    return f"{name}{list(at)}"


@dataclass(frozen=True)
class Errors:
    """What was measured on one output: the worst row's relative error and its line; the same by element."""

    row_error: float
    row_limit: float
    element_error: float
    element_limit: float

    @property
    def within(self) -> bool:
        """Whether both errors are within their limits, and all are numbers: a limit that is infinite allows
        nothing."""
        return (
            self.row_error <= self.row_limit < math.inf
            and self.element_error <= self.element_limit < math.inf
        )


@dataclass(frozen=True)
class Expected:
    """What an output must be: the reference (fp64), and the lengths of its rows."""

    reference: Tensor
    lengths: Tensor

    def wipe(self) -> None:
        """Leaves no answer in memory where the next kernel could find it."""
        wipe(self.reference)


@dataclass(frozen=True)
class ErrorLimits(Expected):
    """The same with the two limits (of no dimension). All on the device of the reference."""

    row_limit: Tensor
    element_limit: Tensor
    honest: Tensor | None = None
    """Integers that are as right as those of the reference: numbers that were rounded to them in fp32 may lie
    on the other side of a tie."""

    def wipe(self) -> None:
        super().wipe()
        if self.honest is not None:
            wipe(self.honest)


def wipe(answer: Tensor) -> None:
    """Leaves nothing of an answer in memory that is given back."""
    answer.fill_(math.nan if answer.is_floating_point() else -1)


def expected_of(reference: Tensor) -> Expected:
    """The reference (fp64, or integers) with the lengths of its rows; does not wait."""
    import torch

    reference = as_numbers(reference)
    rows = in_rows(reference)
    if not reference.is_floating_point():
        return Expected(reference, torch.ones_like(rows.sum(-1), dtype=torch.float64))
    length = torch.linalg.vector_norm(rows, dim=-1)
    # a row of zeros has no relative error: hold it to the size of the others
    least = length.mean() * (LEAST_ROW if rows is reference else LEAST_RUN) + torch.finfo(torch.float32).tiny
    return Expected(reference, torch.maximum(length, least))


def limits_of(reference: Tensor, honest: Tensor, tolerance: Tolerance = DEFAULT) -> ErrorLimits:
    """The line for outputs that should be `reference` (fp64), drawn from the errors of `honest`, which is of
    the storage type; both of one shape, rows last. Integers must be exact. Starts work on their device and
    does not wait for it."""
    import torch

    expected, norm = expected_of(reference), torch.linalg.vector_norm
    length = expected.lengths
    if not honest.is_floating_point():
        nothing = torch.zeros((), dtype=torch.float64, device=reference.device)
        return ErrorLimits(expected.reference, length, nothing, nothing, as_numbers(honest).clone())
    drift = honest - reference
    storage = torch.finfo(honest.dtype)
    unit = storage.eps / 2 * (ROUNDINGS if storage.bits >= 32 else 1)
    few = length.numel() < tolerance.few_rows
    floor = tolerance.few_rows_floor if few else tolerance.row_floor
    row_limit = ((norm(in_rows(drift), dim=-1) / length).max() * tolerance.row_factor).clamp_min(floor * unit)
    spacing = _largest(reference.to(honest.dtype) + 0.3 - 0.3 - reference)
    element_limit = (_largest(drift) + spacing) * tolerance.element_factor
    if few:
        floor = _largest(reference) * (tolerance.element_floor * unit)
        element_limit = torch.maximum(element_limit, floor)
    return ErrorLimits(reference, length, row_limit, element_limit)


def _largest(x: Tensor) -> Tensor:
    """The largest magnitude, in one operation; NaN where there is one."""
    import torch

    return torch.linalg.vector_norm(x, ord=math.inf)


def in_rows(x: Tensor) -> Tensor:
    """What is judged by rows: a vector as runs of SEGMENT elements, the last one with zeros; anything else as
    it is. In one long row an element that is far above the others would hide that they are wrong."""
    import torch

    if x.dim() != 1 or x.numel() <= SEGMENT:
        return x
    return torch.nn.functional.pad(x, (0, -x.numel() % SEGMENT)).view(-1, SEGMENT)


def as_numbers(out: Tensor) -> Tensor:
    """An output as it is compared: truth values by their bytes, which are 0 or 1, and unsigned numbers, for
    which torch has few operations, as int64."""
    import torch

    if out.dtype == torch.bool:
        return out.view(torch.uint8)
    return out.long() if out.dtype in (torch.uint16, torch.uint32, torch.uint64) else out


def off_by(out: Tensor, limits: ErrorLimits) -> Tensor:
    """How far each element is off, fp64; of integers whether it is (0 or 1)."""
    if out.is_floating_point():
        return out - limits.reference
    numbers = as_numbers(out)
    wrong = numbers != limits.reference
    return (wrong if limits.honest is None else wrong & (numbers != limits.honest)).double()


def errors_of(out: Tensor, limits: ErrorLimits) -> Tensor:
    """(4,): the worst row error and its limit, the worst element error and its limit; does not wait."""
    import torch

    difference = off_by(out, limits)
    rows = torch.linalg.vector_norm(in_rows(difference), dim=-1) / limits.lengths
    return torch.stack((rows.max(), limits.row_limit, _largest(difference), limits.element_limit))


def compare(
    name: str, out: Tensor, reference: Tensor, honest: Tensor, tolerance: Tolerance = DEFAULT
) -> Errors:
    """Raises Red unless `out` is `reference` (fp64) but for rounding; all of one shape, rows last.

    `honest` is of the storage type. The Red's `where` is the first wrong element of the output `name`."""
    limits = limits_of(reference, honest, tolerance)
    found = Errors(*errors_of(out, limits).tolist())
    if not found.within:
        refuse(name, out, limits, found)
    return found


def refuse(name: str, out: Tensor, expected: Expected, found: Errors, place: Place = _at) -> None:
    """Raises Red with the place where `out` is beyond its limits, which were `found` to be broken."""
    reference, lengths = expected.reference, expected.lengths
    if out.is_cuda and out.numel() <= NEAR_ELEMENTS:
        out, reference, lengths = (tensor.cpu() for tensor in (out, reference, lengths))
    refuse_nonfinite(name, out, reference, place)
    if not (found.row_limit < math.inf and found.element_limit < math.inf):
        raise Wrong("no limit", "the honest output overflows its storage type: milder inputs", name, None)
    if not out.is_floating_point():
        out = as_numbers(out)
        wrong = out != reference
        at = _first(wrong)
        detail = f"{int(wrong.sum())} of {wrong.numel()} elements; {_there(at, out, reference)}"
        raise Wrong("wrong integer", detail, place(name, at), found)
    difference = out.double() - reference
    rows = in_rows(difference).norm(dim=-1) / lengths
    if found.row_error > found.row_limit:
        wrong = (rows > found.row_limit) | (rows == rows.max())  # sums in another order may round down
        row = _first(wrong)
        at = (*row, int(in_rows(difference)[row].abs().argmax()))
        at = at if len(at) == difference.dim() else (at[0] * SEGMENT + at[1],)
        worst = f"the worst at {found.row_error:.3g} (line {found.row_limit:.3g})"
        count = f"{int(wrong.sum())} of {wrong.numel()}"
        detail = f"{count} rows beyond the line, {worst}; {_there(at, out, reference)}"
        raise Wrong("row error", detail, place(name, at), found)
    if found.element_error > found.element_limit:
        wrong = difference.abs() > found.element_limit
        at = _first(wrong)
        worst = f"the worst off by {found.element_error:.3g} (line {found.element_limit:.3g})"
        detail = f"{int(wrong.sum())} elements beyond the line, {worst}; {_there(at, out, reference)}"
        raise Wrong("element error", detail, place(name, at), found)


def refuse_nonfinite(name: str, out: Tensor, reference: Tensor | None = None, place: Place = _at) -> None:
    """Raises Red where `out` is NaN or infinite: neither is a wildcard."""
    if not out.is_floating_point():
        return
    for what, find in (("NaN", out.isnan), ("Inf", out.isinf)):
        bad = find()
        if bad.any():
            at = _first(bad)
            there = "" if reference is None else f"; {_there(at, out, reference)}"
            detail = f"{int(bad.sum())} of {bad.numel()} elements{there}"
            raise Wrong(f"{what} in the output", detail, place(name, at), None)


def refuse_difference(first: Tensors, outputs: Tensors) -> None:
    """Raises Red unless both runs gave the same bits."""
    import torch

    for name, one in first.items():
        bits, other = (_bits(output) for output in (one, outputs[name]))
        if not torch.equal(bits, other):
            differ = (bits != other).any(-1)
            detail = f"{int(differ.sum())} of {one.numel()} elements of {name} differ between two launches"
            raise Red("runs differ", detail, _at(name, _first(differ)))


def broken(
    relation: Relation, before: Tensors, after: Tensors, tolerance: Tolerance = DEFAULT
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """By output: its name, what it is after the change and what it should be (fp64), and which rows are not
    what the relation expects of the outputs `before`."""
    import torch

    norm = torch.linalg.vector_norm
    for name, expected in relation.expected(before).items():
        out, due = after[name].double(), expected.double()
        unit = torch.finfo(expected.dtype).eps / 2 if expected.is_floating_point() else 0.0
        if relation.infinite:
            out, due = out.masked_fill(due.isinf() & (out == due), 0), due.masked_fill(due.isinf(), 0)
        # both runs may be a whole line off the truth, in opposite directions
        line = 0.0 if relation.exact else 2 * tolerance.row_factor * unit
        right = norm(out - due, dim=-1) <= line * norm(due, dim=-1)
        yield name, out, due, ~(right | expected.isnan().any(-1))


def refuse_broken(
    relation: Relation, before: Tensors, after: Tensors, tolerance: Tolerance = DEFAULT
) -> None:
    """Raises Red unless the outputs `after` a change are what the relation expects of those `before`."""
    for name, out, due, wrong in broken(relation, before, after, tolerance):
        if wrong.any():
            row = tuple(wrong.nonzero()[0].tolist())
            element = int((out[row] - due[row]).abs().nan_to_num(float("inf")).argmax())
            at = [*row, element]
            got, wanted = float(out[row][element]), float(due[row][element])
            detail = f"{int(wrong.sum())} rows, there {got:.6g} instead of {wanted:.6g}"
            raise Red(f"relation broken: {relation.name}", detail, f"{name}{at}")


def _bits(output: Tensor) -> Tensor:
    """The bytes of each element, in a last dimension of their own."""
    import torch

    return output.contiguous().view(-1).view(torch.uint8).view(*output.shape, output.element_size())


class Wrong(Red):
    """A Red with what was measured, where numbers could be."""

    def __init__(self, reason: str, detail: str, where: str, found: Errors | None) -> None:
        super().__init__(reason, detail, where)
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:
        return Red, (self.reason, self.detail, self.where, self.errors)


def _there(at: tuple[int, ...], out: Tensor, reference: Tensor) -> str:
    return f"there {float(out[at]):.6g} instead of {float(reference[at]):.6g}"


def _first(wrong: Tensor) -> tuple[int, ...]:
    """The index of the first True. It takes no memory, as a list of all of them would."""
    import numpy as np
    import torch

    first = wrong.contiguous().view(torch.uint8).flatten().argmax()
    # torch.unravel_index would import SymPy first: half a second of every process that refuses a kernel
    return tuple(int(i) for i in np.unravel_index(int(first), wrong.shape))
