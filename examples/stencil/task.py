"""One step of heat in a box: an inner cell takes a tenth of each of its six neighbours, the border stays."""

from evo import In, Out, Task


class Stencil(Task):
    name, sizes = "stencil", {"depth": 20, "height": 40, "width": 70}
    tensors = {"x": In("depth", "height", "width"), "y": Out("depth", "height", "width")}

    def compute(self, problem, tensors):
        x, inner = tensors["x"], (slice(1, -1),) * 3
        y = x.clone()
        y[inner] *= 0.4
        for axis in range(3):
            y[inner] += 0.1 * (x.roll(1, axis) + x.roll(-1, axis))[inner]
        return y


TASK = Stencil()
