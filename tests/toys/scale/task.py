"""x = factor * x + 1, in place; the flag `negate` turns the sign of the result."""

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import BufferSpec, Families, Flag, Task
from evo.trial import Problem

FACTOR = 1.5


class Scale(Task):
    name = "scale"
    sizes = ("N",)
    dtypes = ("fp32", "fp16")
    flags = {
        "negate": Flag(meaning="The result's sign is turned."),
        "bias": Flag(1, (0, 1, 2), "What is added."),
    }
    problems = {"small": (Problem("scale", {"N": 3000}, "fp32", {"negate": False, "bias": 1}),)}
    families = Families(plain="normal", even="ones", others=("zeros",))

    def buffers(self, problem):
        return (BufferSpec("x", (problem["N"],), problem.dtype, "inout"),)

    def inputs(self, problem, family, seed, torch_device):
        import torch

        if family not in self.families.names:
            raise UsageError(f"unknown input family: {family}", f"one of {', '.join(self.families.names)}")
        rng = torch.Generator(device=torch_device).manual_seed(seed)
        x = torch.randn(problem["N"], generator=rng, device=torch_device)
        if family != "normal":
            x.fill_({"ones": 1.0, "zeros": 0.0}[family])
        return {"x": x.to(dtype_named(problem.dtype).torch)}

    def reference(self, problem, inputs):
        result = FACTOR * inputs["x"].double() + problem["bias"]
        return {"x": -result if problem["negate"] else result}


TASK = Scale()
