"""A T1 file (FAIR sharing of autotuning data, doi:10.1145/3629527.3651429) as a task and a template."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.importers.cuda_source import CudaSource, SourceArgument, held_in, read_kernel, role_of
from evo.importers.script import Expressions, Number, Text, Unknown, file_beside, plain, simpler
from evo.importers.tuned import (
    BLOCK,
    TunedArgument,
    TunedKernel,
    checked_values,
    ctas,
    expression,
    without_ones,
)

TYPES = {"bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32",
         "uint32": "u32", "int64": "i64", "uint64": "u64", "half": "fp16", "float": "fp32",
         "double": "fp64"}  # fmt: skip
"""T1's names of types, and evo's. Vectors (float4) are their elements."""
_ENDS = ("X", "Y", "Z")
_WANTED = ("ConfigurationSpace", "KernelSpecification")


def read_t1(path: Path, reference: Path | None) -> TunedKernel:
    """What a T1 file says of its kernel. UsageError with file and line for what evo cannot take."""
    try:
        text = path.read_text(encoding="utf-8")
        said = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", str(error)) from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}", "a T1 file is JSON") from error
    missing = [key for key in _WANTED if not isinstance(said, dict) or not isinstance(said.get(key), dict)]
    if missing:
        raise UsageError(f"{path}:1: there is no {missing[0]}", f"a T1 file has {' and '.join(_WANTED)}")
    return _T1(path, text, said, reference).kernel()


@dataclass
class _T1:
    """Turns a file into a TunedKernel."""

    path: Path
    text: str
    said: Mapping[str, Any]
    reference: Path | None

    def refuse(self, word: str, message: str, hint: str) -> NoReturn:
        """Raises UsageError at the first line that has `word`."""
        at = self.text.find(f'"{word}"')
        line = 1 + self.text.count("\n", 0, max(at, 0))
        raise UsageError(f"{self.path}:{line}: {message}", hint)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        return self.said["KernelSpecification"]  # type: ignore[no-any-return]

    def field(self, name: str) -> Any:
        if name not in self.spec:
            self.refuse("KernelSpecification", f"KernelSpecification has no {name}", "the schema asks for it")
        return self.spec[name]

    def kernel(self) -> TunedKernel:
        language = str(self.field("Language"))
        if language != "CUDA":
            self.refuse("Language", f"the kernel is {language}", "evo takes CUDA")
        entry = str(self.field("KernelName"))
        source = read_kernel(self._source(), entry, [self._source_path().parent], self._held)
        listed, alone = self._arguments(source)
        tunables = checked_values(self._values, str(self.path))
        self.sizes = self._sizes()
        self.allowed = set(tunables) | set(self.sizes)
        arguments = [
            self._filling(self._tuned(one, own), one, source)
            for one, own in zip(listed, source.arguments, strict=True)
        ]
        constants = [self._filling(self._tuned(one, None), one, source) for one in alone]
        block = [self._expression(side, "LocalSize") for side in self._sides("LocalSize")]
        grid = self._grid(block)
        return TunedKernel(
            origin=f"the T1 file {self.path.name}",
            text=source.text,
            entry=entry,
            sizes=self.sizes,
            arguments=arguments,
            tunables=tunables,
            defaults=self._defaults(tunables),
            grid=grid,
            block=block,
            restrictions=[self._expression(one, "Expression") for one in self._conditions()],
            macros=source.macros(BLOCK, grid, block, tunables),
            constants=constants,
            smem=str(int(self.spec.get("SharedMemory") or 0)),
            linked=self._linked([*arguments, *constants], grid),
            why_no_compute="a T1 file has no reference for any inputs",
            reference=self.reference,
            notes=self._notes(),
        )

    # ---- source and tunables

    def _source_path(self) -> Path:
        name = str(self.field("KernelFile"))
        found = file_beside(self.path, name)
        return Path(found.origin) if found else self.path.parent / name

    def _source(self) -> Text:
        path = self._source_path()
        if not path.is_file():
            self.refuse("KernelFile", f"there is no file {path}", "KernelFile lies beside the T1 file")
        return Text(path.read_text(encoding="utf-8", errors="replace"), str(path), 1)

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """The values of each tunable, by its name."""
        found: dict[str, list[Any]] = {}
        for one in self.said["ConfigurationSpace"].get("TuningParameters", ()):
            name, text = str(one.get("Name")), str(one.get("Values"))
            if name in found:
                self.refuse(name, f"tunable {name} is there twice", "each name once")
            values = self._evaluated(text, name, {})
            if not isinstance(values, list):
                self.refuse(name, f"the values of {name} are no list: {text}", "[1, 2, 4]")
            found[name] = plain(values)
        if not found:
            self.refuse("TuningParameters", "there are no tunables", "TuningParameters with Name and Values")
        return found

    def _evaluated(self, text: str, word: str, names: dict[str, Any]) -> Any:
        """The value of an expression of the file, which is parsed and not run."""
        expressions = Expressions(lambda *_: Unknown("a function"), str(self.path))
        try:
            value = expressions(ast.parse(text.strip(), mode="eval").body, names)
        except (SyntaxError, ValueError, RecursionError) as error:
            self.refuse(word, f"{text} is not understood: {error}", "an expression of Python")
        if isinstance(value, Unknown):
            self.refuse(word, f"{text} is not understood: {value.why}", "numbers, range, max, ProblemSize")
        return value

    def _defaults(self, tunables: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """The defaults that are among the values; others are no points."""
        listed = self.said["ConfigurationSpace"].get("TuningParameters", ())
        said = {str(one["Name"]): one["Default"] for one in listed if "Default" in one}
        single = {n: v[0] if isinstance(v, list) and len(v) == 1 else v for n, v in said.items()}
        return {n: v for n, v in single.items() if v in tunables[n] and v != tunables[n][0]}

    def _conditions(self) -> list[str]:
        found = self.said["ConfigurationSpace"].get("Conditions") or ()
        return [str(one["Expression"]) for one in found]

    # ---- numbers

    @cached_property
    def problem(self) -> list[int]:
        """The problem's sides, where they are said."""
        said = self.spec.get("ProblemSize") or []
        return [int(side) for side in (said if isinstance(said, list) else [said])]

    def _sizes(self) -> dict[str, int]:
        """The problem's sides where they are said; else whole numbers among the arguments: those that lengths
        or the grid have, or all that are signed; else the length of the first buffer."""
        if self.problem:
            named = {f"problem_size_{e.lower()}": n for e, n in zip(_ENDS, self.problem, strict=False)}
            return {name: size for name, size in named.items() if size > 1} or named
        listed = self.spec.get("Arguments", ())
        scalars = [
            one for one in listed if one.get("MemoryType") == "Scalar" and "int" in str(one.get("Type"))
        ]
        whole = {_plain_name(str(one.get("Name"))): _whole(one) for one in scalars if _whole(one) > 1}
        texts = [str(one.get("Size")) for one in listed] + self._sides("GlobalSize")
        numbers = {int(number) for text in texts for number in re.findall(r"\b\d+\b", text)}
        shown = {name: size for name, size in whole.items() if size in numbers}
        signed = {_plain_name(str(one.get("Name"))) for one in scalars if "uint" not in str(one.get("Type"))}
        vectors = [one for one in listed if one.get("MemoryType") == "Vector"]
        length = int(self._length(vectors[0], {}).value) if vectors else 1
        return shown or {name: n for name, n in whole.items() if name in signed} or {"length": length}

    def _length(self, one: Mapping[str, Any], names: dict[str, Any]) -> Number:
        """How many elements a buffer has."""
        said = one.get("Size")
        value = (
            Number(said) if isinstance(said, int) else self._evaluated(str(said), str(one.get("Name")), names)
        )
        if not isinstance(value, Number) or value.value < 1:
            self.refuse(str(one.get("Name")), f"Size is {said}", "a number of elements")
        lanes = re.search(r"[a-z](\d+)$", str(one.get("Type"))) if str(one.get("Type")) not in TYPES else None
        return Number(
            int(value.value) * int(lanes[1]) if lanes else value.value, value.text if not lanes else ""
        )

    def _expression(self, said: Any, word: str) -> str:
        try:
            return expression(str(said), {}, str(self.path), self.allowed)
        except UsageError as error:
            self.refuse(word, error.message.removeprefix(f"{self.path}: "), error.hint)

    def _sides(self, word: str) -> list[str]:
        sides = self.field(word)
        return without_ones([str(sides[end]) for end in _ENDS if end in sides])

    def _grid(self, block: Sequence[str]) -> list[str]:
        """CTAs a side: the problem by its divisors (Kernel Tuner's habit), or GlobalSize."""
        if self.problem:
            numbered = enumerate(self.problem)
            return [self._divided(at, side) for at, side in numbered if at == 0 or side > 1]
        sides = [self._expression(side, "GlobalSize") for side in self._sides("GlobalSize")]
        if self.spec.get("GlobalSizeType", self.spec.get("Language")) != "OpenCL":
            return sides
        threads = [*block, *["1"] * (len(sides) - len(block))]
        return [ctas(a, [b] if b != "1" else []) for a, b in zip(sides, threads, strict=False)]

    def _divided(self, at: int, side: int) -> str:
        name = f"problem_size_{_ENDS[at].lower()}"
        divisors = self.spec.get(f"GridDiv{_ENDS[at]}")
        if divisors is None:
            own = f"block_size_{_ENDS[at].lower()}"
            divisors = [own] if own in self._values else []
        found = [self._expression(one, f"GridDiv{_ENDS[at]}") for one in divisors]
        return ctas(name if name in self.sizes else str(side), found)

    # ---- arguments

    @cached_property
    def _held(self) -> list[str]:
        """The names of arguments that the file puts into constant memory."""
        listed = self.spec.get("Arguments") or ()
        return [str(one.get("Name")) for one in listed if one.get("MemType") == "Constant"]

    def _arguments(self, source: CudaSource) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The arguments of the kernel, and what lies in constant memory alone."""
        listed, alone = list(self.spec.get("Arguments") or ()), list[Mapping[str, Any]]()
        if len(listed) > len(source.arguments):
            named = set(self._held) & set(source.constants)
            alone = [one for one in listed if one.get("Name") in named]
            listed = [one for one in listed if one not in alone]
        if len(listed) != len(source.arguments):
            said = f"{len(listed)} arguments for a kernel that has {len(source.arguments)}"
            self.refuse("Arguments", said, "one for each, in their order")
        for one, own in zip(listed, source.arguments, strict=True):
            name, memory = str(one.get("Name", own.name)), str(one.get("MemoryType"))
            if memory not in ("Scalar", "Vector"):
                self.refuse(name, f"argument {name} is {memory} memory", "Scalar or Vector")
            if own.pointer != (memory == "Vector"):
                kind = "a pointer" if own.pointer else "a number"
                self.refuse(name, f"argument {name} is {kind} in the kernel", "the same in both")
            dtype = _dtype(str(one.get("Type")))
            if dtype is None:
                self.refuse(name, f"argument {name} is of the type {one.get('Type')}", ", ".join(TYPES))
            if own.dtype is not None and _bytes(own.dtype) != _bytes(dtype):
                said = f"argument {name} is {dtype} in the file and {own.dtype} in the kernel"
                self.refuse(name, said, "the same type in both")
            if memory == "Scalar" and _fill(one) is None:
                self.refuse(name, f"the value of argument {name} is not said", "FillValue, a number")
        return listed, alone

    def _filling(self, tuned: TunedArgument, one: Mapping[str, Any], source: CudaSource) -> TunedArgument:
        """The buffer, with the variable in constant memory that it fills."""
        name = str(one.get("Name"))
        if name not in self._held or name not in source.constants or tuned.role != "in":
            return tuned
        if wrong := held_in(source, name, tuned.dtype, self._elements(one), self._values):
            self.refuse(name, wrong, "the same type in both, and room for all of it")
        return replace(tuned, constant=name)

    def _elements(self, one: Mapping[str, Any]) -> int:
        return int(self._length(one, self._names()).value)

    def _tuned(self, one: Mapping[str, Any], own: SourceArgument | None) -> TunedArgument:
        """`own`: the kernel's argument; None of what lies in constant memory alone."""
        name = _plain_name(str(one.get("Name", own.name if own else "")))
        dtype = _dtype(str(one["Type"])) or ""
        if one["MemoryType"] == "Scalar":
            value = _fill(one)
            text = name if self.sizes.get(name) == value else repr(value)
            return TunedArgument(f"{name}_value", dtype, value=text)
        access, constant = one.get("AccessType"), one.get("FillType") == "Constant"
        said = None if access is None else access != "ReadOnly"
        role = role_of(own, constant and _fill(one) in (0, None), said) if own else "in"
        length = self._length(one, self._names())
        text = simpler(length.code) if length.text else str(int(length.value))
        return TunedArgument(name, dtype, role, (text,))

    def _names(self) -> dict[str, Any]:
        """What a length may name."""
        sides = [self._problem_side(at) for at in range(len(self.problem))]
        return {"ProblemSize": sides, **{n: [Number(v) for v in vs] for n, vs in self._values.items()}}

    def _problem_side(self, at: int) -> Number:
        name, value = f"problem_size_{_ENDS[at].lower()}", self.problem[at]
        return Number(value, name if name in self.sizes else "")

    def _linked(self, arguments: Sequence[TunedArgument], grid: Sequence[str]) -> bool:
        """Whether lengths and CTAs are said by names of sizes: a file that has numbers cannot be resized."""
        texts = [side for one in arguments for side in one.dimensions]
        return not any(text.isdigit() for text in texts) and any(
            size in " ".join(grid) for size in self.sizes
        )

    def _notes(self) -> tuple[str, ...]:
        drawn = [str(one.get("Name")) for one in self.spec.get("Arguments", ()) if one.get("FillType")]
        return (f"inputs are evo's families, not what FillType says of {', '.join(drawn)}",) if drawn else ()


def _fill(one: Mapping[str, Any]) -> int | float | None:
    """The number that an argument is filled with; None where none is said. Some files write it as a text."""
    value = one.get("FillValue")
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d*)?", value.strip()):
        value = float(value) if "." in value else int(value)
    return value if isinstance(value, (int, float)) else None


def _whole(one: Mapping[str, Any]) -> int:
    """The whole number that a scalar is; 0 where it is none."""
    value = _fill(one)
    return value if isinstance(value, int) else 0


def _dtype(name: str) -> str | None:
    return TYPES.get(name) or TYPES.get(re.sub(r"\d+$", "", name))


def _bytes(dtype: str) -> int:
    return dtype_named(dtype).nbytes


def _plain_name(text: str) -> str:
    return re.sub(r"\W", "_", text)
