"""y = x, its rows and columns exchanged."""

from evo import In, Out, Task


class Transpose(Task):
    name, sizes, dtypes = "transpose", {"rows": 300, "columns": 200}, ("fp32", "fp16")
    tensors = {"x": In("rows", "columns"), "y": Out("columns", "rows")}

    def compute(self, problem, tensors):
        return tensors["x"].T


TASK = Transpose()
