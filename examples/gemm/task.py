"""c = a b, with sizes that are no multiples of a tile."""

from evo import In, Out, Task


class Gemm(Task):
    name, sizes = "gemm", {"m": 150, "n": 170, "k": 130}
    tensors = {"a": In("m", "k"), "b": In("k", "n"), "c": Out("m", "n")}

    def compute(self, problem, tensors):
        return tensors["a"] @ tensors["b"]

    def flop(self, problem):
        return 2 * problem["m"] * problem["n"] * problem["k"]


TASK = Gemm()
