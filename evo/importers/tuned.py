"""A kernel as another tuner's file describes it, and the task and template that are written from that."""

from __future__ import annotations

import ast
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo.errors import UsageError
from evo.importers.made import Made, check_place, tuple_text
from evo.importers.script import substituted
from evo.space.expression import Expression

TEXT = re.compile(r"[A-Za-z0-9_.+-]*")
"""What the values of a tunable may be, besides numbers."""
BLOCK = ("block_size_x", "block_size_y", "block_size_z")


@dataclass(frozen=True)
class TunedArgument:
    """One argument. `dimensions` and `value` are expressions over the sizes; a buffer has a role."""

    name: str
    dtype: str
    role: str = ""
    dimensions: tuple[str, ...] = ()
    value: str = ""
    between: tuple[str, str] | None = None
    constant: str = ""
    """The `__constant__` variable that it fills."""


@dataclass(frozen=True)
class TunedKernel:
    """What a file of another tuner says of a kernel. All texts are expressions that were parsed."""

    origin: str
    """Where it comes from, for a person."""
    text: str
    entry: str
    sizes: Mapping[str, int]
    arguments: Sequence[TunedArgument]
    tunables: Mapping[str, Sequence[Any]]
    grid: Sequence[str]
    block: Sequence[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    restrictions: Sequence[str] = ()
    macros: Mapping[str, str] = field(default_factory=dict)
    """Macros that are no tunables."""
    constants: Sequence[TunedArgument] = ()
    """Buffers in constant memory that are no arguments."""
    smem: str = "0"
    compute: str = ""
    """What is right, in torch over `x["name"]`; nothing where the file does not say it."""
    summed: Sequence[str] = ()
    """Sizes that `compute` adds up along."""
    formula: str = ""
    """What the kernel itself computes of each element, where that was understood. It proves nothing."""
    why_no_compute: str = ""
    linked: bool = True
    """Whether all that depends on a size is written as an expression over it."""
    reference: Path | None = None
    """A file of arrays: inputs, and outputs that are right."""
    notes: Sequence[str] = ()

    @property
    def buffers(self) -> list[TunedArgument]:
        return [argument for argument in (*self.arguments, *self.constants) if argument.role]

    @property
    def outputs(self) -> list[TunedArgument]:
        return [argument for argument in self.buffers if argument.role != "in"]

    @property
    def fixed(self) -> list[str]:
        """Sizes that the kernel is not told at each launch, or all: they are in its code."""
        if not self.linked:
            return list(self.sizes)
        given = " ".join(argument.value for argument in self.arguments if not argument.role)
        baked = " ".join(self.macros.values())
        words, kept = (set(re.findall(r"[A-Za-z_]\w*", text)) for text in (given, baked))
        return [size for size in self.sizes if size not in words or size in kept]


def write_task(name: str, folder: Path, kernel: TunedKernel) -> Made:
    """Writes `folder/name/{task.py, name.cu, name.py}`. UsageError where the task is there already."""
    place = check_place(name, folder)
    if not kernel.outputs:
        raise UsageError(f"{kernel.origin}: no argument is written", "an array that the kernel fills")
    place.mkdir(parents=True)
    texts = {
        "task.py": _task_text(name, kernel),
        f"{name}.cu": f"// From {kernel.origin}.\n{textwrap.dedent(kernel.text).strip()}\n",
        f"{name}.py": _template_text(name, kernel),
    }
    for file, text in texts.items():
        (place / file).write_text(text)
    files = tuple(place / file for file in texts)
    if kernel.reference is not None:
        shutil.copyfile(kernel.reference, place / "reference.npz")
        files = (*files, place / "reference.npz")
    missing = "" if kernel.compute or kernel.reference else _missing(place / "task.py", kernel)
    return Made(name, files, missing, tuple(kernel.notes))


def _missing(task: Path, kernel: TunedKernel) -> str:
    line = 1 + task.read_text().splitlines().index(_raises(kernel))
    return f"{task}:{line}: say in `compute` what is right: {kernel.why_no_compute}"


def _raises(kernel: TunedKernel) -> str:
    named = ", ".join(f"'{argument.name}': ..." for argument in kernel.outputs)
    return f'        raise NotImplementedError("say here what is right: return {{{named}}}")'


def _task_text(name: str, kernel: TunedKernel) -> str:
    kinds = {"in": "In", "out": "Out", "inout": "InOut"}
    storage = next(b.dtype for b in (*kernel.outputs, *kernel.buffers))
    lines = [
        f'        "{b.name}": {kinds[b.role]}({_dimensions(b, kernel.sizes)}{_options(b, storage)}),'
        for b in kernel.buffers
    ]
    given = kernel.reference is not None
    names = sorted({kinds[b.role] for b in kernel.buffers} | (set() if given else {"Task"}))
    imported = f"from evo import {', '.join(names)}\n"
    if given:
        imported = f"from pathlib import Path\n\n{imported}from evo.importers.given import GivenTask\n"
    if "torch." in kernel.compute:
        imported = f"import torch\n\n{imported}"
    if "math." in "".join(lines):
        imported = f"import math\n\n{imported}"
    base = "GivenTask" if given else "Task"
    sizes = ", ".join(f'"{size}": {value}' for size, value in kernel.sizes.items())
    notes = "".join(f"\n{note[0].upper()}{note[1:]}." for note in kernel.notes)
    notes = f"\n{notes}\n" if notes else ""
    fixed = [] if given else kernel.fixed
    more = f"    fixed = {tuple_text(fixed)}  # in the kernel's code\n" if fixed else ""
    if kernel.summed and kernel.compute:
        more += f"    summed = {tuple_text(kernel.summed)}\n"
    return f'''"""{name}: from {kernel.origin}.{notes}"""

{imported}

class Kernel({base}):
    name, sizes, dtypes = "{name}", {{{sizes}}}, ("{storage}",)
{more}    tensors = {{
{chr(10).join(lines)}
    }}
{_right(kernel)}

TASK = Kernel()
'''.replace("\n\n\n\n", "\n\n\n")


def _right(kernel: TunedKernel) -> str:
    if kernel.reference is not None:
        return '    file = Path(__file__).with_name("reference.npz")\n'
    body = f"        return {kernel.compute}" if kernel.compute else _raises(kernel)
    if kernel.formula and not kernel.compute:
        body = (
            f"        # This is what the kernel does; if it is right, it is: return {kernel.formula}\n{body}"
        )
    return f"""
    def compute(self, problem, x):
        \"\"\"What is right, in torch. It also runs in fp64: keep the type of the inputs.\"\"\"
{body}
"""


def _dimensions(argument: TunedArgument, sizes: Mapping[str, int]) -> str:
    def one(text: str) -> str:
        if text in sizes:
            return f'"{text}"'
        return text if text.isdigit() else f"lambda p: int({in_python(text, sizes, 'p')})"

    return ", ".join(one(text) for text in argument.dimensions)


def _options(argument: TunedArgument, storage: str) -> str:
    found = f', dtype="{argument.dtype}"' if argument.dtype != storage else ""
    found += f', constant="{argument.constant}"' if argument.constant else ""
    if argument.between and argument.role != "out":
        found += f", between=({', '.join(argument.between)})"
    return found


def in_python(text: str, sizes: Mapping[str, int], variable: str) -> str:
    """An expression over sizes as Python over a problem: `n + 1` is `p["n"] + 1`."""
    found = substituted(text, {size: f"{variable}[{size!r}]" for size in sizes}).replace("'", '"')
    return re.sub(r"\b(ceil|floor)\(", r"math.\1(", found)


def _template_text(name: str, kernel: TunedKernel) -> str:
    tuned = "".join(_wrapped(f'        "{n}": {_listed(v)},') + "\n" for n, v in kernel.tunables.items())
    lines = [f"    tune_params={{\n{tuned}    }},"]
    if kernel.defaults:
        lines.append(f"    defaults={_as_dict(kernel.defaults)},")
    if kernel.restrictions:
        rules = "".join(f"        {_quoted(rule)},\n" for rule in kernel.restrictions)
        lines.append(f"    restrictions=[\n{rules}    ],")
    lines.append(f"    grid=[{', '.join(_quoted(side) for side in kernel.grid)}],")
    if tuple(kernel.block) != tuple(side for side in BLOCK if side in kernel.tunables):
        lines.append(f"    block=[{', '.join(_quoted(side) for side in kernel.block)}],")
    if kernel.smem != "0":
        lines.append(f"    smem_bytes={_quoted(kernel.smem)},")
    if kernel.macros:
        lines.append(_wrapped(f"    derived={_as_dict(kernel.macros)},"))
    given = [_given(argument, kernel.sizes) for argument in kernel.arguments]
    cast = "Cast, " if any(text.startswith("Cast(") for text in given) else ""
    lines.append(_wrapped(f"    args=[{', '.join(given)}],"))
    lines.append(f'    entry="{kernel.entry}",')
    return f'''"""How {name}.cu is tuned and launched: from {kernel.origin}."""

from evo.template import {cast}template

TEMPLATE = template(
{chr(10).join(lines)}
)
'''


def _wrapped(line: str) -> str:
    """A long line of a list or dictionary as several."""
    return "\n".join(textwrap.wrap(line, 108, subsequent_indent=" " * 8, break_on_hyphens=False))


def _listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(_quoted(v) if isinstance(v, str) else repr(v) for v in values)}]"


