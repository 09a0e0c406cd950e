"""`evo new`: a task and a template that run at once, from a .cu file or from nothing."""

from __future__ import annotations

import re
from pathlib import Path

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.importers.made import Made, check_place, writing
from evo.importers.source import WHOLE, KernelArgument, KernelSource, read_source, scalar_values

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
SIDES = (1000, 256)
"""The example's sizes, where it has two, and where it has more."""
FEW = 8
"""What a size of many that no argument says is in the example: batches."""
BLOCKS = (256, 128, 64, 512)
PLANE = ((32, 16, 64), (8, 4, 16))
"""Sides of blocks that have no default, the first of which is it: of one axis, and of x and y."""


def make_task(name: str, folder: Path, source: Path | None = None, entry: str | None = None) -> Made:
    """Writes `folder/name/{task.py, name.cu, name.py}`. UsageError where the task is there already, or the
    source has no kernel that is understood. `entry`: the kernel, where the source has several."""
    place = check_place(name, folder)
    if source is None:
        with writing(place):
            place.mkdir(parents=True)
            (place / f"{name}.cu").write_text(EXAMPLE.format(name=name))
        source = place / f"{name}.cu"
    kernel = read_source(source, entry)
    if not any(argument.role in ("out", "inout") for argument in kernel.arguments):
        raise UsageError(f"{source}: {kernel.entry} writes to no buffer", "a pointer that is not const")
    files = {
        f"{name}.cu": kernel.text,
        "task.py": _task_text(name, kernel),
        f"{name}.py": _template_text(name, kernel),
    }
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (place / file).write_text(text)
    guessed = len(kernel.sizes) > 1 and any(a.role and a.name not in kernel.shapes for a in kernel.arguments)
    what = (
        "which shape each buffer has, and in `compute` what is right"
        if guessed
        else "in `compute` what is right"
    )
    missing = "" if kernel.formula else f"{place / 'task.py'}: say {what}"
    return Made(name, tuple(place / file for file in files), missing, kernel.notes)


def _task_text(name: str, kernel: KernelSource) -> str:
    sizes = kernel.sizes
    example = {size: SIZE if len(sizes) == 1 else SIDES[len(sizes) > 2] for size in sizes}
    example |= dict.fromkeys(kernel.launch.made_up if len(sizes) > 3 else (), FEW)
    buffers = [argument for argument in (*kernel.arguments, *kernel.constants) if argument.role]
    kinds = {"in": "In", "out": "Out", "inout": "InOut"}
    dtypes = list(dict.fromkeys(b.dtype for b in buffers))
    lines = []
    for buffer in buffers:
        sides = [f'"{size}"' for size in kernel.shapes.get(buffer.name, sizes[:2])]
        sides += [str(buffer.lanes)] if buffer.lanes > 1 else []
        own = f', dtype="{buffer.dtype}"' if buffer.dtype != dtypes[0] else ""
        own += f', between=(0, "{kernel.ranges[buffer.name]}")' if buffer.name in kernel.ranges else ""
        if buffer.constant:
            sides = [str(buffer.elements)] if buffer.elements else sides[:1]
            own += f', constant="{buffer.constant}"'
        lines.append(f'        "{buffer.name}": {kinds[buffer.role]}({", ".join(sides)}{own}),')
    imported = ", ".join(sorted({kinds[b.role] for b in buffers} | {"Task"}))
    torch_line = "import torch\n\n" if any("torch." in text for text in kernel.formula.values()) else ""
    return f'''"""{name}: what is to be computed. `evo search {name}` finds the fastest kernel that does."""

{torch_line}from evo import {imported}


class Kernel(Task):
    name, sizes, dtypes = "{name}", {_as_dict(example)}, ("{dtypes[0]}",)
    # The shape of each buffer, by names of sizes or numbers. Integers: In("n", between=(0, 10)).
    tensors = {{
{chr(10).join(lines)}
    }}

    def compute(self, problem, tensors):
        """What is right, in torch. It also runs in fp64: keep the type of the inputs."""
{_compute_lines(kernel)}

    # Next: independent_rows = True, summed = ("columns",), tolerance, flags: docs/your-own-kernel.md


TASK = Kernel()
'''


def _compute_lines(kernel: KernelSource) -> str:
    written = {a.name: dtype_named(a.dtype) for a in kernel.arguments if a.role in ("out", "inout")}
    if kernel.formula:
        returned = ", ".join(f'"{name}": {_of_tensors(kernel.formula[name])}' for name in written)
        return f"        return {{{returned}}}"
    kinds = {"int": "(...).long()", "uint": "(...).long()", "bool": "(...).bool()"}
    returned = ", ".join(f"'{name}': {kinds.get(dtype.kind, '...')}" for name, dtype in written.items())
    return f'        raise NotImplementedError("say here what is right: return {{{returned}}}")'


