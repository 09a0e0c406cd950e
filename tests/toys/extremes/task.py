"""low[r] = the smallest element of row r of x, at[r] = where it is first: two outputs, fp32 and int32."""

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import BufferSpec, Families, Task
from evo.trial import Problem


class Extremes(Task):
    name = "extremes"
    sizes = ("R", "C")
    dtypes = ("fp16", "bf16")
    problems = {"small": (Problem("extremes", {"R": 40, "C": 300}, "fp16"),)}
    families = Families(plain="normal", lone="spike", others=("equal",))

    def buffers(self, problem):
        rows, columns = problem["R"], problem["C"]
        return (
            BufferSpec("x", (rows, columns), problem.dtype, "in"),
            BufferSpec("low", (rows,), "fp32", "out"),
            BufferSpec("at", (rows,), "i32", "out"),
        )

    def inputs(self, problem, family, seed, torch_device):
        """normal; equal: all elements alike, the first counts; spike: one element is far below the others."""
        import torch

        if family not in self.families.names:
            raise UsageError(f"unknown input family: {family}", f"one of {', '.join(self.families.names)}")
        rng = torch.Generator(device=torch_device).manual_seed(seed)
        rows, columns = problem["R"], problem["C"]
        x = torch.randn((rows, columns), generator=rng, device=torch_device)
        if family == "equal":
            x = x[:, :1].repeat(1, columns)
        elif family == "spike":
            which = (torch.arange(rows, device=torch_device) * 7919 + seed) % columns
            x[torch.arange(rows, device=torch_device), which] = -100.0
        return {"x": x.to(dtype_named(problem.dtype).torch)}

    def reference(self, problem, inputs):
        import torch

        low = inputs["x"].double().amin(-1)
        columns = torch.arange(problem["C"], device=low.device)
        at = torch.where(inputs["x"].double() == low[:, None], columns, problem["C"]).amin(-1)
        return {"low": low, "at": at.to(torch.int32)}

    def baselines(self, problem, torch_device="cuda", patient=False):
        return {"eager": lambda inputs: inputs["x"].float().min(-1)}


TASK = Extremes()
