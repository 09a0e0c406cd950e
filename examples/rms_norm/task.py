"""y = x · weight / √(mean of a row's squares + 1e-5)."""

from evo import In, Out, Task


class RmsNorm(Task):
    name, sizes, dtypes = "rms_norm", {"rows": 64, "columns": 1000}, ("fp16", "fp32")
    tensors = {"x": In("rows", "columns"), "weight": In("columns"), "y": Out("rows", "columns")}
    summed = ("columns",)
    independent_rows = True

    def compute(self, problem, tensors):
        x = tensors["x"]
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * tensors["weight"]


TASK = RmsNorm()
