"""total[n] = the sum of row n of x: fp32, one size, one family, no flag, no baseline."""

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import BufferSpec, Families, Task
from evo.trial import Problem

COLUMNS = 96


class RowSum(Task):
    name = "row_sum"
    sizes = ("N",)
    dtypes = ("fp32",)
    problems = {"small": (Problem("row_sum", {"N": 200}, "fp32"),)}
    families = Families(plain="uniform")

    def buffers(self, problem):
        rows = problem["N"]
        return (
            BufferSpec("x", (rows, COLUMNS), problem.dtype, "in"),
            BufferSpec("total", (rows,), problem.dtype, "out"),
        )

    def inputs(self, problem, family, seed, torch_device):
        import torch

        rng = torch.Generator(device=torch_device).manual_seed(seed)
        shape, kind = (problem["N"], COLUMNS), dtype_named(problem.dtype).torch
        if family != "uniform":
            raise UsageError(f"unknown input family: {family}", "uniform")
        return {"x": torch.rand(shape, generator=rng, device=torch_device, dtype=kind)}

    def reference(self, problem, inputs):
        return {"total": inputs["x"].double().sum(-1)}

    def honest(self, problem, inputs):
        return {"total": inputs["x"].sum(-1)}


TASK = RowSum()
