"""The input families of the product, and what it is timed on.

    normal      N(0, 1): the plain case
    peaky       one element of sixteen is 16 times as large: a term that is lost or twice there shows
    offset      A and B far from 0, of one sign: sums grow with every term, roundings add up, and whatever is
                read beyond the end of a row or of a matrix counts
    growing     terms grow from 1/8 to 8 along K: the last ones carry the sum, and a lost tail shows
    cancelling  the second half of K takes away what the first has given, but for a 32nd: sums on the way are
                large, results small, and a sum that is rounded on its way to 16 bits shows
    large       the same with sums of about 10^5: they overflow fp16, results do not, unless C is wider: then
                they do, too, in turns of either sign. One factor of each term is far larger than the other;
                with bf16 A is beyond fp16
    subnormal   one factor of each term, A's and B's in turns, is below the normal numbers of fp16, with bf16
                below all of fp16, and so are results where C is wider
    huge        one element of each row of A, anywhere, is 300: overlooking one term shows
    integers    -4 to 4: sums are exact in fp32, in any order
    zeros       A is 0: C is 0, or what the epilogue makes of it. B is N(0, 1)

All inputs are finite. Of NaN and infinity nothing is promised. Gaps between rows hold elements of the same
kind. Factors depend on K alone, so that sums fit fp16 at every K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import Relation
from evo.trial import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

HUGE = 300.0
OFFSET = 2.0
LARGEST_SUM = 8192.0
"""What sums of the families `offset` and `growing` are about, where K is long, and in fp16 those of timing
inputs."""
WIDEST = {"fp16": 4, "bf16": 8}
"""The largest exponent of the timing input `wide`: fp16 must hold each product and their sum."""
PASSING_SUM = 1e5
"""What sums of the family `large` are about on their way."""
LEFT = 1 / 32
"""Of the family `cancelling` the part that is not taken away."""
APART = 2.0**6
"""Of the family `large` what A is multiplied by and B divided by, or the other way round."""
BEYOND = 2.0**16
"""What A of bf16 is multiplied by besides: fp16 does not hold it."""
TINY = {"fp16": (2.0**-16, 2.0**4), "bf16": (2.0**-60, 2.0**20)}
"""What the two factors of a term of the family `subnormal` are multiplied by. TINY_WIDE: the larger one of
fp16 where C is fp32."""
TINY_WIDE = 2.0**-6
FAR_SCALES = {"integers": -0.5, "large": -0.5, "subnormal": 48.0, "offset": 0.003}
"""Scales of some families, besides SCALES."""
BESIDE_LARGE = 4096.0
"""What a bias or a residual of the family `large` is multiplied by: it is about as large as sums are."""
SCALES = (0.375, -1.5, 3.0, -0.625, 1.25, -0.125, 0.75)
"""Of both signs, on both sides of 1; SCALE_OFF: and none that 16 bits hold."""
SCALE_OFF = 1 + 1 / 5000
WHOLE = 4
"""The largest of the family `integers`."""

Range = tuple[float, float]
RANGES: Mapping[str, Mapping[str, Range]] = {
    "normal": {"a": (0, 8), "b": (0, 8), "c": (0, 6e4)},
    "peaky": {"a": (0, 128), "b": (0, 128), "c": (0, 6e4)},
    "offset": {"a": (1, 3), "b": (0, 3), "c": (0, 6e4)},
    "growing": {"a": (0, 64), "b": (0, 8), "c": (0, 6e4)},
    "cancelling": {"a": (0, 8), "b": (0, 8), "c": (0, 6e4)},
    "large": {"a": (0, 6e4 * BEYOND), "b": (0, 6e4), "c": (0, 1e7 * BEYOND)},
    "subnormal": {"a": (0, 2.0**23), "b": (0, 2.0**23), "c": (0, 64)},
    "huge": {"a": (0, 2400), "b": (0, 8), "c": (0, 6.5e4)},
    "integers": {"a": (0, WHOLE), "b": (0, WHOLE), "c": (0, 2**24)},
    "zeros": {"a": (0, 0), "b": (0, 8), "c": (0, 64)},
}
"""Family -> what is measured of its inputs and outputs, and between what it lies. BEYOND is for bf16."""

TIMING_INPUTS = {
    "normal": "N(0, 1), as other benchmarks have it",
    "wide": "N(0, 1) times 2^-8 to 2^8 (fp16: 2^-4 to 2^4), an exponent an element: more bits change from "
    "term to term, which takes more power, and a GPU at its limit of power lowers its clock",
    "constant": "1 + N(0, 1) / 256: few bits change, the clock stays high; so do kernels that look better on "
    "friendly data",
}
"""Each with why it is there; the first is the plain one. An 8192³ product ran on an H200 at 770 to 800
TFLOP/s on random data and at 894 on zeros."""


def tensors(
    problem: Problem, shapes: Mapping[str, tuple[int, ...]], family: str, seed: int, torch_device: str
) -> dict[str, Tensor]:
    """Inputs of a family by name, of `shapes`, drawn by the seed."""
    import torch

    if family not in RANGES:
        raise UsageError(f"unknown input family: {family}", f"one of {', '.join(RANGES)}")
    rng = torch.Generator(device=torch_device).manual_seed(seed)
    found = {name: _normal(shape, rng) for name, shape in shapes.items()}
    depth = problem["K"]
    a, b = along_k(problem, found["a"], "a")[..., :depth], along_k(problem, found["b"], "b")[..., :depth, :]
    if family in SHAPED:
        SHAPED[family](a, b, rng)
    if family == "large":
        _spread(problem, a, b)
    elif family == "subnormal":
        below, above = TINY[problem.dtype]
        above = TINY_WIDE if problem.dtype == "fp16" and problem["out"] == "fp32" else above
        odd = _odd_terms(a)
        a.mul_(torch.where(odd, above, below))
        b.mul_(torch.where(odd, below, above)[:, None])
    if "scale" in found:
        found["scale"].fill_(FAR_SCALES.get(family) or SCALES[seed % len(SCALES)] * SCALE_OFF)
    for name in found.keys() & {"bias", "residual"}:
        found[name] = _beside(found[name], problem, family, rng)
    kinds = {name: torch.float32 if name == "scale" else dtype_named(problem.dtype).torch for name in found}
    return {name: x.to(kinds[name]) for name, x in found.items()}


def _spread(problem: Problem, a: Tensor, b: Tensor) -> None:
    """Makes A and B of the family `large` as large as their type, and results as large as theirs, may be: of
    each product one factor is far larger than the other, A's and B's in turns."""
    import torch

    if problem["out"] == "fp32":  # nothing is taken away again
        a.abs_()[..., 1::2, :].neg_()
        b.abs_()
    apart = torch.where(_odd_terms(a), APART, 1 / APART)
    a.mul_(apart * _beyond(problem))
    b.mul_(1 / apart[:, None])


def _odd_terms(a: Tensor) -> Tensor:
    """(K,): whether a term has an odd number."""
    import torch

    return torch.arange(a.shape[-1], device=a.device) % 2 == 1


def _beside(x: Tensor, problem: Problem, family: str, rng: torch.Generator) -> Tensor:
    """A bias or a residual, which was N(0, 1): of the family, so that it shows beside the sums."""
    import torch

    if family == "integers":
        return x.mul_(2).round_().clamp_(-WHOLE, WHOLE)
    if family == "peaky":
        return x.mul_(1 + 15 * (torch.rand(x.shape, generator=rng, device=x.device) < 1 / 16))
    if family == "subnormal":
        return x.mul_(math.prod(TINY[problem.dtype]))
    return x.mul_(BESIDE_LARGE * _beyond(problem)) if family == "large" else x


def _beyond(problem: Problem) -> float:
    return BEYOND if problem.dtype == "bf16" else 1.0


def timing_tensors(
    problem: Problem, shapes: Mapping[str, tuple[int, ...]], name: str, seed: int, torch_device: str
) -> dict[str, Tensor]:
    """A timing input; what the epilogue takes is N(0, 1) in each."""
    import torch

    if name not in TIMING_INPUTS:
        raise UsageError(f"unknown timing input: {name}", f"one of {', '.join(TIMING_INPUTS)}")
    found = tensors(problem, shapes, "normal", seed, torch_device)
    rng = torch.Generator(device=torch_device).manual_seed(seed + 1)
    widest = WIDEST[problem.dtype]
    for matrix in (found["a"], found["b"]):
        if name == "wide":
            exponents = torch.randint(-widest, widest + 1, matrix.shape, generator=rng, device=matrix.device)
            matrix.copy_(torch.ldexp(matrix.float(), exponents).clamp(-2048, 2048))
        elif name == "constant":
            matrix.mul_(1 / 256).add_(1)
    if problem.dtype == "fp16":
        found["b"].mul_(min(1.0, LARGEST_SUM / _sum_of(name, problem["K"])))
    return found


def _sum_of(name: str, depth: int) -> float:
    """What a sum of `depth` terms of a timing input of fp16 may be: four deviations, or the mean."""
    terms = {"normal": 4.0, "wide": 160.0, "constant": math.sqrt(depth)}
    return terms[name] * math.sqrt(depth)


def along_k(problem: Problem, stored: Tensor, name: str) -> Tensor:
    """A matrix as it is stored, with its gaps, so that K is the last dimension of A and the last but one of
    B: a view."""
    transposed = problem["layout"]["ab".index(name)] == "T"
    return stored.mT if transposed else stored


def last_row_apart(problem: Problem) -> Relation:
    """The relation that what the last row of A holds, in the last matrix, moves no bit of other rows of C."""

    def change(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        a = inputs["a"].clone()
        # its row M - 1, for behind a transposed A there may be a gap
        along_k(problem, a, "a")[-1, problem["M"] - 1].mul_(-1).add_(1)
        return {**inputs, "a": a}

    def expected(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        c = outputs["c"].double()
        c[-1, -1] = math.nan
        return {"c": c}

    return Relation("rows apart", change, expected, exact=True)


def _normal(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    import torch

    return torch.randn(shape, generator=rng, device=rng.device)


def _peaky(a: Tensor, b: Tensor, rng: torch.Generator) -> None:
    import torch

    peaks = torch.rand(a.shape, generator=rng, device=a.device) < 1 / 16
    a.mul_(1 + 15 * peaks)
    b.mul_(min(1.0, (4096 / b.shape[-2]) ** 0.5))


def _offset(a: Tensor, b: Tensor, _rng: torch.Generator) -> None:
    a.mul_(1 / 16).clamp_(-0.5, 0.5).add_(OFFSET)
    factor = min(1.0, LARGEST_SUM / (OFFSET * OFFSET * b.shape[-2]))
    b.mul_(1 / 16).clamp_(-0.5, 0.5).add_(OFFSET).mul_(factor)


def _growing(a: Tensor, _b: Tensor, _rng: torch.Generator) -> None:
    import torch

    depth = a.shape[-1]
    ramp = torch.linspace(-3.0, 3.0, depth, device=a.device).exp2_()
    a.mul_(ramp * min(1.0, (2**14 / depth) ** 0.5))


def _cancel(a: Tensor, b: Tensor) -> None:
    """The second half of K is the first with B's sign turned, and a part LEFT of what was drawn for it."""
    half = a.shape[-1] // 2
    a[..., half : 2 * half] = a[..., :half]
    b[..., half : 2 * half, :].mul_(LEFT).sub_(b[..., :half, :])
    a[..., 2 * half :].mul_(LEFT)  # an odd term


