"""`evo.tune`: one kernel, its tunables and what is right, without any file."""

from __future__ import annotations

import inspect
import os
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import cloudpickle

from evo.api.declared import Declared, declared
from evo.api.given import Given, identity, new_folder, put, text_of
from evo.api.kernel_task import KernelFacts
from evo.api.keywords import keywords_of
from evo.api.search import search
from evo.api.study import Study
from evo.cache import Cache, default_folder
from evo.compile import find_compiler
from evo.errors import MachineError, NothingFound, Uncompilable, UsageError
from evo.task import Task, Tolerance
from evo.template import template
from evo.template.macros import Macros, kernels_in, only_kernel
from evo.template.sides import Number, Sides
from evo.trial import Value

NEWEST = "sm_90a"
"""What a source is compiled for that does not say what it needs: it has all that older ones have."""
_TEMPLATE = '''"""How {name}.cu is tuned and launched, as `evo.tune` was told."""

import pickle
from pathlib import Path

from evo.template import template

TEMPLATE = template(**pickle.loads(Path(__file__).with_name("template.pickle").read_bytes()))
'''


class TuneOptions(TypedDict, total=False):
    """What `evo.tune` may be told besides. Of the template: those of evo.template.template. Of the task:
    those of evo.Task. Of the search: those of evo.search."""

    # the template
    args: Sequence[Any]
    restrictions: Iterable[str | Callable[[Any], Any]]
    defaults: Mapping[str, Value]
    meanings: Mapping[str, str]
    smem_bytes: Number
    cluster: Sides
    derived: Mapping[str, Number]
    workspaces: Mapping[str, Number]
    tiles: Callable[[Any, Any], Sequence[int]]
    needs: str
    entry: str
    deterministic: bool
    # the task
    sizes: Mapping[str, int]
    summed: tuple[str, ...]
    fixed: tuple[str, ...]
    independent_rows: bool
    tolerance: Tolerance
    # the search
    rate: float | None
    study: str | None
    strategy: str
    seed: int
    warm_start: str | Sequence[str] | None
    until: str | int
    rank: str
    accept_unproven: bool
    workers: int | None
    device: str
    gpu: str | None
    target: str | None
    smem_limit: str | int | None
    database: str | os.PathLike[str]
    cache: str | os.PathLike[str] | None
    nvcc: str | os.PathLike[str] | None
    progress: bool


_OF_TASK = ("summed", "fixed", "independent_rows", "tolerance")
_OF_TEMPLATE = frozenset(inspect.signature(template).parameters)
_OF_SEARCH = set(inspect.signature(search).parameters) - {"task", "template"}


@keywords_of("evo.tune", {*TuneOptions.__annotations__, *_OF_TEMPLATE, *_OF_SEARCH})
def tune(
    kernel: str | os.PathLike[str],
    *,
    tune_params: Mapping[str, Iterable[Value]],
    inputs: Mapping[str, Any],
    reference: Callable[..., Any],
    grid: Sides,
    block: Sides | None = None,
    budget: str | float = "1m",
    **options: Unpack[TuneOptions],
) -> Study:
    """Searches for the fastest correct values of a kernel's tunables; the study with what was found.

    `kernel`: CUDA source with one __global__ function, or the path of such a file. `tune_params`: values by
    name; each name is a macro in the source, and the first value the default. `grid`, `block`: CTAs and
    threads (x, or up to three sides), each a number, an expression over tunables and sizes ("ceil(n /
    block_size_x)"), or a function `(p, problem)`; by default the block is block_size_x, _y and _z.

    `inputs`: by the names of the kernel's arguments, and of its `__constant__` variables, tensors (torch,
    NumPy), numbers, or In, Out and InOut with `sizes={"n": 1000}`. Integers that are a side of a tensor are
    sizes: the gate tries others, with inputs of evo's families and your tensors cut to fit; other numbers
    stay. `reference`: the outputs by torch from the tensors that the kernel reads (and sizes, where its
    parameters have their names), in the precision of its inputs: it is called in fp64 for what is right.

    `options`: those of `evo.search`, of `evo.template.template` (restrictions, smem_bytes, args …) and of a
    Task (summed, independent_rows, tolerance …). A `study` of the same name and arguments goes on. Ctrl-C and
    errors are as in `evo.search`; UsageError where arguments do not fit the kernel."""
    told: dict[str, Any] = dict(options)
    entry = told.get("entry")
    text, name = _source(kernel, entry)
    folder = new_folder()
    place = folder / name
    place.mkdir()
    file = place / f"{name}.cu"
    file.write_text(text)
    try:
        found = declared(file, inputs, told.pop("sizes", {}), reference, told.pop("args", None))
    except UsageError:
        _check_compiles(file, tune_params, told)  # else what was misread is said
        raise
    of_task = {key: told.pop(key) for key in _OF_TASK if key in told}
    task = _facts(name, found, reference, place, of_task).task()
    of_template = {key: told.pop(key) for key in _OF_TEMPLATE if key in told}
    of_template |= {"tune_params": {key: list(values) for key, values in tune_params.items()}}
    of_template |= {"grid": grid, "block": block, "args": found.args}
    _check_launch(of_template, task)
    (place / "template.pickle").write_bytes(cloudpickle.dumps(of_template, pickle.DEFAULT_PROTOCOL))
    (place / f"{name}.py").write_text(_TEMPLATE.format(name=name))
    put(task, folder)
    digest = identity([text, of_template, found.sizes, found.tensors, found.numbers, reference, of_task])
    given = Given(task, folder, text_of(digest, [reference]))
    try:
        return search(given, budget=budget, template=name, **told)
    except NothingFound as error:
        if shapes := _shapes_of_reference(found, inputs):
            raise NothingFound(error.message, "; ".join([error.hint, *shapes])) from error
        raise


