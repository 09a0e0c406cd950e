"""y = x · gamma / √(mean of a row's squares + 1e-5), in the short form."""

from evo import In, Out, Task


class RmsNorm(Task):
    name, sizes, dtypes = "rms_norm", {"T": 64, "W": 1000}, ("fp16", "fp32")
    tensors = {
        "x": In("T", "W"),
        "gamma": In("W"),
        "y": Out("T", "W"),
    }
    summed = ("W",)
    independent_rows = True

    def compute(self, problem, tensors):
        x = tensors["x"]
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * tensors["gamma"]


TASK = RmsNorm()
