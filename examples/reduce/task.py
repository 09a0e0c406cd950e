"""The sum of all elements of x, and the largest of them."""

from evo import In, Out, Task


class Reduce(Task):
    name, sizes = "reduce", {"n": 100_000}
    tensors = {"x": In("n"), "total": Out(1), "largest": Out(1)}

    def compute(self, problem, tensors):
        return tensors["x"].sum(), tensors["x"].max()


TASK = Reduce()
