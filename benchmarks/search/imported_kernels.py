"""What is right for kernels of other tools whose files do not say it, and how each is made small.

A text is the body of `compute(self, problem, x)`, written from what the kernel is said to compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Wanted:
    """A file, and what is needed to try it small."""

    kind: str
    file: str
    shape: str | None = None
    right: str = ""
    """The body of `compute`, where the file has no reference."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Texts of the file and of its folder's sources, and what is put for them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


ONE_STEP = """
t, p = (x[name][:84 * 84].reshape(84, 84) for name in ("temp", "power"))
c, sides = t[10:74, 10:74], (t[11:75, 10:74] + t[9:73, 10:74], t[10:74, 11:75] + t[10:74, 9:73])
flow = sum((side - 2 * c) * 0.10000000149011612 for side in sides)
return c + 21.845333099365234 * (p[10:74, 10:74] + flow + (80 - c) * 3.0517578125)
"""
"""Hotspot for one step, 64 by 64 with a border of 10. 0.1 and 3.05… are the nearest numbers of fp32."""
FIVE_POINTS = """
old, found = x["x_old"].reshape(48, 64), x["x_new"].reshape(48, 64).clone()
around = old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1]
found[1:-1, 1:-1] = (old[1:-1, 1:-1] + around) / 5
return found
"""
CONVOLVED = """
from torch.nn.functional import conv2d
image = x["IMAGE"].reshape(1, 1, 63 + TAPS, 63 + TAPS)
return conv2d(image, x["WEIGHT"].reshape(1, 1, TAPS, TAPS)).flatten()
"""
PRODUCT = """
a, b = (x[name].reshape(128, 128) for name in ("A", "B"))
return (b.T @ a).flatten()
"""
BODIES = """
body, velocity = (x[name].reshape(-1, 4) for name in ("oldBodyInfo", "oldVel"))
apart = body[None, :, :3] - body[:, None, :3]
inverse = (apart.square().sum(-1, keepdim=True) + 0.009999999776482582).rsqrt()
pull, step = (apart * body[None, :, 3:] * inverse ** 3).sum(1), 0.0010000000474974513
moved = body[:, :3] + step * velocity[:, :3] + 0.5 * step * step * pull
left = velocity[:, :3] + step * pull
found = {"newBodyInfo": (moved, body[:, 3:]), "newVel": (left, 0 * body[:, 3:])}
return {name: __import__("torch").cat(parts, 1).flatten() for name, parts in found.items()}
"""
SPECTRUM = """
import torch
lines = torch.view_as_complex(x["work"].reshape(-1, 512, 2).contiguous())
return torch.view_as_real(torch.fft.fft(lines)).flatten()
"""
DIGEST = (833727343, 4098309342, 150389293, 1556181445)
"""MD5 of the key 3, 2, 1, 0, 0, 0, 0: the key of index 123."""
FOUND = f"""
import torch
key, digest = torch.tensor([3, 2, 1, 0, 0, 0, 0, 0], dtype=torch.int8), {list(DIGEST)}
found = torch.tensor(digest, dtype=torch.uint32)
return {{"foundIndex": torch.tensor([123], dtype=torch.int32), "foundKey": key, "foundDigest": found}}
"""
HOTSPOT = {"4096": "64", "25160256": "7056", "16777216": "4096"}
_DEEP, _FLAT = " " * 16, " " * 8
LONGER = {
    f'"temp",\n{_DEEP}"Type": "float",\n{_DEEP}"Size": 16777216': (
        f'"temp",\n{_DEEP}"Type": "float",\n{_DEEP}"Size": 7056'
    ),
    f'"temporal_tiling_factor",\n{_DEEP}"Type": "int",\n{_DEEP}"Values": "[i for i in range(1, 11)]"': (
        f'"temporal_tiling_factor",\n{_DEEP}"Type": "int",\n{_DEEP}"Values": "[1]"'
    ),
}
ONE_LAYOUT = {
    f'"USE_SOA",\n{_FLAT}"Type": "uint",\n{_FLAT}"Values": "[0, 1]"': (
        f'"USE_SOA",\n{_FLAT}"Type": "uint",\n{_FLAT}"Values": "[0]"'
    )
}
ONE_WHY = "small, and of two copies of the data the first: here they are not the same data"
FEW_BODIES = {"131072": "512", "524288": "2048", "128 * 1024": "512", **ONE_LAYOUT}
FEW_KEYS = {
    "10000000": "2000", "1000000": "200",
    **dict(zip(("2745829788", "1540754381", "615701928", "1640371132"), map(str, DIGEST), strict=True)),
}  # fmt: skip
SMALL_GEMM = {"4096": "128", "16777216": "16384", "2048": "128", "4194304": "16384"}


def convolved(image: str, weight: str, taps: int = 15) -> str:
    """The convolution of an image of 64 by 64."""
    return CONVOLVED.replace("IMAGE", image).replace("WEIGHT", weight).replace("TAPS", str(taps))


