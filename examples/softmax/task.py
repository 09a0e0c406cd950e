"""y = the softmax of each row of x."""

from evo import In, Out, Task


class Softmax(Task):
    name, sizes, dtypes = "softmax", {"rows": 64, "columns": 1000}, ("fp32", "fp16")
    tensors = {"x": In("rows", "columns"), "y": Out("rows", "columns")}
    summed = ("columns",)
    independent_rows = True

    def compute(self, problem, tensors):
        return tensors["x"].softmax(-1)


TASK = Softmax()
