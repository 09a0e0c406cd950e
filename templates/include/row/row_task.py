"""What tasks of row kernels share: sizes, gaps between rows, and which numbers of columns the gate tries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import nsmallest
from typing import TYPE_CHECKING
from zlib import crc32

from evo.task import Families, Flag, Relation, Task
from evo.task.tensors import DRAWN_AT_ONCE, draw
from evo.task.traits import OUTLIER
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

DECODING_ROWS, DECODING_COLUMNS = (1, 8, 32, 128), (2048, 4096, 8192, 16384)
PREFILL = ((2048, 4096), (2048, 16384), (8192, 8192), (32768, 4096))
QUACK = (
    (32768, 256), (32768, 1024), (32768, 4096), (32768, 16384), (32768, 65536), (16384, 131072),
    (8192, 262144),
)  # fmt: skip
"""The shapes of QuACK's figure, bf16 (media/bf16_kernel_benchmarks_single_row of Dao-AILab/quack)."""

GAP = Flag(
    default=0, values=(0, 1, 8, 64), meaning="Elements between two rows of x: it is a part of a wider matrix."
)
SUM_UNITS = 16
"""Units of fp32 that a sum of positive terms may be off: chains of 32 additions, each to one side."""
BEYOND_FP16 = 2.0**36
"""What x of the family `large` is multiplied by where its type is not fp16: a maximum may begin at -1e9. Its
squares fit fp32."""
EVERY = 512
"""Up to so many columns finalists are tried at each number; beyond it at each whole chunk, and around it."""
LONG = 4096
"""Beyond so many columns at each third whole chunk: of a power of two of threads each has the last one of
some."""
AT_ONCE = 8
"""Chunks of a row that a thread loads at once, at most, where it does not hold all of them."""
LONE_SEEDS, LONE_ELEMENTS = 8, 1 << 19
"""Seeds of a lone term that a finalist meets, at least, and elements of each that are drawn, at most."""
MANY_ROWS = 1100
"""More rows than a GPU has SMs, eight times: a persistent grid of rows takes a second turn."""


