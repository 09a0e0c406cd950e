"""A Kernel Tuner script as a task and a template. The script is read, not run."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.importers.answers import Answer, answer_of, formula_text
from evo.importers.cuda_source import CudaSource, held_in, read_kernel, role_of
from evo.importers.script import (
    Array,
    Call,
    Function,
    Number,
    Script,
    Text,
    body_of,
    expression_of,
    file_beside,
    plain,
    substituted,
    unknown_part,
)
from evo.importers.tuned import (
    BLOCK,
    TunedArgument,
    TunedKernel,
    checked_values,
    ctas,
    expression,
    without_ones,
)

CALL = "tune_kernel"
_ORDER = ("kernel_name", "kernel_source", "problem_size", "arguments", "tune_params", "grid_div_x",
          "grid_div_y", "grid_div_z", "restrictions", "answer")  # fmt: skip
"""tune_kernel's first arguments, in their order."""
_CUDA = ("cuda", "cupy", "nvcuda", "pycuda")
_THREADS = 256
"""What Kernel Tuner takes for block_size_x where the script says nothing."""


def read_script(
    path: Path, kernel: str | None, given: Mapping[str, int | float | str], reference: Path | None
) -> TunedKernel:
    """What the script's `tune_kernel` call says; `kernel` names one of several. UsageError with file and line
    for what evo cannot take."""
    script = Script(path, CALL, given)
    call = _the_call(script, kernel)
    return _Reader(script, call, reference).kernel()


def _the_call(script: Script, kernel: str | None) -> Call:
    calls: dict[str, Call] = {}
    for call in script.calls:
        calls.setdefault(str(_argument(call, "kernel_name")), call)
    if not calls:
        hint = 'a script with tune_kernel("name", "file.cu", size, arguments, tune_params)'
        raise UsageError(f"{script.path}:1: there is no call of {CALL}", hint)
    if kernel is not None and kernel not in calls:
        raise UsageError(f"{script.path}: no kernel {kernel} is tuned", f"kernels: {', '.join(calls)}")
    if kernel is None and len(calls) > 1:
        raise UsageError(f"{script.path} tunes {len(calls)} kernels", f"--kernel {' or '.join(calls)}")
    return calls[kernel] if kernel is not None else next(iter(calls.values()))


def _argument(call: Call, name: str) -> Any:
    """An argument of tune_kernel, by position or by name; None where it is not given."""
    at = _ORDER.index(name) if name in _ORDER else len(call.args)
    return call.args[at] if at < len(call.args) else call.options.get(name)


