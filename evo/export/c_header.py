"""A C header: cubins, launches, a table and a loader, for programs without Python. Nothing is linked but
libdl and libm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.export.bundle import Bundle, Exported
from evo.export.python import write_kernels
from evo.export.readme import readme
from evo.launch.dispatch import Number, flags_text
from evo.launch.plans import ELEMENTS, SWIZZLES

LOADER = Path(__file__).with_name("loader.h")
_TYPES = {
    "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "u16": "uint16_t", "i32": "int32_t", "u32": "uint32_t",
    "i64": "int64_t", "u64": "uint64_t", "bool": "_Bool", "f32": "float", "fp32": "float", "f64": "double",
    "fp64": "double",
}  # fmt: skip
_BYTES_A_LINE = 24
ALIGNED = 256
"""Bytes: where workspaces begin."""


def write_c(bundle: Bundle, folder: Path, library: Path | None) -> None:  # noqa: ARG001
    """MODULE.h, the loader that it includes, README.md, and sources and provenance."""
    write_kernels(bundle, folder)
    (folder / "evo_loader.h").write_text(LOADER.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / f"{bundle.module}.h").write_text("\n".join(_header(bundle)) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_readme(bundle), encoding="utf-8")


def _header(bundle: Bundle) -> Iterator[str]:
    module, sizes = bundle.module, tuple(bundle.task.sizes)
    yield f"/* Kernels of {bundle.task.name}: README.md says how they are called. */"
    yield "#pragma once"
    yield '#include "evo_loader.h"'
    for one in bundle.kernels:
        yield from _kernel(one, bundle, sizes)
    yield f"static const evo_kernel {module}_kernels[] = {{"
    yield from (f"    {_row(one, sizes)}," for one in bundle.kernels)
    yield "};"
    yield f"enum {{ {module}_count = sizeof {module}_kernels / sizeof *{module}_kernels }};"


def _kernel(one: Exported, bundle: Bundle, sizes: Sequence[str]) -> Iterator[str]:
    cubin = one.binaries[one.champion.arch].cubin
    yield f"\nstatic const _Alignas(16) unsigned char {one.name}_cubin[] = {{"
    for at in range(0, len(cubin), _BYTES_A_LINE):
        yield "    " + "".join(f"{byte}," for byte in cubin[at : at + _BYTES_A_LINE])
    yield "};"
    buffers = [buffer.name for buffer in bundle.task.buffers(one.champion.problem)]
    launch, spaces = one.reach.launch, _spaces(one)
    places = {name: f"buffer[{at}]" for at, name in enumerate(buffers)}
    places |= {name: f"workspace + offset[{at}]" for at, name in enumerate(spaces)}
    yield from _offsets(one, spaces, sizes)
    yield f"static int {one.name}_fill(const evo_driver *driver, const int64_t *size, void *const *buffer,"
    yield "                            char *workspace, evo_launch *launch) {"
    yield "    (void)driver, (void)size, (void)buffer, (void)workspace;"
    if spaces:
        yield f"    int64_t offset[{len(spaces)}], zeroed;"
        yield f"    {one.name}_workspaces(size, offset, &zeroed);"
    for side, said in enumerate(launch["grid"]):
        yield f"    launch->grid[{side}] = (unsigned)({_number(said, sizes)});"
    for at, arg in enumerate(launch["args"]):
        yield from (f"    {line}" for line in _argument(at, arg, places, sizes))
    yield "    return 0;"
    yield "}"


def _spaces(one: Exported) -> dict[str, Mapping[str, Any]]:
    """Its workspaces by name, those that begin with zeros first."""
    return {space["name"]: space for space in sorted(one.reach.launch["workspaces"], key=_begins_unset)}


def _begins_unset(space: Mapping[str, Any]) -> bool:
    return not space["zeroed"]


def _offsets(one: Exported, spaces: Mapping[str, Mapping[str, Any]], sizes: Sequence[str]) -> Iterator[str]:
    """A function that says where each workspace lies, how much is to be zero, and how much all take."""
    if not spaces:
        return
    yield f"static int64_t {one.name}_workspaces(const int64_t *size, int64_t *offset, int64_t *zeroed) {{"
    yield "    int64_t end = 0;"
    yield "    (void)size, *zeroed = 0;"
    for at, space in enumerate(spaces.values()):
        room = f"{ALIGNED} * evo_parts({_number(space['nbytes'], sizes)}, {ALIGNED})"
        yield f"    offset[{at}] = end, end += {room};"
        if space["zeroed"]:
            yield "    *zeroed = end;"
    yield "    return end;"
    yield "}"


def _argument(
    at: int, arg: Mapping[str, Any], places: Mapping[str, str], sizes: Sequence[str]
) -> Iterator[str]:
    if arg["kind"] == "scalar":
        value = _number(arg["value"], sizes)
        kind = _TYPES[arg["type"]]
        yield f"*({kind} *)launch->argument[{at}] = ({kind})({value});"
    elif arg["kind"] == "buffer":
        yield f"*(void **)launch->argument[{at}] = {places[arg['buffer']]};"
    else:
        rank = len(arg["shape"])
        shape = ", ".join(f"(uint64_t)({_number(n, sizes)})" for n in arg["shape"])
        steps = (*arg["strides"], 0)[: max(1, rank - 1)]
        strides = ", ".join(f"(uint64_t)({_number(n, sizes)})" for n in steps)
        yield f"const uint64_t shape_{at}[] = {{{shape}}}, strides_{at}[] = {{{strides}}};"
        yield f"const uint32_t box_{at}[] = {{{', '.join(map(str, arg['box']))}}};"
        address = places[arg["buffer"]]
        yield f"if (evo_map(driver, launch->argument[{at}], {ELEMENTS[arg['dtype']]}, {rank}, {address},"
        yield f"            shape_{at}, strides_{at}, box_{at}, {SWIZZLES[arg['swizzle']]})) return 1;"


def _number(said: Number, sizes: Sequence[str]) -> str:
    """As a C expression."""
    if not isinstance(said, Mapping):
        return repr(said)
    parts = [f"evo_parts(size[{sizes.index(name)}], {part})" for name, part in said["of"]]
    if "over" in said:
        parts = [f"evo_some({' * '.join(parts)}, {said['over']})"]
    product = " * ".join([str(said["times"]), *parts])
    return f"evo_least({product}, {said['most']})" if "most" in said else product


def _row(one: Exported, sizes: Sequence[str]) -> str:
    problem, launch = one.champion.problem, one.reach.launch
    ranges = one.reach.ranges
    arch = one.champion.arch.removeprefix("sm_")
    block, cluster = (", ".join(map(str, launch[name])) for name in ("block", "cluster"))
    lists = (
        [problem.sizes[name] for name in sizes],
        *([ranges[name][at] for name in sizes] for at in range(3)),
    )
    listed = ("{" + ", ".join(map(str, numbers)) + "}" for numbers in lists)
    names = (one.name, one.champion.record["entry"], problem.dtype, flags_text(problem.flags).strip())
    about = ", ".join(f'"{name}"' for name in names)
    major, minor = arch.rstrip("af")[:-1], arch.rstrip("af")[-1]
    workspaces = f"{one.name}_workspaces" if launch["workspaces"] else "0"
    return (
        f"{{{about}, {one.name}_cubin, {major}, {minor}, {int(arch.endswith('a'))}, {len(sizes)}, "
        f"{', '.join(listed)}, {{{block}}}, {{{cluster}}}, {int(bool(launch.get('cooperative')))}, "
        f"{launch['smem_bytes']}, {len(launch['args'])}, {one.name}_fill, {workspaces}}}"
    )


def _readme(bundle: Bundle) -> str:
    task, sizes = bundle.task, ", ".join(bundle.task.sizes)
    buffers = ", ".join(buffer.name for buffer in task.buffers(task.example))
    use = _USE.format(module=bundle.module, sizes=sizes, buffers=buffers, dtype=task.dtypes[0])
    times = readme(bundle)
    return f"# {task.name}\n\n{use}\n{times[times.index('| GPU') :]}"


_USE = """`{module}.h` has the kernels, each for its own architecture, and `evo_loader.h` what loads and
launches them, in plain C. It opens the driver by itself: link with `-ldl -lm`.

```c
#include "{module}.h"

evo_driver driver;                       /* once; the context must be current */
if (evo_open(&driver)) return 1;         /* no driver */
int64_t size[] = {{...}};                  /* {sizes} */
void *buffer[] = {{...}};                  /* {buffers}: addresses on the GPU */
const evo_kernel *kernel = evo_find({module}_kernels, {module}_count, major, minor, "{dtype}", "", size);
evo_loaded loaded;                       /* once for each kernel and context */
if (!kernel || evo_load(&driver, kernel, &loaded)) return 1;
int64_t room = evo_workspace_bytes(kernel, size);     /* memory of the GPU that the call needs, mostly 0 */
evo_run(&driver, &loaded, size, buffer, workspace, stream);      /* `workspace`: `room` bytes, or NULL */
```

The text after the dtype names the flags that are set (`"FLAG=True"`). Functions give 0, or what the driver
says. The kernel is the nearest one whose code serves the sizes; NULL where none does. A workspace begins at
a multiple of 256 bytes, may hold anything before, and is for one call at a time: of one stream, or of one
CUDA graph.
"""
