"""A problem in KernelBench's form, as a task: `Model`, `get_inputs`, `get_init_inputs` of a Python file."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

from evo.dtype import dtype_named
from evo.errors import EvoError, UsageError
from evo.importers.precision import at_least
from evo.task import Baseline, Families, Task, Tensors, blame
from evo.task.tensors import draw
from evo.trial import Problem

GIVEN = "given"
"""The family of inputs and weights that the file itself makes."""
FAMILIES = Families(
    plain=GIVEN, sharp="peaky", even="alike", lone="spike", masked="large", others=("normal", "small")
)
"""The file's own inputs, and evo's."""
ONLY_GIVEN = Families(plain=GIVEN)
"""Where the file's inputs have a structure, or the model has no value for others."""
NAMES = ("Model", "get_inputs", "get_init_inputs")
KEPT = 256
"""Problems whose modules are kept: the gate has some hundred, each many times."""
SMALL = 20_000
"""Elements that the tensors of the gate's own problems have, roughly, where they have many sides."""
Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Shapes:
    """What a problem's tensors are, found without computing: names, shapes and types."""

    inputs: dict[str, Tensor]
    weights: dict[str, Tensor]
    outputs: dict[str, Tensor]
    constants: dict[str, Any]
    """Arguments of `forward` that are no tensors."""


class ModelTask(Task):
    """A task whose reference is `Model.forward` in fp64. `file` is the Python file, which runs with the sizes
    of each problem instead of its own. Weights are inputs: `self.ln.weight` is the buffer ln_weight."""

    file: ClassVar[Path]
    families = FAMILIES

    def validate(self, problem: Problem) -> None:
        shapes_of(self.file, _sizes(problem))

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        found = tuple(filter(self._works, super().gate_problems(problem, tiles)))
        return found or (problem,)

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        return tuple(filter(self._works, super().ragged_problems(problem, tiles, far)))

    def some_ragged(
        self,
        problem: Problem,
        tiles: Sequence[int],
        count: int,
        seed: int,
        deep: bool,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        """Only what is drawn is tried: a model takes milliseconds to say whether it takes a problem."""
        every = super().ragged_problems(problem, tiles)
        drawn = random.Random(seed).sample(range(len(every)), len(every))
        works = (index for index in drawn if self._works(every[index]))
        return tuple(every[index] for index in sorted(islice(works, count)))

    def _small(self, problem: Problem, largest: int) -> tuple[Problem, list[str]]:
        free = sum(name not in self.fixed for name in problem.sizes)
        return super()._small(problem, min(largest, max(3, int(SMALL ** (1 / max(2, free))))))

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        if family != GIVEN:
            return draw(self.tensors, problem, family, seed, torch_device)
        sizes = _sizes(problem)
        with torch.random.fork_rng(enabled=True), torch.no_grad():
            torch.manual_seed(seed)
            with torch.device(torch_device), blame(self.file):
                made = loaded(self.file, sizes).get_inputs()
            model = _made(self.file, sizes, seed)
        order = arguments_of(self.file, sizes)
        found = {name: x for name, x in zip(order, made, strict=True) if isinstance(x, Tensor)}
        found |= {buffer_name(name): x.detach() for name, x in model.named_parameters()}
        types = {buffer.name: buffer.dtype for buffer in self.buffers(problem)}
        return {n: x.to(torch_device, dtype_named(types[n]).torch).contiguous() for n, x in found.items()}

    def compute(self, problem: Problem, inputs: Tensors) -> Any:
        with at_least(list(inputs.values())), torch.no_grad():
            return _forward(self._model(problem), self._order(problem), inputs)

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        forward = partial(_forward, self._model(problem), self._order(problem))
        found: dict[str, Baseline] = {"eager": torch.no_grad()(forward)}
        if patient and torch_device.startswith("cuda"):
            found["compiled"] = torch.compile(torch.no_grad()(forward), dynamic=False)
        return found

    def _model(self, problem: Problem) -> torch.nn.Module:
        return _made(self.file, _sizes(problem), 0)

    def _order(self, problem: Problem) -> dict[str, Any]:
        """Arguments of `forward` by name, in their order: None for a tensor, else the number."""
        constants = shapes_of(self.file, _sizes(problem)).constants
        return {name: constants.get(name) for name in arguments_of(self.file, _sizes(problem))}

    def _works(self, problem: Problem) -> bool:
        try:
            self.validate(problem)
        except EvoError:
            return False
        return True

    @classmethod
    def side(cls, problem: Problem, name: str, at: int) -> int:
        """Side `at` of a tensor, where it is no size of the task."""
        shapes = shapes_of(cls.file, _sizes(problem))
        found = {**shapes.inputs, **shapes.weights, **shapes.outputs}[name]
        return int(found.shape[at]) if found.dim() else 1


def _sizes(problem: Problem) -> Sizes:
    return tuple(problem.sizes.items())


def buffer_name(parameter: str) -> str:
    """The buffer of a weight: `ln.weight` is ln_weight."""
    return parameter.replace(".", "_")


def _forward(model: torch.nn.Module, order: Mapping[str, Any], inputs: Tensors) -> Any:
    """The outputs of a model with the weights that are among the inputs."""
    weights = {name: inputs[buffer_name(name)] for name, _ in model.named_parameters()}
    first = next(iter(inputs.values()))
    wide = next((x.dtype for x in inputs.values() if x.is_floating_point()), torch.float32)
    state = {
        n: b.to(first.device, wide if b.is_floating_point() else b.dtype) for n, b in model.named_buffers()
    }
    args = [constant if constant is not None else inputs[name] for name, constant in order.items()]
    found = torch.func.functional_call(model, {**weights, **state}, tuple(args))
    return tuple(found) if isinstance(found, (list, tuple)) else found


# ------------------------------------------------------------------------------------ the file, with sizes


@cache
def whole_numbers(file: Path) -> dict[str, int]:
    """The whole numbers that the file gives names, and those of tuples: `input_shape = (8, 9)` has
    input_shape_0 and input_shape_1. UsageError where the file is no Python."""
    found: dict[str, int] = {}
    for name, node in _assigned(_parsed(file)):
        value = _literal(node)
        if isinstance(value, tuple):
            found |= {f"{name}_{at}": side for at, side in enumerate(value)}
        elif isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return {name: value for name, value in found.items() if value > 0}


@lru_cache(maxsize=KEPT)
def loaded(file: Path, sizes: Sizes) -> ModuleType:
    """The file as a module, with these sizes for its own. BadTemplate with file and line where it fails."""
    tree, given = _parsed(file), dict(sizes)
    for name, node in _assigned(tree):
        value = _literal(node)
        if name in given:
            _put(node, given[name])
        elif isinstance(value, tuple):
            _put(node, tuple(given.get(f"{name}_{at}", side) for at, side in enumerate(value)))
    module = ModuleType(f"evo_model_{file.stem}")
    module.__file__ = str(file)
    with blame(file):
        exec(compile(tree, str(file), "exec"), module.__dict__)
    if missing := [name for name in NAMES if not callable(getattr(module, name, None))]:
        raise UsageError(
            f"{file}:1: there is no {missing[0]}", f"a KernelBench problem has {', '.join(NAMES)}"
        )
    return module


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}", str(error)) from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file}:{getattr(error, 'lineno', 1)}: {error}", "a Python file") from error