def _cancelling(a: Tensor, b: Tensor, _rng: torch.Generator) -> None:
    _cancel(a, b)


def _large(a: Tensor, b: Tensor, _rng: torch.Generator) -> None:
    """Of one sign in each half, so that sums on the way grow to PASSING_SUM; what is left is small."""
    half = max(1, a.shape[-1] // 2)
    side = min(128.0, math.sqrt(PASSING_SUM / half) * 1.25)
    a.abs_().clamp_(0.25, 4)
    b.mul_(1 / 8).clamp_(-0.5, 0.5).add_(1)
    _cancel(a, b)
    a.mul_(side)
    b.mul_(side if a.shape[-1] > 1 else 1.0)


def _huge(a: Tensor, b: Tensor, rng: torch.Generator) -> None:
    import torch

    places = torch.randint(a.shape[-1], (*a.shape[:-1], 1), generator=rng, device=a.device)
    a.scatter_(-1, places, HUGE)
    b.mul_(min(1.0, (4096 / b.shape[-2]) ** 0.5))


def _integers(a: Tensor, b: Tensor, _rng: torch.Generator) -> None:
    for matrix in (a, b):
        matrix.mul_(2).round_().clamp_(-WHOLE, WHOLE)


def _zeros(a: Tensor, _b: Tensor, _rng: torch.Generator) -> None:
    a.zero_()


SHAPED: Mapping[str, Callable[[Tensor, Tensor, torch.Generator], None]] = {
    "peaky": _peaky,
    "offset": _offset,
    "growing": _growing,
    "cancelling": _cancelling,
    "large": _large,
    "huge": _huge,
    "integers": _integers,
    "zeros": _zeros,
}
"""A family -> what it makes, in place, of standard normal A (batch, M, K) and B (batch, K, N)."""
