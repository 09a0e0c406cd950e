"""`evo new`: a task and a template that run at once, from a .cu file or from nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from evo.errors import UsageError
from evo.importers.source import SCALAR, WHOLE, KernelSource, read_source

_NAME = re.compile(r"[a-z][a-z0-9_]*")
EXAMPLE = """// y = 2 x + y, each thread a few elements.
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 1
#endif

__global__ void {name}(const float* x, float* y, int n) {{
  for (int j = 0; j < per_thread; ++j) {{
    const int i = (blockIdx.x * per_thread + j) * block_size_x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + y[i];
  }}
}}
"""
SIZE = 1_000_000
"""The example's number of elements, where a kernel has one size."""
SIDE = 1000
"""The example's sizes, where it has several."""


@dataclass(frozen=True)
class Made:
    """The files of a new task, and what is still to be written, if anything is."""

    name: str
    files: tuple[Path, ...]
    missing: str
    notes: tuple[str, ...] = ()
    """What a person should know of how it was made."""


def make_task(name: str, folder: Path, source: Path | None = None) -> Made:
    """Writes `folder/name/{task.py, name.cu, name.py}`. UsageError where the task is there already, or the
    source has no kernel that is understood."""
    place = check_place(name, folder)
    if source is None:
        place.mkdir(parents=True)
        (place / f"{name}.cu").write_text(EXAMPLE.format(name=name))
        source = place / f"{name}.cu"
    kernel = read_source(source)
    place.mkdir(parents=True, exist_ok=True)
    files = {
        f"{name}.cu": kernel.text,
        "task.py": _task_text(name, kernel),
        f"{name}.py": _template_text(name, kernel),
    }
    for file, text in files.items():
        (place / file).write_text(text)
    missing = "" if kernel.formula else f"{place / 'task.py'}: say in `compute` what is right"
    return Made(name, tuple(place / file for file in files), missing)


def check_place(name: str, folder: Path) -> Path:
    """The folder of a task that is to be made. UsageError for a name that cannot be, or one that is taken."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"unusable name: {name}", "small letters, digits and _: my_kernel")
    if (folder / name).exists():
        raise UsageError(f"{folder / name} is there already", "choose another name, or remove it")
    return folder / name


def task_name(text: str) -> str:
    """A name that a task may have, made of another: `19_ReLU` is relu."""
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return words if words[:1].isalpha() else f"task_{words}".rstrip("_")


def _sizes(kernel: KernelSource) -> list[str]:
    whole = [a.name for a in kernel.arguments if not a.role and a.dtype in WHOLE]
    return whole or ["n"]


def _task_text(name: str, kernel: KernelSource) -> str:
    sizes = _sizes(kernel)
    example = {size: SIZE if len(sizes) == 1 else SIDE for size in sizes}
    dimensions = ", ".join(f'"{size}"' for size in sizes)
    buffers = [argument for argument in kernel.arguments if argument.role]
    kinds = {"in": "In", "out": "Out", "inout": "InOut"}
    dtypes = list(dict.fromkeys(b.dtype for b in buffers))
    lines = []
    for buffer in buffers:
        own = f', dtype="{buffer.dtype}"' if buffer.dtype != dtypes[0] else ""
        lines.append(f'        "{buffer.name}": {kinds[buffer.role]}({dimensions}{own}),')
    imported = ", ".join(sorted({kinds[b.role] for b in buffers} | {"Task"}))
    dtype = f'"{dtypes[0]}"' if dtypes else ""
    torch_line = "import torch\n\n" if any("torch." in text for text in kernel.formula.values()) else ""
    return f'''"""{name}: what is to be computed. `evo search {name}` finds the fastest kernel that does."""

{torch_line}from evo import {imported}


class Kernel(Task):
    name, sizes, dtypes = "{name}", {_as_dict(example)}, ({dtype},)
    # The shape of each buffer, by names of sizes or numbers. Integers: In("n", between=(0, 10)).
    tensors = {{
{chr(10).join(lines)}
    }}

    def compute(self, problem, x):
        """What is right, in torch. It also runs in fp64: keep the type of the inputs."""
{_compute_lines(kernel)}

    # Next: independent_rows = True, summed = ("columns",), tolerance, flags: docs/your-own-kernel.md


TASK = Kernel()
'''


def _compute_lines(kernel: KernelSource) -> str:
    outputs = [argument.name for argument in kernel.arguments if argument.role in ("out", "inout")]
    if kernel.formula:
        returned = ", ".join(f'"{name}": {kernel.formula[name]}' for name in outputs)
        return f"        return {{{returned}}}"
    returned = ", ".join(f"'{name}': ..." for name in outputs)
    return f'        raise NotImplementedError("say here what is right: return {{{returned}}}")'


def _as_dict(example: dict[str, int]) -> str:
    return "{" + ", ".join(f'"{name}": {size:_}' for name, size in example.items()) + "}"


def _template_text(name: str, kernel: KernelSource) -> str:
    sizes = _sizes(kernel)
    tunables = {n: _values(n, default) for n, default in kernel.tunables.items()}
    block = [n for n in kernel.block if _is_block(n)]
    block_line = ""
    if not block:
        tunables = {"block_size_x": [128, 64, 256, 512], **tunables}
        block = ["block_size_x"]
    elif block != ["block_size_x"]:
        sides = ", ".join(f'"{n}"' for n in block)
        block_line = f"    block=[{sides}],\n"
    steps = " * ".join(dict.fromkeys([*block[:1], *(n for n in kernel.block if n not in block)]))
    grid = [f'"ceil({sizes[-1]} / ({steps}))"']
    grid += [f'"ceil({size} / {side})"' for size, side in zip(reversed(sizes[:-1]), block[1:], strict=False)]
    tuned = ",\n".join(f'        "{n}": {values}' for n, values in tunables.items())
    given = ", ".join(_given(argument.name, argument.role, argument.dtype) for argument in kernel.arguments)
    cast = ", Cast" if "Cast(" in given else ""
    grid_text = grid[0] if len(grid) == 1 else f"[{', '.join(grid)}]"
    return f'''"""How {name}.cu is tuned and launched."""

from evo.template import {"Cast, " if cast else ""}template

TEMPLATE = template(
    # Each name is a macro of {name}.cu. The first value is the default.
    tune_params={{
{tuned},
    }},
    # restrictions=["block_size_x * per_thread <= 1024"],
    grid={grid_text},
{block_line}    args=[{given}],
    entry="{kernel.entry}",
)
'''


def _given(name: str, role: str, dtype: str) -> str:
    if role or dtype == "i32":
        return f'"{name}"'
    return f'Cast("{name}", "{dtype}")' if dtype in WHOLE else f'Cast({SCALAR}, "{dtype}")'


def _is_block(name: str) -> bool:
    return bool(re.search(r"block|threads|bdim", name, re.IGNORECASE))


def _values(name: str, default: int) -> list[int]:
    """The default, then its neighbours: threads by powers of two from 32 to 1024, other numbers likewise."""
    if _is_block(name):
        others = [default // 4, default // 2, default * 2, default * 4]
        return [default, *(v for v in others if 32 <= v <= 1024 and v % 32 == 0)]
    others = [default // 2, default * 2, default * 4] if default else [1]
    return [default, *dict.fromkeys(v for v in others if v >= 1 and v != default)]
