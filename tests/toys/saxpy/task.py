from evo import In, InOut, Task


class Saxpy(Task):
    name, sizes = "saxpy", {"N": 100_000}
    tensors = {"x": In("N"), "y": InOut("N")}

    def compute(self, problem, tensors):
        return 2 * tensors["x"] + tensors["y"]


TASK = Saxpy()