def _check_compiles(file: Path, tune_params: Mapping[str, Iterable[Value]], told: Mapping[str, Any]) -> None:
    """UsageError with the compiler's message where the language itself forbids the source, with the first
    value of each tunable. Nothing is said where no compiler is there, or macros are missing that follow from
    others."""
    if told.get("derived"):
        return
    first = {name: next(iter(values), 0) for name, values in tune_params.items()}
    source = Macros.of(file).render({**first, **(told.get("defaults") or {})})
    entry, cache, nvcc = told.get("entry"), told.get("cache"), told.get("nvcc")
    try:
        found = find_compiler(Path(nvcc) if nvcc else None, Cache(Path(cache) if cache else default_folder()))
        with found as compiler:
            compiler.compile(source, entry or only_kernel(file, source), told.get("needs") or NEWEST)
    except MachineError:
        return
    except Uncompilable as error:
        if error.reason.startswith("compiler error") and error.detail:
            said, *where = error.detail.splitlines()
            line = next((line.strip() for line in where if line.strip()), "the source")
            raise UsageError(f"the kernel does not compile: {said}", f"mend: {line}") from error


def _shapes_of_reference(found: Declared, inputs: Mapping[str, Any]) -> list[str]:
    """The shape of each output that has a side which no input has, where the reference said it."""
    read = {side for tensor in found.tensors.values() if tensor.role != "out" for side in tensor.dimensions}
    shapes = {
        name: tuple(found.sizes.get(str(side), side) for side in tensor.dimensions)
        for name, tensor in found.tensors.items()
        if name not in inputs and set(tensor.dimensions) - read - {1}
    }
    return [f"{name} has the shape {shape} because the reference gives it" for name, shape in shapes.items()]


def _check_launch(of_template: Mapping[str, Any], task: Task) -> None:
    """UsageError where a grid or a block cannot be, before anything is compiled."""
    for what in ("grid", "block"):
        sides = of_template[what]
        for side in sides if isinstance(sides, (list, tuple)) else [sides]:
            if isinstance(side, str) and side.strip().isdigit():
                raise UsageError(f'{what} is the text "{side}"', f"without quotes: {what}={side.strip()}")
    template(**of_template).check_launch(task)


def _facts(
    name: str,
    found: Declared,
    reference: Callable[..., Any],
    place: Path,
    of_task: Mapping[str, Any],
) -> KernelFacts:
    """What the task is made of; tensors that came with the kernel are put beside it."""
    examples = None
    if found.examples:
        import torch

        examples = place / "examples.pt"
        torch.save(found.examples, examples)
    kinds = [tensor.dtype for tensor in found.tensors.values() if tensor.dtype]
    dtype = kinds[0] if kinds else "fp32"
    more = {"fixed": found.fixed, **of_task}
    return KernelFacts(name, found.sizes, dtype, found.tensors, reference, found.numbers, examples, more)


def _source(asked: str | os.PathLike[str], entry: str | None) -> tuple[str, str]:
    """The kernel's source, and the name of its task: that of the function, in small letters."""
    text = asked if isinstance(asked, str) else ""
    if "__global__" not in text:
        try:
            text = Path(asked).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            hint = "CUDA source with a __global__ function, or the path of a file with it"
            raise UsageError(f"cannot read the kernel: {str(asked)[:80]}", hint) from error
    entries = [entry] if entry else kernels_in(text)
    if len(entries) != 1:
        hint = f'entry="{entries[0]}"' if entries else "__global__ void NAME(...) is missing"
        raise UsageError(f"the source has {len(entries)} kernels: {', '.join(entries) or 'none'}", hint)
    name = re.sub(r"\W", "_", entries[0]).lower().lstrip("_")
    return text, name if re.match("[a-z]", name) else f"kernel_{name}"
