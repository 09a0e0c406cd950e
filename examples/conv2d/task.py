"""Each pixel becomes a weighted sum of those around it; beyond the image they are 0."""

from torch.nn.functional import conv2d

from evo import In, Out, Task


class Conv2d(Task):
    name, sizes = "conv2d", {"height": 100, "width": 150, "taps": 5}
    tensors = {"image": In("height", "width"), "weight": In("taps", "taps"), "y": Out("height", "width")}
    fixed = ("taps",)

    def compute(self, problem, tensors):
        image, weight = (tensors[name][None, None] for name in ("image", "weight"))
        return conv2d(image, weight, padding=problem["taps"] // 2)

    def flop(self, problem):
        return 2 * problem["height"] * problem["width"] * problem["taps"] ** 2


TASK = Conv2d()