def _as_dict(values: Mapping[str, Any]) -> str:
    named = (f'"{n}": {_quoted(v) if isinstance(v, str) else repr(v)}' for n, v in values.items())
    return f"{{{', '.join(named)}}}"


def _quoted(text: str) -> str:
    """A number as it is, an expression in quotes."""
    if re.fullmatch(r"\d+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'


def _given(argument: TunedArgument, sizes: Mapping[str, int]) -> str:
    if argument.role or (argument.value in sizes and argument.dtype == "i32"):
        return f'"{argument.name if argument.role else argument.value}"'
    text = argument.value
    number = text if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) else _quoted(text)
    return f'Cast({number}, "{argument.dtype}")'


# --------------------------------------------------------------------------------- what all importers check


def checked_values(tunables: Mapping[str, Sequence[Any]], where: str) -> dict[str, list[Any]]:
    """The tunables, each value once. UsageError for a name or a value that a macro cannot have."""
    for name, values in tunables.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise UsageError(
                f"{where}: tunable {name} cannot be taken", "a letter, then letters, digits and _"
            )
        if not values:
            raise UsageError(f"{where}: tunable {name} has no values", "give at least one")
        for value in values:
            if not isinstance(value, (int, float, str)) or (
                isinstance(value, str) and not TEXT.fullmatch(value)
            ):
                raise UsageError(f"{where}: tunable {name} has a value {value!r}", "a number, or a word")
    return {name: list(dict.fromkeys(values)) for name, values in tunables.items()}


def expression(node_or_text: ast.AST | str, names: Mapping[str, str], where: str, known: set[str]) -> str:
    """The text of an expression with names replaced, parsed as evo will. UsageError with the place where it
    has what an expression may not have, or a name that is not `known`."""
    text = node_or_text if isinstance(node_or_text, str) else ast.unparse(node_or_text)
    text = substituted(text.strip(), names)
    try:
        parsed = Expression(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from error
    if unknown := sorted(parsed.names - known):
        hint = f"known: {', '.join(sorted(known))}"
        raise UsageError(f"{where}: unknown name {unknown[0]} in: {text}", hint)
    return parsed.text


def ctas(whole: str, divisors: Sequence[str]) -> str:
    """How many CTAs a side takes that is divided by these. All are numbers or expressions."""
    product = " * ".join(one if one.isidentifier() else f"({one})" for one in divisors)
    return ast.unparse(ast.parse(f"ceil(({whole}) / ({product}))" if divisors else whole, mode="eval"))


def without_ones(sides: Sequence[str]) -> list[str]:
    """The sides of a block or a grid without those at its end that are 1; the first one stays."""
    found = list(sides)
    while len(found) > 1 and found[-1] == "1":
        found.pop()
    return found
