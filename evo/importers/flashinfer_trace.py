"""A FlashInfer-Bench Definition (JSON: axes, inputs, outputs, reference) as a task and a first template."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from evo.dtype import DTYPES
from evo.errors import EvoError, UsageError
from evo.importers.made import Made, check_finite, check_place, task_name, tuple_text
from evo.importers.script import substituted
from evo.importers.stub import StubBuffer, write_stub
from evo.space.expression import Expression

REFERENCE = "reference.py"
"""The definition's reference in the task's folder."""
VARIABLE = 64
"""What a variable axis is in the example, unless another number is given."""
ENDS = (-1, 1)
"""Inputs, where larger ones overflow."""
_WANTED = ("name", "axes", "inputs", "outputs", "reference")


def import_definition(file: Path, folder: Path, name: str, given: Mapping[str, int | float | str]) -> Made:
    """Writes `folder/NAME` from a definition; `given`: numbers of variable axes and scalar inputs. UsageError
    with file and line for what evo cannot take."""
    definition = _Definition(file, given)
    place = check_place(name or task_name(str(definition.said["name"])), folder)
    try:
        place.mkdir(parents=True)
        return definition.written(place)
    except EvoError as error:
        shutil.rmtree(place, ignore_errors=True)
        raise UsageError(f"{file} cannot be taken: {error.message}", error.hint) from error


class _Definition:
    """A definition, checked as it is read."""

    def __init__(self, file: Path, given: Mapping[str, Any]) -> None:
        self.file, self.given = file, given
        try:
            self.text = file.read_text(encoding="utf-8")
            self.said = json.loads(self.text)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {file}", str(error)) from error
        except json.JSONDecodeError as error:
            raise UsageError(f"{file}:{error.lineno}: {error.msg}", "a definition is JSON") from error
        missing = [key for key in _WANTED if not isinstance(self.said, dict) or not self.said.get(key)]
        if missing:
            raise UsageError(f"{file}:1: there is no {missing[0]}", f"a definition has {', '.join(_WANTED)}")
        self.sizes = {name: self._size(name, axis) for name, axis in self.said["axes"].items()}
        self.fixed = [name for name, axis in self.said["axes"].items() if axis.get("type") == "const"]
        self.buffers: list[StubBuffer] = []
        self.numbers: dict[str, Any] = {}
        for kind in ("inputs", "outputs"):
            for name, spec in self.said[kind].items():
                self._take(name, spec, kind == "outputs")
        self.constraints, self.bound = self._constraints()

    def refuse(self, word: str, message: str, hint: str) -> NoReturn:
        line = 1 + self.text.count("\n", 0, max(self.text.find(f'"{word}"'), 0))
        raise UsageError(f"{self.file}:{line}: {message}", hint)

    def _size(self, name: str, axis: Mapping[str, Any]) -> int:
        size = axis.get("value") if axis.get("type") == "const" else self.given.get(name, VARIABLE)
        if not isinstance(size, int) or size < 1 or not name.isidentifier():
            self.refuse(name, f"axis {name} is {size!r}", "a name as in Python, and a whole number from 1 on")
        return size

    def _take(self, name: str, spec: Mapping[str, Any], written: bool) -> None:
        dtype = next((own for own, kind in DTYPES.items() if kind.torch_name == spec.get("dtype")), None)
        if dtype is None or dtype == "fp8":
            self.refuse(name, f"{name} is of the type {spec.get('dtype')}", "evo's inputs have no such type")
        if spec.get("shape") is not None:
            if unknown := [axis for axis in spec["shape"] if axis not in self.sizes]:
                self.refuse(name, f"{name} has an axis {unknown[0]}", f"axes: {', '.join(self.sizes)}")
            self.buffers.append(StubBuffer(name, dtype, written))
        elif written or name not in self.given:
            what = "an output that is a number" if written else "a number that the definition does not say"
            self.refuse(name, f"{name} is {what}", f"--set {name}=VALUE" if not written else "a tensor")
        else:
            self.numbers[name] = self.given[name]

    def _constraints(self) -> tuple[list[str], dict[str, str]]:
        """Expressions that hold for every problem, and axes that are made of others: `a == b + 1`."""
        kept, bound = [], dict[str, str]()
        for text in self.said.get("constraints") or ():
            try:
                names = Expression(text).names
            except UsageError:
                self.refuse(
                    "constraints", f"a constraint reads the inputs: {text}", "evo draws inputs freely"
                )
            if unknown := names - set(self.sizes):
                what = f"a constraint speaks of {min(unknown)}, which is no axis: {text}"
                self.refuse("constraints", what, f"axes: {', '.join(self.sizes)}")
            equal = re.fullmatch(r"\s*(\w+)\s*==\s*([^=<>]+)", text)
            if (
                equal
                and equal[1] not in self.fixed
                and equal[1] not in Expression(equal[2]).names | set(bound)
            ):
                bound[equal[1]] = equal[2].strip()
            else:
                kept.append(text)
        for name in bound:
            del self.sizes[name]
        return kept, bound

    def written(self, place: Path) -> Made:
        """Writes the files of the task."""
        name, origin = place.name, f"FlashInfer-Bench's definition {self.said['name']}"
        (place / REFERENCE).write_text(
            f'"""The reference of {origin}."""\n\n{self.said["reference"].strip()}\n'
        )
        narrow = self._serving(place, origin)
        sizes = list(self.sizes)
        output = next(spec["shape"] for spec in self.said["outputs"].values())
        sides = [side for side in output if side in self.sizes]
        missing = write_stub(place, self.buffers, sizes, origin, sides)
        files = tuple(place / each for each in ("task.py", REFERENCE, f"{name}.cu", f"{name}.py"))
        free = [f"{n}={self.sizes[n]}" for n in sizes if n not in self.fixed and n not in self.given]
        notes: tuple[str, ...] = (f"variable axes are {', '.join(free)} in the example",) if free else ()
        notes += (f"inputs are between {ENDS}: of larger ones the result is not finite",) if narrow else ()
        return Made(name, files, missing, notes)

    def _serving(self, place: Path, origin: str) -> bool:
        """Writes the task, with inputs between -1 and 1 where the reference has no finite value of larger
        ones; says whether that is so. EvoError where it has none of those either."""
        for ends in ("", f", between={ENDS}"):
            (place / "task.py").write_text(self._task_text(place.name, origin, ends))
            try:
                check_finite(place)
            except EvoError:
                if ends:
                    raise
            else:
                return bool(ends)
        return True

    def _task_text(self, name: str, origin: str, ends: str) -> str:
        storage = next(b.dtype for b in (*reversed(self.buffers), *self.buffers) if b.written)
        shapes = {n: spec["shape"] for kind in ("inputs", "outputs") for n, spec in self.said[kind].items()}
        lines = []
        for buffer in self.buffers:
            sides = ", ".join(self._dimension(axis) for axis in shapes[buffer.name]) or "1"
            own = "" if buffer.dtype == storage else f', dtype="{buffer.dtype}"'
            own += ends if DTYPES[buffer.dtype].floating and not buffer.written else ""
            lines.append(f'        "{buffer.name}": {"Out" if buffer.written else "In"}({sides}{own}),')
        sizes = ", ".join(f'"{size}": {value}' for size, value in self.sizes.items())
        order = {n: self.numbers.get(n) for n in self.said["inputs"]}
        given = ", ".join(f'"{n}": {value!r}' for n, value in order.items())
        more = f"    fixed = {tuple_text(self.fixed)}\n" if self.fixed else ""
        more += f"    constraints = {tuple_text(self.constraints)}\n" if self.constraints else ""
        return f'''"""{name}: from {origin}, whose reference is {REFERENCE} here."""

from pathlib import Path

from evo import In, Out
from evo.importers.definition import DefinitionTask


class Kernel(DefinitionTask):
    name, sizes, dtypes = "{name}", {{{sizes}}}, ("{storage}",)
    file = Path(__file__).with_name("{REFERENCE}")
    arguments = {{{given}}}  # of `run`: None is the buffer of that name
{more}    summed = {tuple_text(self.sizes)}  # leave out sizes that no kernel adds up along
    tensors = {{
{chr(10).join(lines)}
    }}


TASK = Kernel()
'''

    def _dimension(self, axis: str) -> str:
        if axis in self.bound:
            kept = {size: f'p["{size}"]' for size in self.sizes}
            return f"lambda p: int({substituted(self.bound[axis], kept)})".replace("'", '"')
        return f'"{axis}"'