def _as_dict(example: dict[str, int]) -> str:
    return "{" + ", ".join(f'"{name}": {size:_}' for name, size in example.items()) + "}"


def _of_tensors(formula: str) -> str:
    return re.sub(r'\bx\["', 'tensors["', formula).replace("( ", "(")


def _template_text(name: str, kernel: KernelSource) -> str:
    block, tunables = _block(kernel)
    tuned = ",\n".join(f'        "{n}": {values}' for n, values in tunables.items())
    values = scalar_values(kernel.arguments)
    given = ", ".join(_given(argument, values) for argument in kernel.arguments)
    numbers = ", ".join(f"{name} is {value}" for name, value in values.items())
    stay = ", ".join(f"{constant} is {value}" for constant, value in kernel.numbers.items())
    lines = [f"    # {stay} in {name}.cu: the launch depends on it, and it is not tuned."] if stay else []
    lines.append(f"    grid={_sides(_grid(kernel))},")
    if block != ["block_size_x", "block_size_y", "block_size_z"][: len(block)]:
        lines.append(f"    block={_sides(block)},")
    if kernel.shared:
        lines.append(f'    smem_bytes="{dtype_named(kernel.shared).nbytes} * {" * ".join(block)}",')
    if numbers:
        lines.append(f"    # In the kernel's order. Numbers that are no sizes are made up: {numbers}.")
    lines += [f"    args=[{given}],", f'    entry="{kernel.entry}",']
    one = len(block) == 1 and block[0] in tunables
    rules = [f"{' * '.join(list(tunables)[:2] if one else block)} <= 1024"]
    rules += [f"{side} % {rows} == 0" for side, rows in kernel.launch.tiles]
    rules += [f"{side.replace(' / ', ' % ')} == 0" for side in block if side.count(" / ") == 1]
    listed = ", ".join(f'"{rule}"' for rule in rules)
    if not one or len(tunables) > 1:
        lines.insert(0, f"    {'# ' if one else ''}restrictions=[{listed}],")
    return f'''"""How {name}.cu is tuned and launched."""

from evo.template import {"Cast, " if "Cast(" in given else ""}template

TEMPLATE = template(
    # Each name is a macro of {name}.cu. The first value is the default.
    tune_params={{
{tuned},
    }},
{chr(10).join(lines)}
)
'''


def _grid(kernel: KernelSource) -> list[str]:
    axes, sizes = kernel.launch.axes, kernel.sizes
    left = [size for size in reversed(sizes) if size not in {axis.size for axis in axes}] or sizes
    sides = [axis.ctas(axis.size or left[min(i, len(left) - 1)]) for i, axis in enumerate(axes)]
    return sides or ["1"]


def _block(kernel: KernelSource) -> tuple[list[str], dict[str, list[int]]]:
    """The sides of the block, and the values of all tunables. Without any the block has one value."""
    block = list(kernel.launch.block)
    if not kernel.tunables and all(side.isdigit() for side in block):
        names = ["block_size_x", "block_size_y", "block_size_z"][: len(block)]
        return names, {name: [int(side)] for name, side in zip(names, block, strict=True)}
    found: dict[str, list[int]] = {}
    for i, side in enumerate(block):
        if side not in kernel.tunables and re.fullmatch(r"block_size_[xyz]", side):
            found[side] = list(BLOCKS if len(block) == 1 else PLANE[i] if i < len(PLANE) else (1, 2, 4))
    for name, default in kernel.tunables.items():
        found[name] = _values(default, name in block, len(block) == 1)
    return block, found


def _sides(texts: list[str]) -> str:
    quoted = ", ".join(text if text.isdigit() else f'"{text}"' for text in texts)
    return quoted if len(texts) == 1 else f"[{quoted}]"


def _given(argument: KernelArgument, values: dict[str, str]) -> str:
    name, dtype = argument.name, argument.dtype
    if argument.role or dtype == "i32":
        return f'"{name}"'
    if dtype in WHOLE:
        return f'Cast("{name}", "{dtype}")'
    plain = dtype == "fp32" or dtype_named(dtype).kind == "bool"
    return values[name] if plain else f'Cast({values[name]}, "{dtype}")'


def _values(default: int, of_block: bool, alone: bool) -> list[int]:
    """The default, then its neighbours: numbers by powers of two, all threads of a block from 32 to 1024."""
    others = (
        [default // 4, default // 2, default * 2, default * 4]
        if of_block
        else [default // 2, default * 2, default * 4]
    )
    if of_block and alone:
        return [default, *(v for v in others if 32 <= v <= 1024 and v % 32 == 0)]
    if of_block:
        return [default, *(v for v in others[1:3] if 1 <= v <= 1024)]
    return [default, *dict.fromkeys(v for v in others if v >= 1 and v != default)] if default else [0, 1]