def _assigned(tree: ast.Module) -> list[tuple[str, ast.Assign]]:
    """What the file itself gives names, at its top."""
    return [
        (node.targets[0].id, node)
        for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    ]


def _literal(node: ast.Assign) -> Any:
    """The whole number, or the tuple of them, that is assigned; None where it depends on anything."""
    if any(isinstance(part, (ast.Name, ast.Call, ast.Attribute)) for part in ast.walk(node.value)):
        return None
    try:
        value = eval(compile(ast.Expression(node.value), "sizes", "eval"), {"__builtins__": {}})
    except Exception:  # noqa: BLE001 - whatever it is, it is no number
        return None
    sides = value if isinstance(value, tuple) else (value,)
    return value if sides and all(type(side) is int for side in sides) else None


def _put(node: ast.Assign, value: Any) -> None:
    node.value = ast.copy_location(ast.parse(repr(value), mode="eval").body, node.value)
    ast.fix_missing_locations(node)


@lru_cache(maxsize=16 * KEPT)
def shapes_of(file: Path, sizes: Sizes) -> Shapes:
    """The tensors of a problem, on torch's meta device: no memory and no time. UsageError where the model
    does not take these sizes."""
    module = loaded(file, sizes)
    try:
        with torch.device("meta"), torch.no_grad():
            made = list(module.get_inputs())
            model = module.Model(*module.get_init_inputs())
            found = model(*made)
    except Exception as error:
        shown = ", ".join(f"{name}={size}" for name, size in sizes)
        reason = (str(error).splitlines() or [""])[0]
        hint = f"{type(error).__name__}: {reason}"
        raise UsageError(f"{file}: the model does not take {shown or 'its own inputs'}", hint) from error
    names = _argument_names(model, len(made))
    outputs = list(found) if isinstance(found, (list, tuple)) else [found]
    several = len(outputs) > 1
    return Shapes(
        {name: x for name, x in zip(names, made, strict=True) if isinstance(x, Tensor)},
        {buffer_name(name): x for name, x in model.named_parameters()},
        {f"output_{at}" if several else "output": x for at, x in enumerate(outputs)},
        {name: x for name, x in zip(names, made, strict=True) if not isinstance(x, Tensor)},
    )


def arguments_of(file: Path, sizes: Sizes) -> tuple[str, ...]:
    """The arguments of `forward`, in their order."""
    shapes = shapes_of(file, sizes)
    named = {*shapes.inputs, *shapes.constants}
    model = loaded(file, sizes).Model
    return tuple(name for name in _argument_names(model, len(named)) if name in named)


def _argument_names(model: Any, count: int) -> list[str]:
    """Names of the first arguments of `forward`."""
    code = model.forward.__code__
    names = list(code.co_varnames[1 : code.co_argcount])[:count]
    return names + [f"input_{at}" for at in range(len(names), count)]


@lru_cache(maxsize=4)
def _made(file: Path, sizes: Sizes, seed: int) -> torch.nn.Module:
    """The model with the weights that it draws by a seed, on the CPU."""
    module = loaded(file, sizes)
    with torch.random.fork_rng(devices=[]), blame(file):
        torch.manual_seed(seed)
        model: torch.nn.Module = module.Model(*module.get_init_inputs())
    return model.requires_grad_(False)
