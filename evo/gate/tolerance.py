"""The numbers: is an output the reference, but for the rounding that an honest kernel has too?

Two rules, both must hold for every row and element of every case:

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evo.errors import Red

if TYPE_CHECKING:
    from torch import Tensor

ROW_FACTOR = 1.75
ELEMENT_FACTOR = 1.5
ROW_FLOOR = 1.0
SMALL_FLOOR = 1.5
ELEMENT_FLOOR = 2.0
"""Units of rounding (2^-11 in fp16, 2^-8 in bf16) that every kernel may have; more where a case has so few
rows that the honest computation may happen to be exact. There its elements may have some too."""
SMALL_ROWS = 64


@dataclass(frozen=True)
class Judgement:
    """What was measured on one output: the worst row's relative error and its line; the same by element."""

    row_error: float
    row_limit: float
    element_error: float
    element_limit: float

    @property
    def within(self) -> bool:
        """Whether both errors are numbers, and within their limits."""
        return self.row_error <= self.row_limit and self.element_error <= self.element_limit


@dataclass(frozen=True)
class Line:
    """What an output must be: the reference (fp64), the lengths of its rows, and the two limits (of no
    dimension). All on the device of the reference."""

    reference: Tensor
    lengths: Tensor
    row_limit: Tensor
    element_limit: Tensor

    def wipe(self) -> None:
        """Leaves no answer in memory where the next kernel could find it."""
        self.reference.fill_(math.nan)


def line_of(reference: Tensor, honest: Tensor) -> Line:
    """The line for outputs that should be `reference` (fp64), drawn from the errors of `honest`, which is of
    the storage type; both of one shape, rows last. Starts work on their device and does not wait for it."""
    import torch

    norm = torch.linalg.vector_norm
    drift = honest - reference
    length = norm(reference, dim=-1)
    # a row of zeros has no relative error: hold it to the size of the others
    length = torch.maximum(length, length.mean() * 1e-3 + torch.finfo(torch.float32).tiny)
    unit = torch.finfo(honest.dtype).eps / 2
    few = length.numel() < SMALL_ROWS
    floor = SMALL_FLOOR if few else ROW_FLOOR
    row_limit = ((norm(drift, dim=-1) / length).max() * ROW_FACTOR).clamp_min(floor * unit)
    spacing = (reference.to(honest.dtype) + 0.3 - 0.3 - reference).abs().max()
    element_limit = (drift.abs().max() + spacing) * ELEMENT_FACTOR
    if few:
        element_limit = torch.maximum(element_limit, reference.abs().max() * (ELEMENT_FLOOR * unit))
    return Line(reference, length, row_limit, element_limit)


def errors_of(out: Tensor, line: Line) -> Tensor:
    """(4,): the worst row error and its limit, the worst element error and its limit; does not wait."""
    import torch

    difference = out - line.reference
    rows = torch.linalg.vector_norm(difference, dim=-1) / line.lengths
    return torch.stack((rows.max(), line.row_limit, difference.abs().max(), line.element_limit))


def judge(name: str, out: Tensor, reference: Tensor, honest: Tensor) -> Judgement:
    """Raises Red unless `out` is `reference` (fp64) but for rounding; all of one shape, rows last.

    `honest` is of the storage type. The Red's `where` is the first wrong element of the output `name`."""
    line = line_of(reference, honest)
    found = Judgement(*errors_of(out, line).tolist())
    if not found.within:
        refuse(name, out, line, found)
    return found


def refuse(name: str, out: Tensor, line: Line, found: Judgement) -> None:
    """Raises Red with the place where `out` is beyond its limits, which were `found` to be broken."""
    reference = line.reference
    refuse_nonfinite(name, out, reference)
    difference = out.double() - reference
    rows = difference.norm(dim=-1) / line.lengths
    if found.row_error > found.row_limit:
        wrong = rows > found.row_limit
        row = _first(wrong)
        at = (*row, int(difference[row].abs().argmax()))
        worst = f"the worst at {found.row_error:.3g} (line {found.row_limit:.3g})"
        count = f"{int(wrong.sum())} of {wrong.numel()}"
        detail = f"{count} rows beyond the line, {worst}; {_there(at, out, reference)}"
        raise Wrong("row error", detail, f"{name}{list(at)}", found)
    if found.element_error > found.element_limit:
        wrong = difference.abs() > found.element_limit
        at = _first(wrong)
        worst = f"the worst off by {found.element_error:.3g} (line {found.element_limit:.3g})"
        detail = f"{int(wrong.sum())} elements beyond the line, {worst}; {_there(at, out, reference)}"
        raise Wrong("element error", detail, f"{name}{list(at)}", found)


def refuse_nonfinite(name: str, out: Tensor, reference: Tensor) -> None:
    """Raises Red where `out` is NaN or infinite: neither is a wildcard."""
    for what, bad in (("NaN", out.isnan()), ("Inf", out.isinf())):
        if bad.any():
            at = _first(bad)
            detail = f"{int(bad.sum())} of {bad.numel()} elements; {_there(at, out, reference)}"
            raise Wrong(f"{what} in the output", detail, f"{name}{list(at)}", None)


class Wrong(Red):
    """A Red with what was measured, where numbers could be."""

    def __init__(self, reason: str, detail: str, where: str, found: Judgement | None) -> None:
        super().__init__(reason, detail, where)
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:
        return Red, (self.reason, self.detail, self.where, self.errors)


def _there(at: tuple[int, ...], out: Tensor, reference: Tensor) -> str:
    return f"there {float(out[at]):.6g} instead of {float(reference[at]):.6g}"


def _first(wrong: Tensor) -> tuple[int, ...]:
    """The index of the first True."""
    return tuple(int(i) for i in wrong.nonzero()[0])
