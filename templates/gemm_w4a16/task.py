"""y = x Wᵀ with W = (code - zero) · scale: weights of 4 bits, activations of 16.

x: (M, K), y: (M, N), fp16, M from 1 to 64. w4: (N, K / 2), bytes with two codes from 0 to 15 each, that of
the lower K in the lower nibble. scales, and zeros where the flag says so: (N, K / 128), fp16, one of each for
128 elements of K; zeros are whole numbers from 0 to 15, without them 8 is taken off. Sums of fp32 are
expected; a weight may be rounded to fp16. `weight_tiles` and `scale_tiles` hold w4, scales and zeros once
more, in the order of packing.py: a kernel reads those or these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import UsageError
from evo.task import Baseline, DeclaredTensor, Families, Flag, In, Out, Pieces, Relation, Task, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_baselines = load_module(Path(__file__).with_name("baselines.py"))
_families = load_module(Path(__file__).with_name("families.py"))
_packing = load_module(Path(__file__).with_name("packing.py"))

GROUP: int = _packing.GROUP
MOST_ROWS = 64
PUBLISHED = ((8192, 8192), (8192, 16384), (7168, 20480), (8192, 81920))
"""N and K for which times of Marlin on an H200 are published (TileOPs' nightly figures)."""
WEIGHTS_AT_ONCE = 1 << 26
"""Weights that the reference holds in fp64 at once."""
UNIT = 2.0**-24
"""Half of the distance of two fp32 numbers near 1."""


class GemmW4A16(Task):
    name = "gemm_w4a16"
    sizes = ("M", "N", "K")
    dtypes = ("fp16",)
    flags: Mapping[str, Flag] = {"zeros": Flag(meaning="Each group has a zero point of its own, not 8.")}
    tensors: Mapping[str, DeclaredTensor] = {
        "x": In("M", "K"),
        "w4": In("N", lambda problem: problem["K"] // 2, dtype="u8"),
        "scales": In("N", lambda problem: problem["K"] // GROUP),
        "zeros": In("N", lambda problem: problem["K"] // GROUP, when="zeros"),
        "y": Out("M", "N"),
    }
    packings = _packing.PACKINGS
    independent_rows = True
    families = Families(
        plain="normal",
        sharp="peaky",
        even="alike",
        lone="spike",
        large="cancelling",
        tiny="far_scales",
        others=("offset", "integers", "x_zero"),
    )
    timing_inputs: Mapping[str, str] = {"normal": "x is N(0, 1), codes are any: data decide nothing here"}

    @property
    def problems(self) -> Mapping[str, tuple[Problem, ...]]:
        """One row for the published shapes, more rows for the first; the first problem is the example."""
        return {
            "decoding": tuple(self.at(1, n, k) for n, k in PUBLISHED),
            "batches": tuple(self.at(m, *PUBLISHED[0]) for m in (2, 4, 8, 16, 32, 64)),
            "zeros": (self.at(1, *PUBLISHED[0], zeros=True), self.at(16, *PUBLISHED[0], zeros=True)),
        }

    def at(self, m: int, n: int, k: int, zeros: bool = False) -> Problem:
        return Problem(self.name, {"M": m, "N": n, "K": k}, "fp16", {"zeros": zeros})

    def validate(self, problem: Problem) -> None:
        if problem["M"] > MOST_ROWS:
            raise UsageError(
                f"{problem['M']} rows of x", f"M is from 1 to {MOST_ROWS}: weights are the work here"
            )
        if problem["K"] % GROUP:
            raise UsageError(
                f"K is {problem['K']}", f"groups of {GROUP} share a scale: K is a multiple of that"
            )

    def flop(self, problem: Problem) -> int:
        return 2 * problem["M"] * problem["N"] * problem["K"]

    def pieces(self, problem: Problem) -> Pieces:  # noqa: ARG002
        """Rows of W, of which there are more than of x."""
        return Pieces("N", {"w4": 0, "scales": 0, "zeros": 0, "y": 1})

    # ---- what is computed

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Those of families.py, which says what each is for."""
        return self.packed(problem, _families.drawn(problem, family, seed, torch_device))

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        if name not in self.timing_inputs:
            raise UsageError(f"unknown timing input: {name}", f"one of {', '.join(self.timing_inputs)}")
        return self.inputs(problem, name, seed, torch_device)

    def reference(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"y": _product(problem, inputs)}

    def honest(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights rounded to fp16, products summed in fp32 and off by what the order and the arithmetic of
        mma.sync may make of it. Two errors of its K / 16 partial sums add up:

        - each is rounded by up to a unit of all that is added, to either side: the error grows with the root
          of their number (Higham and Mary, 2019) and with the sum of all magnitudes, which cancellation does
          not make smaller;
        - tensor cores cut off (Fasi, Higham, Mikaitis and Pranesh, 2021): each is too small by about a unit
          of itself, always to the same side, so what it is on the way counts.
        """
        import torch

        sums, passed = _sums(problem, inputs)
        magnitudes, _ = _sums(problem, inputs, torch.abs)
        steps = problem["K"] / 16
        drift = UNIT * (math.sqrt(steps) * magnitudes + steps * passed)
        off = sums - self.reference(problem, inputs)["y"]  # 0 where no sum is ever rounded
        return {"y": (sums + drift * off.sign()).to(inputs["x"].dtype)}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:
        """rows apart         what one row of x holds moves no bit of another row of y
        integers are exact  sums of small whole numbers, of which fp16 holds each, have no error at all
        """
        whole = partial(_families.drawn, problem, "integers", 1)

        def expected(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return self.reference(problem, whole(str(outputs["y"].device)))

        exact = Relation(
            "integers are exact", lambda x: {**x, **whole(str(x["x"].device))}, expected, exact=True
        )
        return (*super().relations(problem), exact)

    # ---- what is to be beaten

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem)
        return found | (_baselines.patient(problem) if patient and torch_device != "cpu" else {})

    # ---- what the gate tries

    def share(self, problem: Problem, part: float) -> Problem:
        """Fewer rows of W: each is on its own."""
        kept = 16 * max(1, round(part * problem["N"] / 16))
        return problem.replace(N=min(problem["N"], kept))

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Columns of y around the first of the tiles, K around the last one, rows of x from the same block of
        8, for which a kernel has code of its own."""
        side, groups = _tiles(tiles)
        few, own = 8 * ((problem["M"] - 1) // 8) + 1, problem["M"]
        most = min(few + 7, MOST_ROWS)
        found = [
            (own, side + 1, groups + 1), (few, side - 1, 1), (own, 1, 2 * groups + 1), (most, side, groups),
            (few, 2 * side + 3, max(1, groups - 1)), (most, side + 8, groups + 2), (own, 2 * side, 1),
            (few, 17, 3 * groups), (most, 15, 2 * groups - 1),
        ]  # fmt: skip
        made = [self._sized(problem, *sizes) for sizes in found if min(sizes) > 0]
        return tuple({at.key: at for at in made}.values())

    def piece_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """More tiles of columns than two, and many groups for few columns."""
        side, groups = _tiles(tiles)
        rows = problem["M"]
        return self._sized(problem, rows, 5 * side + 1, 1), self._sized(problem, rows, 3, 4 * groups + 3)

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        """Every number of columns up to 40 and around each strip up to two tiles, with numbers of groups in
        turn; every number of groups up to two of each share and some, with rows of x in turn."""
        side, groups = _tiles(tiles)
        block, most = 8 * ((problem["M"] - 1) // 8), 2 * side + 1
        columns = [n for n in range(1, most + 1) if n <= 40 or n % 16 in (0, 1, 15)]
        found = [(problem["M"], n, 1 + i % (groups + 1)) for i, n in enumerate(columns)]
        found += [(block + 1 + g % 8, 17, g) for g in range(1, 2 * groups + 3)]
        if far:
            found += [(problem["M"], 2 * side + 33, 5 * groups), (block + 8, side + 5, 4 * groups + 1)]
        made = [self._sized(problem, *sizes) for sizes in found]
        return tuple({at.key: at for at in made}.values())

    def _sized(self, problem: Problem, rows: int, columns: int, groups: int) -> Problem:
        return problem.replace(M=rows, N=columns, K=GROUP * groups)


def _tiles(tiles: Sequence[int]) -> tuple[int, int]:
    """Columns of the first tile, groups of the last one."""
    known = [int(t) for t in tiles if t > 0] or [16, GROUP]
    return known[0], max(1, known[-1] // GROUP)


def _product(problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
    """(M, N) in fp64: x Wᵀ of exact weights."""
    import torch

    x = inputs["x"].double()
    return torch.cat([x @ w.double().T for w in _weights(problem, inputs, torch.float64)], -1)


def _sums(
    problem: Problem, inputs: Mapping[str, Tensor], of: Callable[[Tensor], Tensor] = lambda tensor: tensor
) -> tuple[Tensor, Tensor]:
    """(M, N) each, in fp32: x Wᵀ of the function `of` of each element, weights rounded to fp16, and the mean
    magnitude of the sums after each group of K."""
    import torch

    groups = problem["K"] // GROUP
    x = of(inputs["x"].float()).view(problem["M"], groups, GROUP).transpose(0, 1)
    found = []
    for w in _weights(problem, inputs, inputs["x"].dtype):
        parts = x @ of(w.float()).view(len(w), groups, GROUP).permute(1, 2, 0)  # (groups, M, some of N)
        passed = parts.cumsum(0)
        found.append((parts.sum(0), passed.abs().mean(0)))
    sums, magnitudes = zip(*found, strict=True)
    return torch.cat(sums, -1), torch.cat(magnitudes, -1)


def _weights(problem: Problem, inputs: Mapping[str, Tensor], kind: torch.dtype) -> Iterator[Tensor]:
    """(some of N, K): W as numbers of `kind`, some rows at a time."""
    step = max(1, WEIGHTS_AT_ONCE // problem["K"])
    for first in range(0, problem["N"], step):
        some = {n: t[first : first + step] for n, t in inputs.items() if n in ("w4", "scales", "zeros")}
        at = problem.replace(N=len(some["w4"]))
        typed = {name: t if name == "w4" else t.to(kind) for name, t in some.items()}
        yield _baselines.dequantised(at, typed)


TASK = GemmW4A16()
