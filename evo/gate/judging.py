"""The numbers: is an output the reference, but for the rounding that an honest kernel has too?

Two rules, both must hold for every row and element of every case:

- **row error**: ‖out − ref‖ / ‖ref‖ of the worst row is at most 1.75 × that of an honest computation of the
  same inputs, and never held below 1 unit of rounding (1.5 for a few rows). Measured on emulated kernels:
  honest ones (tiles of 16 and 64 keys, P rounded or not) are at most at 0.68 of this line in 54,585
  judgements (fp16 and bf16, D 32 to 128, L 1 to 317, causal and not, seven input families). In fp16 on normal
  inputs a scale that is 2 % off is at 50 × the line, one padding key at 2 to 20 ×, P in fp8 at 45 ×.
- **element error**: max|out − ref| ≤ 1.5 (max|honest − ref| + max|ref + 0.3 − 0.3 − ref|), where the tests of
  FlashAttention allow a factor of 2. The same honest kernels stay at 0.5 of it. It sees a single wrong
  element that the norm of a long row hides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evo.errors import Red

if TYPE_CHECKING:
    from torch import Tensor

ROW_FACTOR = 1.75
ELEMENT_FACTOR = 1.5
ROW_FLOOR = 1.0
SMALL_FLOOR = 1.5
"""Units of rounding (2^-11 in fp16, 2^-8 in bf16) that every kernel may have; more where a case has so few
rows that the honest computation may happen to be exact."""
SMALL_ROWS = 64


@dataclass(frozen=True)
class Judgement:
    """What was measured on one output: the worst row's relative error and its line; the same by element."""

    row_error: float
    row_limit: float
    element_error: float
    element_limit: float


def judge(name: str, out: Tensor, reference: Tensor, honest: Tensor) -> Judgement:
    """Raises Red unless `out` is `reference` (fp64) but for rounding; all of one shape, rows last.

    `honest` is of the storage type. The Red's `where` is the first wrong element of the output `name`."""
    import torch

    refuse_nonfinite(name, out, reference)
    out64 = out.double()
    difference, drift = out64 - reference, honest.double() - reference
    length = reference.norm(dim=-1)
    # a row of zeros has no relative error: hold it to the size of the others
    length = length.clamp_min(float(length.mean()) * 1e-3 + torch.finfo(torch.float32).tiny)
    rows = difference.norm(dim=-1) / length
    unit = torch.finfo(out.dtype).eps / 2
    floor = ROW_FLOOR if rows.numel() >= SMALL_ROWS else SMALL_FLOOR
    row_limit = max(ROW_FACTOR * float((drift.norm(dim=-1) / length).max()), floor * unit)
    stored = reference.to(out.dtype)
    spacing = float(((stored + 0.3 - 0.3).double() - reference).abs().max())
    element_limit = ELEMENT_FACTOR * (float(drift.abs().max()) + spacing)
    found = Judgement(float(rows.max()), row_limit, float(difference.abs().max()), element_limit)
    if found.row_error > row_limit:
        wrong = rows > row_limit
        row = _first(wrong)
        at = (*row, int(difference[row].abs().argmax()))
        worst = f"the worst at {found.row_error:.3g} (line {row_limit:.3g})"
        count = f"{int(wrong.sum())} of {wrong.numel()}"
        detail = f"{count} rows beyond the line, {worst}; {_there(at, out64, reference)}"
        raise Wrong("row error", detail, f"{name}{list(at)}", found)
    if found.element_error > element_limit:
        wrong = difference.abs() > element_limit
        at = _first(wrong)
        worst = f"the worst off by {found.element_error:.3g} (line {element_limit:.3g})"
        detail = f"{int(wrong.sum())} elements beyond the line, {worst}; {_there(at, out64, reference)}"
        raise Wrong("element error", detail, f"{name}{list(at)}", found)
    return found


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