@dataclass
class _Reader:
    """Turns one call into a TunedKernel."""

    script: Script
    call: Call
    reference: Path | None

    @property
    def where(self) -> str:
        return f"{self.script.path}:{self.call.node.lineno}"

    def refuse(self, message: str, hint: str) -> NoReturn:
        raise UsageError(f"{self.where}: {message}", hint)

    def known(self, name: str, value: Any) -> Any:
        """The value. UsageError where only the running script knows a part of it."""
        if missing := unknown_part(value):
            hint = "write it into the script as a number, or name it: --set NAME=VALUE"
            self.refuse(f"{name} depends on {missing.why}", hint)
        return value

    def kernel(self) -> TunedKernel:
        self._refuse_options()
        entry = self.known("the kernel's name", _argument(self.call, "kernel_name"))
        if not isinstance(entry, str):
            self.refuse("the kernel's name is no text", 'tune_kernel("name", ...)')
        source = read_kernel(self._source(), entry, self._folders(), self._held())
        parameters = self._tune_params()
        values = self._arguments(source)
        problem = self._problem_size()
        self.sizes = self._sizes(values, problem)
        singles = {n: v[0] for n, v in parameters.items() if len(v) == 1 and self._is_sized(v[0])}
        tunables = checked_values(
            {n: [plain(one) for one in v] for n, v in parameters.items() if n not in singles}, self.where
        )
        macros = {name: self.number(value) for name, value in singles.items()}
        self.single = {name: f"({value})" for name, value in macros.items()}
        self.allowed = set(tunables) | set(self.sizes)
        block, grid = self._block(tunables), self._grid(problem, tunables)
        arguments = self._tuned(values, source)
        constants = self._constants(values, arguments, source, tunables)
        answer = self._answer(values, arguments)
        macros |= source.macros(self._names(), grid, block, tunables)
        return TunedKernel(
            origin=f"Kernel Tuner's script {self.script.path.name}",
            text=source.text,
            entry=entry,
            sizes=self.sizes,
            arguments=arguments,
            tunables=tunables,
            grid=grid,
            block=block,
            restrictions=self._restrictions(),
            macros=macros,
            constants=constants,
            smem=self._smem(),
            compute=answer.compute,
            summed=_names_in([side.code for side in answer.sums], self.sizes),
            formula=formula_text(source, arguments) if answer.why else "",
            why_no_compute=answer.why,
            reference=self.reference,
        )

    # ---- the source

    def _refuse_options(self) -> None:
        options = self.call.options
        lang = options.get("lang")
        if isinstance(lang, str) and lang.lower() not in _CUDA:
            self.refuse(f"the kernel is {lang}", "evo takes CUDA")
        if options.get("texmem_args") not in (None, {}):
            named = options["texmem_args"]
            symbols = ", ".join(named) if isinstance(named, dict) else "what it names"
            self.refuse(f"texmem_args fills textures: {symbols}", "make it an argument of the kernel")
        if options.get("defines") not in (None, {}):
            self.refuse("defines= says which macros there are", "leave it out: all tunables are macros")

    def _source(self) -> Text:
        source = _argument(self.call, "kernel_source")
        if isinstance(source, (list, tuple)) and len(source) == 1:
            source = source[0]
        if isinstance(source, Function):
            self.refuse("the source is made by a function of the script", "write the kernel into a .cu file")
        if isinstance(source, (list, tuple)):
            self.refuse("the source is several files", "include one from the other")
        self.known("the source", source)
        if isinstance(source, str):
            found = file_beside(self.script.path, source)
            return found or self.refuse(f"there is no file {source}", "put it beside the script")
        if not isinstance(source, Text):
            self.refuse("the source is made while the script runs", "write the kernel into a .cu file")
        if source.origin == str(self.script.path):
            line = source.line + (1 if source.text.startswith("\n") else 0)
            return Text(source.text.removeprefix("\n"), source.origin, line)
        return source

    def _folders(self) -> list[Path]:
        """Where quoted includes are: beside the script and the source, and where -I says."""
        own = self.script.path.resolve().parent
        found = [own]
        source = self._source()
        found.append(Path(source.origin).parent)
        options = self.call.options.get("compiler_options")
        for option in options if isinstance(options, (list, tuple)) else ():
            if isinstance(option, str) and option.startswith("-I"):
                found.append(own / option[2:])
        return list(dict.fromkeys(folder.resolve() for folder in found))

    # ---- numbers

    def _tune_params(self) -> dict[str, list[Any]]:
        found = _argument(self.call, "tune_params")
        if not isinstance(found, dict):
            self.known("tune_params", found)
            self.refuse("tune_params is no dictionary of lists", "a dictionary of lists")
        for name, values in found.items():
            self.known(f"tune_params[{name!r}]", values)
            if not isinstance(values, (list, tuple)):
                self.refuse(f"tune_params[{name!r}] is no list", "a list of numbers or words")
        return {str(name): list(values) for name, values in found.items()}

    def _problem_size(self) -> list[Any]:
        """One to three sides: numbers, or expressions over tunables."""
        size = self.known("problem_size", _argument(self.call, "problem_size"))
        if isinstance(size, Function) and isinstance(body_of(size), (ast.Tuple, ast.List)):
            hint = "a tuple of numbers and texts: (width, 'height // tile')"
            self.refuse("problem_size is a function that gives several sides", hint)
        sides = list(size) if isinstance(size, (list, tuple)) else [size]
        for at, side in enumerate(sides):
            if isinstance(side, Number) and not side.text and "problem_size" not in self.script.literals:
                name = "problem_size" if len(sides) == 1 else f"problem_size_{'xyz'[at]}"
                if int(side.value) > 1:
                    self.script.literals[name] = int(side.value)
                    sides[at] = Number(int(side.value), name)
        return sides

    def _sizes(self, values: Sequence[Any], problem: Sequence[Any]) -> dict[str, int]:
        """The whole numbers of the script that shapes and the problem's size are made of."""
        texts = [side.code for v in values if isinstance(v, Array) for side in (v.seen or v).shape]
        texts += [side.code for side in problem if isinstance(side, Number)]
        found = {word: self.script.literals[word] for word in _names_in(texts, self.script.literals)}
        if not found:
            self.refuse("no size is a whole number of the script", "size = 1000000, and shapes made of it")
        return found

    def _is_sized(self, value: Any) -> bool:
        return isinstance(value, Number) and bool(_names_in([value.text], self.sizes))

    def number(self, value: Any) -> str:
        """A number of the script as an expression over sizes."""
        return substituted(value.code, self._with_sizes({size: size for size in self.sizes}))

    def _with_sizes(self, sizes: Mapping[str, str]) -> dict[str, str]:
        """The names of the script's whole numbers, with what takes their place: sizes have `sizes`."""
        return {name: str(value) for name, value in self.script.literals.items()} | dict(sizes)

    def _expression(self, value: Any, what: str) -> str:
        """A number, a text or a function of the script as an expression over tunables and sizes."""
        if isinstance(value, Number):
            return self.number(value)
        if isinstance(value, Text):
            value = value.text
        if isinstance(value, str):
            return expression(value, self.single, self.where, self.allowed)
        if isinstance(value, Function):
            return self._of_function(value, what)
        self.known(what, value)
        self.refuse(f"{what} is not understood", "a number, a text, or a lambda that returns an expression")

    def _of_function(self, function: Function, what: str) -> str:
        line = f"{self.script.path}:{function.node.lineno}"
        text = expression_of(function, self.number, what, line)
        return expression(text, self.single, line, self.allowed)

    # ---- the launch

    def _names(self) -> list[str]:
        names = self.call.options.get("block_size_names")
        found = [str(name) for name in names] if isinstance(names, (list, tuple)) else []
        return [*found, *BLOCK[len(found) :]]

    def _block(self, tunables: Mapping[str, Any]) -> list[str]:
        sides = []
        for at, name in enumerate(self._names()):
            own = self.single.get(name, name)
            sides.append(own if own in tunables or name in self.single else str(_THREADS if at == 0 else 1))
        return without_ones(sides)

    def _grid(self, problem: Sequence[Any], tunables: Mapping[str, Any]) -> list[str]:
        sides = []
        for at, size in enumerate(problem):
            divisors = _argument(self.call, f"grid_div_{'xyz'[at]}")
            if divisors is None:
                name = self._names()[at]
                divisors = [name] if name in tunables else []
            self.known(f"grid_div_{'xyz'[at]}", divisors)
            listed = divisors if isinstance(divisors, (list, tuple)) else [divisors]
            found = [self._expression(one, f"grid_div_{'xyz'[at]}") for one in listed]
            sides.append(ctas(self._expression(size, "problem_size"), found))
        return sides

    def _restrictions(self) -> list[str]:
        found = _argument(self.call, "restrictions")
        if found is None:
            return []
        listed = found if isinstance(found, (list, tuple)) else [found]
        return [self._expression(self.known("a restriction", one), "a restriction") for one in listed]

    def _smem(self) -> str:
        smem = self.call.options.get("smem_args")
        size = smem.get("size") if isinstance(smem, dict) else None
        return "0" if size is None else self._expression(size, "smem_args")

    # ---- the arguments

    def _arguments(self, source: CudaSource) -> list[Any]:
        values = _argument(self.call, "arguments")
        if not isinstance(values, (list, tuple)):
            self.known("arguments", values)
            self.refuse("arguments is no list", "arguments = [output, input, np.int32(size)]")
        if len(values) != len(source.arguments):
            said = f"{len(values)} arguments for a kernel that has {len(source.arguments)}"
            self.refuse(said, "one for each, in their order")
        for value, argument in zip(values, source.arguments, strict=True):
            self.known(f"argument {argument.name}", value)
            if not isinstance(value, (Array, Number)):
                self.refuse(f"argument {argument.name} is not understood", "a numpy array or np.int32(n)")
            if argument.pointer != isinstance(value, Array):
                kind = "a pointer" if argument.pointer else "a number"
                self.refuse(f"argument {argument.name} is {kind} in the kernel", "the same in both")
            if isinstance(value, Number) and not value.dtype:
                hint = "np.int32(n), np.float32(x)"
                self.refuse(f"argument {argument.name} is a number without a type", hint)
            if argument.dtype not in (None, value.dtype) and _differs(argument.dtype, value.dtype):
                said = (
                    f"argument {argument.name} is {value.dtype} in the script, {argument.dtype} in the kernel"
                )
                self.refuse(said, ".astype(...): the same type in both")
        return list(values)

    def _tuned(self, values: Sequence[Any], source: CudaSource) -> list[TunedArgument]:
        answers = _argument(self.call, "answer")
        listed = list(answers) if isinstance(answers, (list, tuple)) else [None] * len(values)
        said = isinstance(answers, (list, tuple))
        found = []
        for value, argument, answer in zip(values, source.arguments, listed, strict=False):
            name = f"{argument.name}_buffer" if argument.name in self.sizes else argument.name
            if isinstance(value, Number):
                text = self.number(value) if self._is_sized(value) else repr(value.value)
                found.append(TunedArgument(name, value.dtype, value=text))
                continue
            drawn = value.seen or value
            role = role_of(argument, drawn.zeros, (answer is not None) if said else None)
            ends = None
            if drawn.between and not dtype_named(drawn.dtype).floating:
                texts = [self.number(end) for end in drawn.between]
                ends = tuple(f'"{text}"' if text in self.sizes else text for text in texts)
                ends = ends if all(re.fullmatch(r'"\w+"|-?\d+', end) for end in ends) else None
            shape = tuple(self.number(side) for side in drawn.shape) or ("1",)
            found.append(TunedArgument(name, value.dtype, role, shape, between=ends))  # type: ignore[arg-type]
        return found

    def _held(self) -> dict[str, Any]:
        """What is put into constant memory, by the names of variables."""
        held = self.known("cmem_args", self.call.options.get("cmem_args"))
        if held is not None and not isinstance(held, dict):
            self.refuse("cmem_args is no dictionary", 'cmem_args={"d_filter": filter}')
        return held or {}

    def _constants(
        self,
        values: Sequence[Any],
        arguments: list[TunedArgument],
        source: CudaSource,
        tunables: Mapping[str, Sequence[Any]],
    ) -> list[TunedArgument]:
        """The buffers in constant memory. One that is an argument, too, is marked among these."""
        found = []
        for name, value in self._held().items():
            if not isinstance(value, Array):
                self.refuse(f"cmem_args[{name!r}] is not understood", "a numpy array")
            if name not in source.constants:
                known = ", ".join(source.constants) or "none"
                self.refuse(f"the kernel has no __constant__ {name}", f"it declares {known}")
            if wrong := held_in(
                source, name, value.dtype, math.prod(int(side.value) for side in value.shape), tunables
            ):
                self.refuse(wrong, "the same type in both, and room for all of it")
            places = [at for at, one in enumerate(values) if one is value and arguments[at].role == "in"]
            for at in places[:1]:
                arguments[at] = replace(arguments[at], constant=name)
            if not places:
                taken = name in self.sizes or any(name == one.name for one in arguments)
                shape = tuple(self.number(side) for side in value.shape) or ("1",)
                buffer = f"{name}_constant" if taken else name
                found.append(TunedArgument(buffer, value.dtype, "in", shape, constant=name))
        return found

    def _answer(self, values: Sequence[Any], arguments: Sequence[TunedArgument]) -> Answer:
        if self.call.options.get("verify") is not None:
            return Answer(why="verify= compares otherwise than element by element")
        sizes = {size: f'problem["{size}"]' for size in self.sizes}
        in_torch = partial(substituted, names=self._with_sizes(sizes))
        return answer_of(_argument(self.call, "answer"), values, arguments, in_torch)


def _names_in(texts: Sequence[str], known: Mapping[str, int]) -> list[str]:
    """Those of the `known` names that expressions have, each once."""
    words = dict.fromkeys(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))
    return [word for word in words if word in known]


def _differs(of_source: str | None, of_script: str) -> bool:
    """Whether two types have other bytes; int64 and long long are the same, and signs do not matter."""
    one, other = dtype_named(of_source or of_script), dtype_named(of_script)
    return one.nbytes != other.nbytes or one.floating != other.floating
