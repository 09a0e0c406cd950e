"""cuBLASLt by each of the algorithms that its heuristics know for a product, through nvmath-python.

nvmath plans: it makes the descriptors and asks the library for algorithms. The calls are made here, into
memory that torch allocates: nvmath's own may wait for events from before a graph's capture. That uses
attributes of nvmath 1.0 that it does not document; where they are missing, there is no such baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Baseline, Tunable, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_call = load_module(Path(__file__).with_name("call.py"))
CANDIDATES = 32
"""Algorithms that cuBLASLt is asked for; it gives fewer where it knows fewer."""
WORKSPACE_BYTES = 256 << 20
"""What an algorithm may take besides; torch gives cuBLASLt 32 MB on Hopper."""


def tunable(problem: Problem) -> Tunable:
    """The product, without an epilogue, by algorithm 0, 1, … of at most CANDIDATES; a variant that the
    library has no algorithm for raises RuntimeError."""
    every = range(CANDIDATES)
    return Tunable({f"algorithm {n} of at most {CANDIDATES}": _by(problem, n) for n in every})


def _by(problem: Problem, number: int) -> Baseline:
    """A plan is bound to the tensors that it was made for: there is one for each set of inputs."""
    plans: dict[tuple[int, int], _Planned] = {}

    def run(inputs: Mapping[str, Tensor]) -> Any:
        try:
            a, b = _call.matrices(problem, inputs)
            key = (a.data_ptr(), b.data_ptr())
            if key not in plans:
                plans[key] = _Planned(problem, a, b, number)
            return plans[key].multiply()
        except Exception as error:  # whatever a library raises
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return run


class _Planned:
    """A plan of nvmath, and one of its algorithms."""

    def __init__(self, problem: Problem, a: Tensor, b: Tensor, number: int) -> None:
        import nvmath  # type: ignore[import-not-found]
        import torch
        from nvmath.linalg import advanced  # type: ignore[import-not-found]

        wide = problem["out"] == "fp32"
        kind = nvmath.CudaDataType.CUDA_R_32F if wide else None
        self._operands = (a[0], b[0]) if a.shape[0] == 1 else (a, b)
        options = advanced.MatmulOptions(memory_limit=WORKSPACE_BYTES, result_type=kind)
        self._plan = plan = advanced.Matmul(*self._operands, options=options)
        algorithms = plan.plan(preferences=advanced.MatmulPlanPreferences(limit=CANDIDATES))
        if number >= len(algorithms):
            raise IndexError(f"cuBLASLt knows {len(algorithms)} algorithms here")
        found = plan.algorithm_object_to_buffer[algorithms[number]]
        self._algorithm = found["algo"]
        # the attribute is a number; found["workspace_size"] is an array of one, which numpy does not convert
        self._workspace = torch.empty(found.workspace_size, dtype=torch.uint8, device=a.device)
        self._shape = (*a.shape[:-1], b.shape[-1])
        self._kind = torch.float32 if wide else a.dtype

    def multiply(self) -> Tensor:
        import torch
        from nvmath.bindings import cublasLt  # type: ignore[import-not-found]

        plan, (a, b) = self._plan, self._operands
        traits = plan.result_traits
        c = torch.empty_strided(
            tuple(traits.result_shape), tuple(traits.result_strides), dtype=self._kind, device=a.device
        )
        cublasLt.matmul(
            plan.handle, plan.mm_desc, plan.alpha.ctypes.data, a.data_ptr(), plan.a_layout_ptr, b.data_ptr(),
            plan.b_layout_ptr, plan.beta.ctypes.data, 0, plan.c_layout_ptr, c.data_ptr(), plan.d_layout_ptr,
            self._algorithm.ctypes.data, self._workspace.data_ptr(), self._workspace.numel(),
            torch.cuda.current_stream(a.device).cuda_stream,
        )  # fmt: skip
        return c.reshape(self._shape)
