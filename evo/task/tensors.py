"""The tensors of a task, as its author declares them, and inputs that show mistakes.

    tensors = {
        "x": In("rows", "columns"),
        "weight": In("columns"),
        "target": In("rows", dtype="i64", between=(0, "columns")),
        "y": Out("rows", "columns"),
    }

Dimensions are names of sizes, whole numbers, or functions of the problem. Without a `dtype` a tensor is of
the problem's storage type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Literal

from evo.dtype import Dtype, dtype_named
from evo.errors import UsageError
from evo.task.traits import OUTLIER, SMALL, TRAITS, Traits
from evo.trial import Problem

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    import torch
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
"""The buffers of a task by name."""
Role = Literal["in", "out", "inout"]
Dimension = str | int | Callable[[Problem], int]
"""Of a declared tensor: a size by its name, a whole number, or what a function says of the problem."""

SEGMENT = 32
"""Elements of a tensor of one dimension that have one trait, as a row of others has."""
LARGE = 32.0
"""A factor that makes sums of 64 squares overflow fp16."""
TINY = 2.0**-13
"""A factor at which x / √(mean of x² + 1e-6) hardly depends on x. WIDER_TINY: in turns, where the type is not
fp16, which hardly holds it."""
WIDER_TINY = 2.0**-17
HUGE, HUGE_FP16 = 2.0**20, 2.0**13
"""Factors that make elements larger than fp16 holds, or where they are of it nearly so."""
VERY_TINY, VERY_TINY_FP16 = 2.0**-30, 2.0**-14
"""Factors that make them smaller than the normal numbers of fp16 are."""
FAR = {"huge": 2.0**40, "tiny": 2.0**-30}
"""What numbers of these families are multiplied by besides, but of fp16, where what a task computes of them
reaches so far: a maximum may begin at -1e9, and a number pass through an int32."""
FINEST = 5
"""Rows of the family `steps` have multiples of 1, 1/2 … 2^-FINEST, which bf16 holds."""
DRAWN_AT_ONCE = 1 << 26
"""Elements that are drawn at once, some 30 bytes each on their way; a larger tensor is drawn in parts."""
WIDE = 1000
"""Whole numbers of more than 8 bits are below this, where a task says no range."""


@dataclass(frozen=True)
class BufferSpec:
    """One buffer that a kernel reads or writes: contiguous, `shape` in elements of `dtype` (a name of
    evo.dtype). "inout": it has a content before the launch, and another one afterwards, which is judged.
    `constant`: the `__constant__` variable of the kernel's source that it is copied into before a launch."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    constant: str | None = None

    @property
    def read(self) -> bool:
        """Whether the kernel may read what it holds before the launch."""
        return self.role != "out"

    @property
    def written(self) -> bool:
        """Whether the kernel may write it."""
        return self.role != "in"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dtype_named(self.dtype).nbytes


@dataclass(frozen=True)
class DeclaredTensor:
    """A tensor of a task for any problem. `between`: the range of its values, for integers without the upper
    end; an end may be a size's name. `when`: the flag without which there is no such tensor. `gap`: the flag
    that says how many elements of others follow each row: rows then lie in a wider matrix. `constant`: the
    `__constant__` variable that holds it."""

    role: Role
    dimensions: tuple[Dimension, ...]
    dtype: str | None = None
    between: tuple[float | str, float | str] | None = None
    when: str | None = None
    gap: str | None = None
    constant: str | None = None

    def of(self, problem: Problem) -> bool:
        """Whether `problem` has it: its flag `when`, if it names one, is set."""
        return self.when is None or bool(problem[self.when])

    def buffer(self, name: str, problem: Problem) -> BufferSpec:
        """The buffer that it is for `problem`."""
        shape = tuple(_dimension(d, problem, name) for d in self.dimensions)
        if self.gap is not None:
            shape = (*shape[:-1], shape[-1] + int(problem[self.gap]))
        return BufferSpec(name, shape, self.dtype or problem.dtype, self.role, self.constant)

    def range_of(self, problem: Problem) -> tuple[float, float] | None:
        """The range of its values for `problem`; None where any number will do."""
        if self.between is None:
            return None
        low, high = (problem.sizes[end] if isinstance(end, str) else end for end in self.between)
        return low, high


def In(  # noqa: N802 - read as a type: `"x": In("rows")`
    *dimensions: Dimension,
    dtype: str | None = None,
    between: tuple[float | str, float | str] | None = None,
    when: str | None = None,
    gap: str | None = None,
    constant: str | None = None,
) -> DeclaredTensor:
    """A tensor that the kernel reads. `constant` names the `__constant__` variable of its source that evo
    writes it into before each launch: it is no argument then, unless a template's `args` name it, too."""
    return DeclaredTensor("in", dimensions, dtype, between, when, gap, constant)


