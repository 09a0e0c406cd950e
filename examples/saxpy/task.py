"""y = 2 x + y, in place."""

from evo import In, InOut, Task


class Saxpy(Task):
    name, sizes = "saxpy", {"n": 100_000}
    tensors = {"x": In("n"), "y": InOut("n")}

    def compute(self, problem, tensors):
        return 2 * tensors["x"] + tensors["y"]


TASK = Saxpy()
