"""How often each number is among `values` is added to `counts`."""

from evo import In, InOut, Task


class Histogram(Task):
    name, sizes, dtypes = "histogram", {"n": 50_000, "bins": 256}, ("i32",)
    tensors = {"values": In("n", between=(0, "bins")), "counts": InOut("bins")}

    def compute(self, problem, tensors):
        return tensors["counts"] + tensors["values"].bincount(minlength=problem["bins"])


TASK = Histogram()