def Out(  # noqa: N802
    *dimensions: Dimension, dtype: str | None = None, when: str | None = None
) -> DeclaredTensor:
    """A tensor that the kernel writes, all of it."""
    return DeclaredTensor("out", dimensions, dtype, when=when)


def InOut(  # noqa: N802
    *dimensions: Dimension,
    dtype: str | None = None,
    between: tuple[float | str, float | str] | None = None,
    when: str | None = None,
) -> DeclaredTensor:
    """A tensor that the kernel changes in place."""
    return DeclaredTensor("inout", dimensions, dtype, between, when)


def _dimension(dimension: Dimension, problem: Problem, name: str) -> int:
    if callable(dimension):
        return int(dimension(problem))
    if isinstance(dimension, str):
        if dimension not in problem.sizes:
            known = ", ".join(problem.sizes)
            raise UsageError(f"tensor {name} has a dimension {dimension}", f"sizes of the task: {known}")
        return problem.sizes[dimension]
    return int(dimension)


# ------------------------------------------------------------------------------- inputs that show mistakes

FAMILIES = {
    "normal": "N(0, 1)",
    "peaky": "one element of sixteen is 16 times as large: a lost one shows",
    "alike": "all elements of a row are equal: roundings add up, a variance is 0",
    "large": "32 times as large: squares and long sums overflow fp16",
    "small": "2^-10 times as large, none above 0: an epsilon shows, and a maximum that begins at 0",
    "spike": "one element of each row, anywhere, is far above all others",
    "huge": "2^60 times as large, at some seeds below 0, less where a task would overflow: clamps show",
    "tiny": "2^-60 times as large, less where a task would lose them: what is flushed to 0 shows",
    "steps": "multiples of 1, 1/2 … or 1/32 in a row: ties, and numbers that conditions compare with",
}
"""Families of inputs for any task, and what each is for. Of integers they are: any; mostly one value; all
equal; only the two ends of the range; near the lower end; one at the upper end, the others at the lower; any
of the type, where no range is said; near 0; any."""


MILD = ("normal", "alike", "small", "huge", "tiny", "steps")
"""Families that every tensor of a problem is of at once."""


