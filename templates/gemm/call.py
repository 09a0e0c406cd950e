"""What every kernel of the product is called with, and what the templates of this folder share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evo.dtype import dtype_named
from evo.trial import BufferArg, Problem, ScalarArg, Value

if TYPE_CHECKING:
    from torch import Tensor

LAYOUTS = ("NT", "NN", "TN")
"""How A and B lie in memory: N as the product has it (A is M × K, B is K × N), T transposed."""
EPILOGUES = ("none", "bias", "bias_gelu", "bias_silu", "residual", "scale")
"""What becomes of a sum s: s, s + bias, GELU or SiLU of that, s + residual, scale · s."""
ELEMENTS = {"fp16": "Fp16", "bf16": "Bf16"}
"""Storage type -> its type in memory/element.cuh."""
ALIGNED = 8
"""16-bit elements of 16 bytes, the widest access. What of it divides a row is in a kernel's code."""


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


# ---- how matrices lie


def stored(problem: Problem) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of A and of B as they are stored, without gaps."""
    m, n, k, layout = problem["M"], problem["N"], problem["K"], problem["layout"]
    return (k, m) if layout[0] == "T" else (m, k), (n, k) if layout[1] == "T" else (k, n)


def leading(problem: Problem) -> tuple[int, int]:
    """Elements from a row of A to the next, and of B."""
    (_, of_a), (_, of_b) = stored(problem)
    return of_a + int(problem["gap"]), of_b + int(problem["gap"])


def vectors(problem: Problem) -> tuple[int, int, int]:
    """How many elements at once every row of A, B and C may be read or written by: the largest power of two,
    at most ALIGNED, that divides the length of a row and its leading dimension. The gate's other problems
    have the same numbers: a kernel may have them in its code."""
    (_, of_a), (_, of_b) = stored(problem)
    gap = int(problem["gap"])
    return math.gcd(of_a, gap, ALIGNED), math.gcd(of_b, gap, ALIGNED), math.gcd(problem["N"], ALIGNED)


def operand(problem: Problem) -> str | None:
    """The buffer that the epilogue takes: "bias", "residual", "scale", or None."""
    name = str(problem["epilogue"])
    return None if name == "none" else name.partition("_")[0]


def out_bytes(problem: Problem) -> int:
    """Bytes of an element of C."""
    return 2 if problem["out"] == "same" else 4


# ---- arguments and holes of kernels


def buffers(problem: Problem) -> tuple[BufferArg, ...]:
    """a, b, what the epilogue takes, c."""
    extra = operand(problem)
    return tuple(BufferArg(name) for name in ("a", "b", *((extra,) if extra else ()), "c"))


def scalars(problem: Problem) -> tuple[ScalarArg, ...]:
    """M, N, K, the leading dimensions of A and B, and the batch: the last arguments of every kernel, int."""
    numbers = (problem["M"], problem["N"], problem["K"], *leading(problem), problem["batch"])
    return tuple(ScalarArg(number, "i32") for number in numbers)


def holes(problem: Problem, smem_bytes: int) -> dict[str, Value]:
    """The values of the holes that all templates have."""
    return {
        "element": ELEMENTS[problem.dtype],
        "epilogue_kind": str(problem["epilogue"]),
        "wide_out": problem["out"] == "fp32",
        "smem_bytes": smem_bytes,
    }


def layout(problem: Problem) -> dict[str, Value]:
    """The hole of templates that serve all layouts."""
    return {"layout": str(problem["layout"])}


def serves(problem: Problem) -> str | None:
    """Why a problem is out of reach of every template here; None where it is not."""
    if problem.dtype not in ELEMENTS:
        return f"storage type {problem.dtype}: it serves {', '.join(ELEMENTS)}"
    return None


# ---- the definition, by torch


def matrices(problem: Problem, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """A, (batch, M, K), and B, (batch, K, N): views without gaps, transposed where the layout says so."""
    layout = problem["layout"]
    (_, of_a), (_, of_b) = stored(problem)
    a, b = inputs["a"][..., :of_a], inputs["b"][..., :of_b]
    return a.mT if layout[0] == "T" else a, b.mT if layout[1] == "T" else b


def finished(problem: Problem, sums: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """The epilogue of sums (batch, M, N), in their precision."""
    import torch

    kind, extra = problem["epilogue"], operand(problem)
    if extra is None:
        return sums
    other = inputs[extra].to(sums.dtype)
    if extra == "scale":
        return sums * other
    sums = sums + other
    if kind == "bias_gelu":
        return torch.nn.functional.gelu(sums, approximate="tanh")
    return torch.nn.functional.silu(sums) if kind == "bias_silu" else sums


def exact(problem: Problem) -> bool:
    """Whether the epilogue of a whole number is exact in fp32."""
    return problem["epilogue"] in ("none", "bias", "residual", "scale")


def rounded(problem: Problem) -> Any:
    """The type of C, torch's."""
    return dtype_named(problem.dtype if problem["out"] == "same" else "fp32").torch