class RowTask(Task):
    """Each row of a matrix x, (rows, columns), on its own."""

    sizes = ("rows", "columns")
    dtypes = ("bf16", "fp16", "fp32")
    summed = ("columns",)
    independent_rows = True
    keeps_tensors = False
    families = Families(  # x of `large` is huge besides, and some rows of the others are tiny
        plain="normal", sharp="peaky", even="alike", lone="spike", masked="large", others=("small",)
    )
    outliers = 16
    """Of a row of the family `spike`: of so many a sum shows each. A maximum shows one."""
    far_below = 0.0
    """How far below 0 the elements of some rows of the family `large` are at least."""
    timing_inputs: Mapping[str, str] = {
        "normal": "N(0, 1), as other benchmarks have it",
        "peaky": "a few large elements, as activations of trained models have them",
    }

    def x(self, problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
        """The matrix without the gaps between its rows."""
        return inputs["x"][..., : problem["columns"]]

    def draws(
        self, problem: Problem, several: Sequence[Mapping[str, Tensor]], first: int
    ) -> list[dict[str, Tensor]]:
        """All at once, by a `compute` that does not mind another dimension in front. It calls none of the
        functions that a GPU rounds otherwise (evo.task.roundings.FUNCTIONS)."""
        import torch

        if len(several) == 1:
            alone: list[dict[str, Tensor]] = super().draws(problem, several, first)
            return alone
        stacked = {name: torch.stack([one[name] for one in several]) for name in several[0]}
        for name, tensor in self.declared(problem).items():
            if name in stacked and tensor.dimensions == ("columns",):
                stacked[name] = stacked[name].unsqueeze(1)
        found = self.compute(problem, stacked)
        if not isinstance(found, Mapping):
            return [self._named(problem, one) for one in found]
        each = zip(*found.values(), strict=True)
        return [self._named(problem, dict(zip(found, one, strict=True))) for one in each]

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Those of any task; but in the family `large` each third row of x is below 0, and all of x is beyond
        fp16 where its type is wider. In the family `spike` the outliers of x are in one column after the
        other, from row to row and from each of its seeds to the next."""
        found: dict[str, Tensor] = super().inputs(problem, family, seed, torch_device)
        turns = self._turns(problem)
        if family == self.families.lone and turns[seed % len(turns)] == "x":
            apart = self._apart(problem["columns"])
            _outliers_in_turns(found["x"], problem["columns"], apart, seed // len(turns))
        if family == "large":
            x = found["x"]
            x[-seed % 3 :: 3].abs_().add_(self.far_below).neg_()
            if problem.dtype != "fp16":
                # of a row of equal elements the rounding of its mean would be all that is left of a large one
                unlike = x.amax(-1, keepdim=True) > x.amin(-1, keepdim=True)
                x.mul_(unlike.to(x.dtype).mul_(BEYOND_FP16).clamp_min_(1))
        return found

    def _turns(self, problem: Problem) -> list[str]:
        """The tensors that are read, but integers: with the seed another one has the outliers."""
        declared = self.declared(problem).items()
        return [name for name, tensor in declared if tensor.role != "out" and tensor.dtype is None]

    def _apart(self, columns: int) -> int:
        """From one outlier of a row to the next; no power of two, as what a kernel exchanges by mistake may
        be apart."""
        return columns // max(1, min(self.outliers, columns // 4)) | 1

    def problem_of(self, rows: int, columns: int, dtype: str = "bf16", **flags: bool | int) -> Problem:
        chosen = {name: flags.get(name, flag.default) for name, flag in self.flags.items()}
        return Problem(self.name, {"rows": rows, "columns": columns}, dtype, chosen)

    def nbytes(self, problem: Problem) -> int:
        """Every row is read and written once; what lies between rows is not."""
        gap = problem["rows"] * problem["gap"] * self.buffers(problem)[0].nbytes
        return super().nbytes(problem) - gap // (problem["rows"] * (problem["columns"] + problem["gap"]))

    def share(self, problem: Problem, part: float) -> Problem:
        """Fewer rows."""
        return problem.replace(rows=max(1, min(problem["rows"], round(part * problem["rows"]))))

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Three rows, which share sectors of 32 bytes where their columns are odd, and numbers of columns
        around each tile, never more than the problem's own: a kernel may have no registers for them. Whole
        chunks and broken ones."""
        own, chunk, high = problem["columns"], *_low_and_high(problem, tiles)
        around = [
            high + 1,
            chunk - 1,
            1,
            high + chunk,
            2 * high + 1,
            high - chunk,
            high,
            2 * high,
            chunk,
            own,
        ]
        around += [chunk + 1, 2 * high - chunk, high - 1, 2 * high - 1, own - 1]
        columns = dict.fromkeys(c for c in around if 0 < c <= min(own, 4 * high))
        found = [problem.replace(rows=3, columns=c) for c in columns]
        last = next(iter(columns))
        return (*found, *(problem.replace(rows=rows, columns=last) for rows in (1, 2, 5)))

    def related_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Whole chunks, as many as all threads load at once: a kernel has other code for those than for what
        `gate_problems` begin with."""
        own, _, high = problem["columns"], *_low_and_high(problem, tiles)
        return (problem.replace(rows=3, columns=min(own, AT_ONCE * high)),)

    def lone_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Besides all of `gate_problems` two long ones, of whole chunks and not, with so many rows that each
        column is the lone one of some: a sum that overlooks one column is right wherever that is small."""
        own, _, high = problem["columns"], *_low_and_high(problem, tiles)
        most, turns = min(own, 4 * high), len(self._turns(problem))
        found = [*self.gate_problems(problem, tiles)]
        for columns in (most, most - 1):
            if columns:
                needed = -(-self._apart(columns) * turns // LONE_SEEDS)
                rows = max(2, min(needed, LONE_ELEMENTS // columns))
                found.append(problem.replace(rows=rows | 1, columns=columns))
        return tuple(found)

    def piece_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """More rows than CTAs of a persistent grid, of a few columns, and rows for several teams of a CTA."""
        own, chunk, high = problem["columns"], *_low_and_high(problem, tiles)
        few = min(own, max(chunk, 40 // chunk * chunk))
        some = problem.replace(rows=37, columns=min(own, high + chunk, 512))
        return (problem.replace(rows=MANY_ROWS, columns=few), some)

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        """Two rows of every number of columns up to two steps of the CTA; beyond EVERY those that are whole
        chunks, beyond LONG each third of these, and those around each eighth one."""
        own, chunk, high = problem["columns"], *_low_and_high(problem, tiles)
        columns = {*_ragged_columns(own, chunk, high)}
        if far:
            columns |= {own - 1, own - chunk, own // 2 + 1, own} - {0}
        return tuple(problem.replace(rows=2, columns=c) for c in sorted(columns))

    def some_ragged(
        self,
        problem: Problem,
        tiles: Sequence[int],
        count: int,
        seed: int,
        deep: bool,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        """Half of them whole chunks, half of them not: a kernel has other code for those."""
        chosen = _some_columns(problem["columns"], *_low_and_high(problem, tiles), count // 2, seed)
        return tuple(problem.replace(rows=2, columns=c) for c in chosen)


def one_row(value: float, names: Sequence[str]) -> Relation:
    """The relation that a last row of `value` moves no bit of the other rows of the outputs `names`."""

    def change(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"].clone()
        x[-1] = value
        return {**inputs, "x": x}

    def expected(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {name: outputs[name].double().clone() for name in names}
        for output in found.values():
            output[-1] = math.nan
        return found

    return Relation(f"a row of {value}", change, expected, exact=True)


def drawn(task: Task, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
    """A timing input: a family without rows that have traits of their own."""
    return draw(task.declared(problem), problem, name, seed, torch_device, mixed=False)


@lru_cache(maxsize=64)
def _ragged_columns(own: int, chunk: int, high: int) -> tuple[int, ...]:
    most = min(own, 2 * high)
    columns = {*range(1, min(EVERY, most) + 1), *range(chunk, min(LONG, most) + 1, chunk)}
    columns |= {c for c in range(3 * chunk, most + 1, 3 * chunk) if c > LONG}
    columns |= {c + off for c in range(8 * chunk, most, 8 * chunk) for off in (-1, 1)}
    return tuple(sorted(columns))


@lru_cache(maxsize=1024)
def _some_columns(own: int, chunk: int, high: int, count: int, seed: int) -> tuple[int, ...]:
    """So many whole chunks and so many others, drawn by ranks that a number of columns has whatever the tiles
    are: candidates with other tiles meet many of the same problems, whose memories are kept."""
    every = _ragged_columns(own, chunk, high)
    kinds = [c for c in every if c % chunk == 0], [c for c in every if c % chunk]
    drawn = [nsmallest(count, kind, key=lambda c: crc32(f"{seed} {c}".encode())) for kind in kinds]
    return tuple(sorted(c for kind in drawn for c in kind))


def _outliers_in_turns(x: Tensor, columns: int, apart: int, turn: int) -> None:
    """Puts outliers into each row of x instead of the one that it has, or not: from a column on, which is the
    next one in the next row, and after all rows in the next turn. One more, where rows are even: else a row
    of a CTA would meet every other column only."""
    import torch

    rows = len(x)
    first = (turn * (rows | 1) + torch.arange(rows, device=x.device)[:, None]) % columns
    there = (first + torch.arange(0, columns, apart, device=x.device)) % columns
    parts = x.split(max(1, DRAWN_AT_ONCE // x.shape[1]))
    here = torch.cat([part.abs().argmax(-1, keepdim=True) for part in parts])
    x.scatter_(1, here, x.gather(1, first)).scatter_(1, there, OUTLIER)


def _low_and_high(problem: Problem, tiles: Sequence[int]) -> tuple[int, int]:
    """Elements of a chunk, and columns that all threads of a row take at once."""
    known = sorted({int(t) for t in tiles if t > 0}) or [1, 256]
    return min(known[0], problem["columns"]), min(known[-1], problem["columns"])