def draw(
    declared: Mapping[str, DeclaredTensor],
    problem: Problem,
    family: str,
    seed: int,
    torch_device: str,
    mixed: bool = True,
    far: bool = False,
) -> dict[str, Tensor]:
    """Contents of all tensors that are read, of one family, drawn by the seed.

    In all families but the mild ones one tensor, which turns with the seed, is of the family and the others
    are normal; only it has large rows and outliers. Products of two would overflow the storage type.
    `mixed`: rows (of one dimension: runs of 32 elements) have traits of their own in turns, whatever the
    family is: zeros, small, large, shifted from 0, all equal, one outlier, tiny. So each case shows each
    mistake. `far`: numbers are as FAR says, and integers of all of their type.
    """
    import torch

    if family not in FAMILIES:
        raise UsageError(f"unknown input family: {family}", f"one of {', '.join(FAMILIES)}")
    rng = torch.Generator(device=torch_device).manual_seed(seed)
    found = {}
    read = [name for name, tensor in declared.items() if tensor.role != "out"]
    for number, name in enumerate(read):
        buffer, ends = declared[name].buffer(name, problem), declared[name].range_of(problem)
        kind, own = dtype_named(buffer.dtype), number == seed % len(read)
        tiny = WIDER_TINY if kind.name != "fp16" and seed // TRAITS % 2 else TINY
        traits = Traits(seed % TRAITS, own, tiny) if mixed else None
        kin = family if own or family in MILD else MILD[0]
        values = (
            partial(_floats, factor=_factor(kin, kind, far))
            if kind.floating
            else partial(_whole_numbers, far=far)
        )
        if math.prod(buffer.shape) <= DRAWN_AT_ONCE:
            found[name] = values(buffer.shape, kin, kind, ends, rng, traits).to(kind.torch)
            continue
        rows, columns = _rows_of(buffer.shape)
        parts = torch.empty(rows * columns, dtype=kind.torch, device=torch_device)
        step = max(TRAITS, DRAWN_AT_ONCE // columns // TRAITS * TRAITS)  # so that traits go on in turns
        for first in range(0, rows, step):
            some = parts[first * columns : (first + step) * columns].view(-1, columns)
            some.copy_(values(tuple(some.shape), kin, kind, ends, rng, traits))
        found[name] = parts[: math.prod(buffer.shape)].view(buffer.shape)
    return found


def same_order(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether tensors of the two shapes, of as many elements, have these in the same order: one shape has
    neighbouring dimensions of the other as one, or dimensions of size 1 besides. A transposed one has not."""
    ends, others = (set(accumulate(shape, mul)) - {1} for shape in (one, other))
    return math.prod(one) == math.prod(other) and (ends <= others or others <= ends)


def precise(inputs: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The floating-point tensors in `dtype` (fp32 or fp64; never less precise than they are), integers as
    they are."""
    import torch

    wide = dtype_named(dtype).torch
    return {
        name: x.to(torch.promote_types(x.dtype, wide)) if x.is_floating_point() else x
        for name, x in inputs.items()
    }


def _floats(
    shape: tuple[int, ...],
    family: str,
    kind: Dtype,
    ends: tuple[float, float] | None,
    rng: torch.Generator,
    traits: Traits | None,
    factor: float,
) -> Tensor:
    """Floating-point values, `factor` times as large as those of other families; without `traits` no row has
    one."""
    import torch

    count, (rows, columns) = math.prod(shape), _rows_of(shape)
    precision = torch.float64 if kind.name == "fp64" else torch.float32
    x = torch.randn((rows, columns), generator=rng, device=rng.device, dtype=precision)
    where = torch.randint(columns, (rows, 1), generator=rng, device=rng.device)
    if family == "peaky":
        x *= 1 + 15 * (torch.rand(x.shape, generator=rng, device=rng.device) < 1 / 16)
    elif family == "alike":
        x = x[:, :1].repeat(1, columns)
    elif family == "spike":
        x.scatter_(1, where, OUTLIER)
    elif family == "steps":
        x = _in_steps(x, rng)
    x *= factor
    if traits is not None:
        if family == "small" or (family == "huge" and traits.first % 3 == 0):
            x = -x.abs()
        x = traits.give(x, family, where)
    x = x.reshape(-1)[:count].reshape(shape)
    if ends is not None:
        low, high = ends
        x = (x.abs() if low >= 0 else x).clamp(low, high)
    return x


def _factor(family: str, kind: Dtype, far: bool) -> float:
    """What numbers of a family are multiplied by."""
    half = kind.name == "fp16"
    usual = {
        "large": LARGE,
        "small": SMALL,
        "huge": HUGE_FP16 if half else HUGE,
        "tiny": VERY_TINY_FP16 if half else VERY_TINY,
    }
    return usual.get(family, 1.0) * (FAR[family] if far and family in FAR and not half else 1.0)


def _in_steps(x: Tensor, rng: torch.Generator) -> Tensor:
    """The numbers, rounded to multiples of a step of each row. The largest magnitude of a row is an odd one:
    were it twice another, what is scaled by it, as int8 often is, would be rounded from a tie."""
    import torch

    step = torch.randint(FINEST + 1, (len(x), 1), generator=rng, device=x.device).neg().exp2()
    count = (x / step).round()
    top = count.abs().amax(-1, keepdim=True)
    even = (count.abs() == top) & (top % 2 == 0)
    return (count + count.sgn() * even) * step


def _whole_numbers(
    shape: tuple[int, ...],
    family: str,
    kind: Dtype,
    ends: tuple[float, float] | None,
    rng: torch.Generator,
    traits: Traits | None,
    far: bool,
) -> Tensor:
    """Whole numbers and truth values, as int64, from the lower end up to the one below the upper."""
    import torch

    count, (rows, columns) = math.prod(shape), _rows_of(shape)
    low, high = (int(end) for end in ends or _natural_range(kind, family, far))
    last = max(low, high - 1)
    x = torch.randint(low, last + 1, (rows, columns), generator=rng, device=rng.device)
    where = torch.randint(columns, (rows, 1), generator=rng, device=rng.device)
    if family == "peaky":
        x = torch.where(torch.rand(x.shape, generator=rng, device=rng.device) < 1 / 16, x, x[:1, :1])
    elif family == "alike":
        x = x[:, :1].repeat(1, columns)
    elif family == "large":
        x = torch.where(x % 2 == 0, low, last)
    elif family == "small":
        x = x.clamp(max=min(last, low + 1))
    elif family == "tiny":
        x = (x % 3 - 1).clamp(low, last)
    elif family == "spike":
        x = torch.full_like(x, low).scatter(1, where, last)
    if traits is not None:
        x = traits.give_whole(x, low, last)
    return x.reshape(-1)[:count].reshape(shape)


def _natural_range(kind: Dtype, family: str, far: bool) -> tuple[int, int]:
    """The range of a type, the upper end not in it; of one with more than 8 bits a part: in the family `huge`
    half of it, so that two can be added; if `far` all, but of 64 bits."""
    wide = 1 << (8 * kind.nbytes - (kind.nbytes == 8 or not far)) if family == "huge" else WIDE
    count = {"bool": 2}.get(kind.kind, 256 if kind.nbytes == 1 else wide)
    return (-count // 2, count // 2) if kind.kind == "int" else (0, count)


def _rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns that traits are given to: for one dimension runs of SEGMENT elements."""
    count = max(1, math.prod(shape))
    columns = shape[-1] if len(shape) > 1 and shape[-1] > 1 else min(SEGMENT, count)
    return -(-count // columns), columns
