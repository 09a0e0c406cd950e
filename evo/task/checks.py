"""What an author of a task may get wrong in what it declares, each said with file, line and what to write
instead, when the task is loaded. It needs no torch: computed.py looks at what the task computes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from evo.dtype import is_dtype, types_hint
from evo.errors import kind_of
from evo.task.author import Author
from evo.task.families import Families
from evo.task.flags import Flag
from evo.task.task import Task, Tolerance
from evo.task.tensors import BufferSpec, DeclaredTensor
from evo.trial import MEAN, PLAIN, WORST, Problem


def check_declarations(task: Task, path: Path) -> None:
    """Raises BadTemplate for the first thing that a task declares and that cannot be."""
    author = Author(task, path)
    _check_names(author, path.parent.name)
    _check_kinds(author)
    _check_problems(author)
    _check_tensors_declared(author)
    _check_buffers(author)
    _check_work(author)


def _check_names(author: Author, folder: str) -> None:
    task = author.task
    name = getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        author.refuse("name", "the task has no name", f'name = "{folder}", the name of its folder')
    if name != folder:
        author.refuse(
            "name", f"the task is named {name} and its folder {folder}", f'name = "{folder}", or rename one'
        )
    sizes = getattr(task, "sizes", None)
    if isinstance(sizes, str) or not isinstance(sizes, (Sequence, Mapping)) or not sizes:
        author.refuse("sizes", "the task has no sizes", 'sizes = {"rows": 4096, "columns": 1024}')
    for size in sizes:
        if not isinstance(size, str) or not size.isidentifier():
            author.refuse("sizes", f"a size is named {size!r}", 'a name as in Python: "rows"')
    if len(set(sizes)) != len(sizes):
        author.refuse(
            "sizes", f"a size is named twice: {', '.join(sizes)}", "each size has a name of its own"
        )
    if clash := set(sizes) & set(task.flags):
        author.refuse("flags", f"{min(clash)} is a size and a flag", "rename one")


def _check_kinds(author: Author) -> None:
    """Whether what is declared is of the type that it has to be."""
    task = author.task
    _check_size_names(author)
    if isinstance(task.dtypes, str) or not task.dtypes:
        author.refuse("dtypes", f"dtypes is {task.dtypes!r}", 'a tuple: dtypes = ("fp16", "bf16")')
    for dtype in task.dtypes:
        if not isinstance(dtype, str) or not is_dtype(dtype):
            author.refuse("dtypes", f"there is no storage type {dtype!r}", types_hint(dtype))
    if not isinstance(task.families, Families):
        hint = 'families = Families(plain="normal", sharp="peaky")'
        author.refuse("families", f"families is {kind_of(task.families)}", hint)
    for name in task.families.names:
        if not isinstance(name, str) or not name:
            author.refuse("families", f"a family is named {name!r}", "each is a name that `inputs` takes")
    _check_timing_inputs(author)
    if not isinstance(task.tolerance, Tolerance):
        hint = "tolerance = Tolerance(row_floor=2)"
        author.refuse("tolerance", f"tolerance is {kind_of(task.tolerance)}", hint)
    _check_flags_and_groups(author)
    own = type(task)
    if own.compute is Task.compute and own.reference is Task.reference:
        hint = "def compute(self, problem, inputs): return the output by torch"
        author.refuse(own.__name__, "the task defines neither compute nor reference", hint)
    if not task.tensors and (own.buffers is Task.buffers or own.inputs is Task.inputs):
        hint = 'tensors = {"x": In("rows"), "y": Out("rows")}'
        author.refuse(own.__name__, "the task declares no tensors", hint)


def _check_size_names(author: Author) -> None:
    """Whether what names sizes and tensors has the form for that, and the names are known."""
    task = author.task
    if not isinstance(task.tensors, Mapping):
        hint = 'tensors = {"x": In("rows"), "y": Out("rows")}'
        author.refuse("tensors", f"tensors is {kind_of(task.tensors)}", hint)
    for place, named in (("fixed", task.fixed), ("summed", task.summed)):
        if isinstance(named, str):
            author.refuse(place, f"{place} is a text", f'a tuple: {place} = ("{named}",)')
        if unknown := set(named) - set(task.sizes):
            hint = f"sizes: {', '.join(task.sizes)}"
            author.refuse(place, f"{place} names {min(unknown)}, which is no size", hint)


def _check_timing_inputs(author: Author) -> None:
    """Whether kernels can be timed on what the task names, and the plain family first."""
    named, plain = author.task.timing_inputs, author.task.families.plain
    hint = f'timing_inputs = {{"{plain}": "why it is there", ...}}, the plain family first'
    if not isinstance(named, Mapping) or next(iter(named), None) != plain:
        author.refuse("timing_inputs", "timing_inputs does not begin with the plain family", hint)
    for name, why in named.items():
        if not isinstance(name, str) or not name or not isinstance(why, str) or not why:
            author.refuse("timing_inputs", f"timing input {name!r} does not say why it is there", hint)
        if name in (WORST, MEAN, PLAIN):
            author.refuse("timing_inputs", f"no timing input can be named {name}", "it is a ranking's name")


def _check_flags_and_groups(author: Author) -> None:
    task = author.task
    if not isinstance(task.flags, Mapping):
        author.refuse("flags", f"flags is {kind_of(task.flags)}", 'flags = {"fast": Flag()}')
    for name, flag in task.flags.items():
        if not isinstance(flag, Flag):
            hint = f'flags = {{"{name}": Flag(meaning="...")}}'
            author.refuse("flags", f"flag {name} is {kind_of(flag)}", hint)
        if flag.default not in flag.values:
            author.refuse("flags", f"flag {name} cannot be its default", f"one of {flag.values}")
    for group, names in task.baseline_groups.items():
        if isinstance(names, str):
            hint = f'baseline_groups = {{"{group}": ("{names}",)}}'
            author.refuse("baseline_groups", f"group {group} is a text", hint)


def _check_problems(author: Author) -> None:
    task = author.task
    if not isinstance(task.problems, Mapping) or not task.problems or not all(task.problems.values()):
        hint = 'sizes = {"n": 1024} has an example; else problems = {"small": (Problem(...),)}'
        place = "problems" if "problems" in vars(type(task)) else "sizes"
        author.refuse(place, "the task has no problem", hint)
    for name, problems in task.problems.items():
        for problem in problems:
            if not isinstance(problem, Problem):
                hint = f'Problem("{task.name}", {{"n": 1024}}, "fp32")'
                author.refuse("problems", f"{name} holds {kind_of(problem)}", hint)
            if tuple(problem.sizes) != tuple(task.sizes):
                hint = f"sizes: {', '.join(task.sizes)}"
                author.refuse("problems", f"a problem of {name} has sizes {', '.join(problem.sizes)}", hint)
            if problem.task != task.name:
                author.refuse("problems", f"a problem of {name} is of task {problem.task}", task.name)
            if set(problem.flags) != set(task.flags):
                hint = f"flags: {', '.join(task.flags) or 'none'}"
                author.refuse("problems", f"a problem of {name} has other flags than the task", hint)
            if problem.dtype not in task.dtypes:
                hint = f"dtypes: {', '.join(task.dtypes)}"
                author.refuse("problems", f"a problem of {name} is in {problem.dtype}", hint)
            for size, number in problem.sizes.items():
                if _whole(number) is None or number < 1:
                    author.refuse("sizes", f"size {size} is {number!r}", "a whole number from 1 on")


def _check_tensors_declared(author: Author) -> None:
    task = author.task
    for name, tensor in task.tensors.items():
        if not isinstance(tensor, DeclaredTensor):
            hint = f'"{name}": In("{next(iter(task.sizes))}")'
            author.refuse("tensors", f"tensor {name} is {kind_of(tensor)}", hint)
        if tensor.dtype is not None and not is_dtype(tensor.dtype):
            author.refuse("tensors", f"tensor {name} has a dtype {tensor.dtype!r}", types_hint(tensor.dtype))
        for dimension in tensor.dimensions:
            if isinstance(dimension, str) and dimension not in task.sizes:
                hint = f"a size ({', '.join(task.sizes)}), a whole number, or a function of the problem"
                author.refuse("tensors", f"tensor {name} has a dimension {dimension!r}", hint)
        for flag in {tensor.when, tensor.gap} - {None, *task.flags}:
            known = f"flags: {', '.join(task.flags) or 'none'}"
            author.refuse("tensors", f"tensor {name} names a flag {flag!r}", known)
        for end in tensor.between or ():
            if isinstance(end, str) and end not in task.sizes:
                hint = "numbers, or a size's name: between=(0, 10)"
                author.refuse("tensors", f"tensor {name} has values up to {end!r}", hint)
        if tensor.between is not None:
            low, high = tensor.range_of(task.example) or (0, 1)
            if not low < high:
                hint = "the lower end first: between=(0, 10)"
                author.refuse("tensors", f"tensor {name} has no value between {low} and {high}", hint)


def _check_buffers(author: Author) -> None:
    task = author.task
    place = "tensors" if type(task).buffers is Task.buffers else "buffers"
    buffers = author.ask(place, lambda: tuple(task.buffers(task.example)), "a tuple of BufferSpec")
    for buffer in buffers:
        if not isinstance(buffer, BufferSpec):
            hint = 'BufferSpec("x", (rows, columns), problem.dtype, "in")'
            author.refuse(place, f"a buffer is {kind_of(buffer)}", hint)
        if not isinstance(buffer.name, str) or not buffer.name.isidentifier():
            author.refuse(place, f"a buffer is named {buffer.name!r}", 'a name as in Python: "x"')
        if buffer.role not in ("in", "out", "inout"):
            author.refuse(place, f"buffer {buffer.name} is {buffer.role!r}", '"in", "out" or "inout"')
        if not is_dtype(buffer.dtype):
            hint = types_hint(buffer.dtype)
            author.refuse(place, f"buffer {buffer.name} has a dtype {buffer.dtype!r}", hint)
        if not isinstance(buffer.shape, tuple) or not buffer.shape:
            author.refuse(place, f"buffer {buffer.name} has the shape {buffer.shape!r}", "a tuple: (rows,)")
        if any(_whole(side) is None or side < 1 for side in buffer.shape):
            hint = "whole numbers from 1 on; divide with //"
            author.refuse(place, f"buffer {buffer.name} has the shape {buffer.shape}", hint)
    _check_constants(author, place, buffers)
    names = [buffer.name for buffer in buffers]
    if len(set(names)) != len(names):
        author.refuse(place, f"a buffer is there twice: {', '.join(names)}", "each has a name of its own")
    if clash := set(names) & set(task.sizes):
        author.refuse(place, f"{min(clash)} is a buffer and a size", "rename one")
    if not any(buffer.written for buffer in buffers):
        author.refuse(place, "no buffer is written", 'one is Out("rows"), or InOut("rows")')


def _check_constants(author: Author, place: str, buffers: Sequence[BufferSpec]) -> None:
    """Whether what lies in constant memory has a variable of its own, and is only read."""
    held: dict[str, str] = {}
    for name, variable in ((one.name, one.constant) for one in buffers if one.constant is not None):
        if not isinstance(variable, str) or not variable.isidentifier():
            hint = f'the name of a __constant__ variable: constant="d_{name}"'
            author.refuse(place, f"tensor {name} has constant={variable!r}", hint)
        if variable in held:
            what = f"tensors {held[variable]} and {name} are both in the constant {variable}"
            author.refuse(place, what, "each has a variable of its own")
        held[variable] = name
    if written := [one.name for one in buffers if one.constant and one.role != "in"]:
        what = f"tensor {written[0]} is written, and in constant memory"
        author.refuse(place, what, "only In(...) has constant=")


def _check_work(author: Author) -> None:
    task, example = author.task, author.task.example
    for name in ("flop", "nbytes"):
        count = author.ask(name, partial(getattr(task, name), example), "a whole number")
        if _whole(count) is None or count <= 0:
            author.refuse(name, f"{name} gives {count!r}", "a whole number above 0; divide with //")
    for tiles in ((), (16, 32)):
        problems = author.ask("gate_problems", partial(task.gate_problems, example, tiles), "problems")
        if not problems or not all(isinstance(problem, Problem) for problem in problems):
            author.refuse("gate_problems", "gate_problems gives no problems", "a tuple of small Problems")
        if any(problem.flags != example.flags or problem.dtype != example.dtype for problem in problems):
            hint = "the same kernel must solve them: problem.replace(rows=17)"
            author.refuse("gate_problems", "a gate problem has other flags or another dtype", hint)


def _whole(number: object) -> int | None:
    """The whole number that it is (numpy's are taken); None where it is none."""
    if isinstance(number, bool):
        return None
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        return None