_FILTERED = convolved("input_image", "d_filter")
T1: Mapping[str, tuple[dict[str, Any], ...]] = {
    "hotspot_milo.json": (
        {"right": ONE_STEP, "changed": HOTSPOT,
         "why": "as it is: `temp` has fewer elements than the kernel reads, so `compute` fails"},
        {"right": ONE_STEP, "changed": {**LONGER, **HOTSPOT},
         "why": "with the length that the kernel reads, and one step: a tunable says how many there are"},
    ),
    "convolution_milo.json": ({"right": _FILTERED, "changed": {"4096": "64"}},),
    "convolution.json": ({"right": _FILTERED, "changed": {"4096": "64"}},),
    "convolution-CAFF.json": (
        {"right": _FILTERED, "changed": {"4096": "64", "16777216": "4096", "16892100": "6084"}},
    ),
    "TRIAD-CAFF.json": (
        {"right": 'return x["A"] + 1.75 * x["B"]', "changed": {'"double"': '"float"'},
         "why": "with the type that the kernel has by default"},
    ),
    "builtin_vectors-CAFF.json": ({"right": 'return (x["lhs"].reshape(-1, 3) + x["rhs"]).flatten()'},),
    "GEMM-CAFF.json": (
        {"right": PRODUCT.replace('"A", "B"', '"agm", "bgm"'), "changed": SMALL_GEMM},
    ),
    "ClTuneGemm.json": ({"right": PRODUCT.replace('"A", "B"', '"matA", "matB"'), "changed": SMALL_GEMM},),
    "nbody-CAFF.json": (
        {"right": BODIES, "changed": {**FEW_BODIES, "#define VECTOR_TYPE 1": ""},
         "why": f"{ONE_WHY}; without a definition of VECTOR_TYPE, which is a tunable"},
    ),
    "NbodyScript.json": (
        {"right": BODIES, "changed": {**FEW_BODIES, "WORK_GROUP_SIZE_Y": "1"},
         "why": f"{ONE_WHY}; WORK_GROUP_SIZE_Y, which the file does not name, is 1"},
    ),
    "FFT-CAFF.json": (
        {"right": SPECTRUM, "why": "two lines, in the precision that the file says",
         "changed": {"262144": "1024", '"X": "512"': '"X": "2"', "#if PRECISION == 32": "#if 1"}},
    ),
    "MD5Hash-CAFF.json": ({"right": FOUND, "changed": FEW_KEYS, "why": "2,000 keys, and the digest of one"},),
    "KernelTuningCudaScript.json": (
        {"right": 'return x["a"] + x["b"] + 3', "changed": {"1048576": "2048"}},
    ),
}  # fmt: skip
"""By the name of a T1 file: how it is tried. The others are imported and not searched."""
SUM = 'return x["a"] + x["b"]'
ONE_FILTER = {"4096": "64", "[i for i in range(3,35,2)]": "[5]", "[i for i in range(3,19,2)]": "[5]"}
_SMOOTHED = convolved("input", "filter", 5)
KERNEL_TUNER = (
    Wanted("kernel-tuner", "vector_add.py", "3000", SUM),
    Wanted("kernel-tuner", "vector_add_nvcuda.py", "3000"),
    Wanted("kernel-tuner", "vector_add_parallel.py", "3000", SUM),
    Wanted("kernel-tuner", "vector_add_cupy.py", "3000"),
    Wanted("kernel-tuner", "vector_add_metric.py", "3000", SUM),
    Wanted("kernel-tuner", "vector_add_observers.py", "3000", SUM),
    Wanted("kernel-tuner", "matmul.py", None, 'return x["A"] @ x["B"]', {"4096": "64"}),
    Wanted("kernel-tuner", "stencil.py", None, FIVE_POINTS, {"4096": "64", "2048": "48"}),
    Wanted("kernel-tuner", "convolution.py", None, _SMOOTHED, ONE_FILTER,
           why="small, with one filter: its sides are tunables, so that points differ in what they compute"),
    Wanted("kernel-tuner", "convolution_correct.py", None, convolved("input", "filter", 17), {"4096": "64"}),
    Wanted("kernel-tuner", "spmv.py"),
    Wanted("kernel-tuner", "texture.py"),
    Wanted("kernel-tuner", "vector_add_codegen.py"),
    Wanted("kernel-tuner", "accuracy.py"),
)  # fmt: skip
KERNELBENCH = (
    Wanted("kernelbench", "1_Square_matrix_multiplication_.py", "48"),
    Wanted("kernelbench", "5_Matrix_scalar_multiplication.py", "30,50"),
    Wanted("kernelbench", "19_ReLU.py", "30,50"),
    Wanted("kernelbench", "21_Sigmoid.py", "30,50"),
    Wanted("kernelbench", "22_Tanh.py", "30,50"),
    Wanted("kernelbench", "23_Softmax.py", "30,50"),
    Wanted("kernelbench", "25_Swish.py", "30,50"),
    Wanted("kernelbench", "26_GELU_.py", "30,50"),
    Wanted("kernelbench", "30_Softsign.py", "30,50"),
    Wanted("kernelbench", "32_HardTanh.py", "30,50"),
    Wanted("kernelbench", "36_RMSNorm_.py", "2,8,5,6"),
    Wanted("kernelbench", "47_Sum_reduction_over_a_dimension.py", "3,40,17"),
    Wanted("kernelbench", "95_CrossEntropyLoss.py", "30,50"),
)


def t1_tries(file: str, path: str) -> Iterator[Wanted]:
    """How the T1 file of that name is tried; `path` is the one that is shown and read."""
    for how in T1.get(file, ({},)):
        yield Wanted("T1", path, **how)
