"""Templates: CUDA source with holes, rendered into candidates.

A template is two files with one stem in `templates/<task>/`. `<name>.cu.jinja` is CUDA C++ with holes
`{{ bm }}` and line statements `//% if stages > 1`; a plain `<name>.cu` has macros for holes (macros.py).
`<name>.py` says what may fill them: in the short form by `TEMPLATE = template(…)` (short.py), else it
defines, itself or as attributes of `TEMPLATE`,

    SPACE       Space                                parameters and rules
    NEEDS       str                                  the instruction set: "sm_80", "sm_90a"
    ENTRY       str                                  name of the one extern "C" __global__ function
    smem_bytes  (p, problem) -> int or array         shared memory a CTA: asserted against the C++ struct
    threads     (p, problem) -> int or array         threads a CTA
    derived     (p, problem) -> dict[str, Value]     holes beyond the parameters
    launch      (p, problem, gpu) -> LaunchConfig        gpu: an evo.gpu.Gpu, for grids that fill it

and, where they apply, `registers` (a thread, a model), `grid` (x, y, z) and `cluster` (CTAs), also
`(p, problem) -> int or array`, to prune by; `supports(problem) -> str | None`, why a problem is out of
reach; `tiles(p, problem) -> tuple[int, ...]`, around whose multiples the gate looks for errors (the values
of bm and bn unless said otherwise); `DETERMINISTIC = False` where the bits of a result may differ from run
to run; `READS = ("%smid",)`: clocks and places that its kernels read, for one that reads any other makes no
champion. In models `p.bm` may be an array: write them with operators and `np.where`.

Both files are programs: use only those that you trust. What includes mean is said in include.py.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from evo.errors import BadTemplate, UnknownName, UsageError
from evo.gpu import Gpu, Limits, arch_number, target
from evo.space import Filling, ResourceModels, Space, auto_rules, hardware_rules
from evo.task import Task, blame, find_file, folders_of, load_module
from evo.template.checks import check_arguments, check_constants, check_kernel, check_macros, parameters_of
from evo.template.constants import Declared, constants_of
from evo.template.include import Includes
from evo.template.jinja import Program
from evo.template.macros import Macros, only_kernel
from evo.template.short import ShortTemplate, template
from evo.trial import (
    BufferArg,
    Candidate,
    Constant,
    LaunchConfig,
    Point,
    Problem,
    TensorMapArg,
    Value,
    body_of,
    canonical_json,
)
from evo.version import __version__

BODIES_KEPT = 32
"""Rendered sources that a template keeps in memory, some 60 KB each."""

LARGEST_SIDE = 2**31 - 1
NO_LAUNCH = LaunchConfig((0, 0, 0), (0, 0, 0), 0, ())
"""Of a point at which the template fails."""

Made = TypeVar("Made")

_SUFFIXES = (".cu.jinja", ".cu")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Template:
    """A loaded template. `space` has the template's rules and the ones that hold for every template."""

    name: str
    task: Task
    space: Space
    needs: str
    entry: str
    path: Path
    """The .cu.jinja or .cu file."""
    deterministic: bool
    reads: tuple[str, ...]
    """Clocks and places that its kernels may read, as evo.compile.places_read names them."""
    gpu: Gpu
    """The GPU that launches are made for."""
    _module: Any
    _program: Program | Macros
    _includes: Includes

    def holes(self) -> frozenset[str]:
        """The names that the source leaves open."""
        return frozenset(self._program.holes)

    def supports(self, problem: Problem, limits: Limits) -> str | None:
        """Why this template cannot serve `problem` within `limits` at all; None where it can."""
        if not limits.allows(self.needs):
            return f"needs {self.needs} instructions, {limits.instructions} allowed"
        said = self._ask("supports", problem) if hasattr(self._module, "supports") else None
        return self._no_room(problem) if said is None else str(said)

    def _no_room(self, problem: Problem) -> str | None:
        """What is said of a tensor that is larger than its `__constant__` variable; None where all fit."""
        if not self._constants:
            return None
        held = [one for one in self.task.buffers(problem) if one.constant in self._constants]
        macros = self.macros(problem) if held else {}
        found = (self._constants[str(one.constant)].too_small(one, macros) for one in held)
        return next(filter(None, found), None)

    def macros(self, problem: Problem) -> dict[str, Value]:
        """What macros are, each parameter the largest of its values."""
        largest = {p.name: max(p.values, key=lambda v: v if isinstance(v, (int, float)) else 0)
                   for p in self.space.parameters}  # fmt: skip
        return {**largest, **self.derived(self.space.default, problem)}

    @cached_property
    def _constants(self) -> dict[str, Declared]:
        """What a plain source declares in constant memory."""
        program = self._program
        return constants_of(program.text) if isinstance(program, Macros) else {}

    def derived(self, point: Point, problem: Problem) -> dict[str, Value]:
        """The values of the holes that are no parameters."""
        derived = self._ask_for(dict[str, Value], "derived", self._filling(point, problem), problem)
        for name, value in derived.items():
            if not isinstance(value, int | float | str):
                self._fail(f"derived {name} is {type(value).__name__}", "a number, a text, True or False")
        if clash := derived.keys() & point.keys():
            self._fail(f"derived values named like parameters: {', '.join(sorted(clash))}", "rename one")
        return derived

    def tiles(self, point: Point, problem: Problem) -> tuple[int, ...]:
        """The tile sizes whose boundaries the gate tests."""
        p = self._filling(point, problem)
        if hasattr(self._module, "tiles"):
            return self._ask_for(lambda said: tuple(map(int, said)), "tiles", p, problem)
        return tuple(int(p[name]) for name in ("bm", "bn") if name in p)

    def registers(self, point: Point, problem: Problem) -> int | None:
        """The template's model of the registers a thread, which the space is pruned by; None without one."""
        if not hasattr(self._module, "registers"):
            return None
        return self._ask_for(int, "registers", self._filling(point, problem), problem)

    def launch(self, point: Point, problem: Problem) -> LaunchConfig:
        """The launch of this template's kernel for `problem`, checked against the template's own models."""
        p = self._filling(point, problem)
        launch = self._launched(p, problem)
        if not isinstance(launch, LaunchConfig):
            self._fail(f"launch gave {type(launch).__name__}", "launch returns a LaunchConfig")
        with blame(self._python):
            launch.to_json()
            largest = max(*launch.grid, *launch.block, *launch.cluster, launch.smem_bytes)
        if largest > LARGEST_SIDE:
            self._fail(f"launch with {largest}", "sides and shared memory are below 2^31")
        for what, said in (("smem_bytes", launch.smem_bytes), ("threads", launch.threads)):
            model = self._ask_for(int, what, p, problem)
            if model != said:
                self._fail(
                    f"launch has {what} {said}, the model {what}() says {model}", "one must use the other"
                )
        if min(*launch.grid, *launch.block, *launch.cluster) < 1:
            self._fail(f"empty launch: grid {launch.grid}, block {launch.block}", "every side is at least 1")
        known = {b.name for b in self.task.buffers(problem)} | {w.name for w in launch.workspaces}
        for arg in launch.args:
            if isinstance(arg, (BufferArg, TensorMapArg)) and arg.buffer not in known:
                self._fail(f"launch names a buffer {arg.buffer}", f"buffers: {', '.join(sorted(known))}")
        return launch

    def candidate(self, point: Point, problem: Problem) -> Candidate:
        """`point` rendered for `problem`: a self-contained source that starts with its provenance.

        BadTemplate if the template is broken; whether the point is feasible is not asked here."""
        point = self.space.parse(point)
        source = f"{self._provenance(point, problem)}\n{self._body(point, problem)}"
        return Candidate(problem, self.name, point, source, self.entry, self.launch(point, problem))

    def sibling(self, candidate: Candidate, problem: Problem) -> Candidate:
        """The candidate's point for another problem: neither it nor its launch need be checked again."""
        body, launch = self.sibling_launch(candidate, problem)
        source = f"{self._provenance(candidate.point, problem)}\n{body}"
        return Candidate(problem, self.name, candidate.point, source, self.entry, launch)

    def sibling_launch(self, candidate: Candidate, problem: Problem) -> tuple[str, LaunchConfig]:
        """The body of its source alone, and its launch.

        It is the candidate's own program where this template has one for both problems and launches it as
        ever, even if the candidate was rendered by an older state of the template."""
        point, own = self._filling(candidate.point, candidate.problem), body_of(candidate.source)
        body = self._body(point, problem)
        launch = self._launched(point, problem)
        if body == own or (
            body == self._body(point, candidate.problem)
            and candidate.launch == self._launched(point, candidate.problem)
        ):
            body = own
        return body, launch

    def _filling(self, point: Point, problem: Problem) -> Filling:
        """A point's values, those of newer parameters too. BadTemplate where one of its own is gone."""
        try:
            return self.space.filling(point, problem, self.gpu)
        except UsageError as error:
            self._fail(f"a point of an older state of this template: {error.message}", error.hint)

    def _launched(self, p: Filling, problem: Problem) -> LaunchConfig:
        """What the template's Python file says, with the constants that the task's tensors name."""
        launch: LaunchConfig = self._ask("launch", p, problem, self.gpu)
        held = self._held(problem)
        return replace(launch, constants=held) if held and isinstance(launch, LaunchConfig) else launch

    def _held(self, problem: Problem) -> tuple[Constant, ...]:
        """The tensors that lie in constant memory. Sizes do not change which they are, and a gate asks for
        some 30 launches of a candidate."""
        kind = problem.dtype, *problem.flags.items()
        if kind not in self._held_by_kind:
            held = [(one.constant, one.name) for one in self.task.buffers(problem) if one.constant]
            self._held_by_kind[kind] = tuple(Constant(*both) for both in held)
        return self._held_by_kind[kind]

    @cached_property
    def _held_by_kind(self) -> dict[tuple[object, ...], tuple[Constant, ...]]:
        return {}

    def unrendered(self, point: Point, problem: Problem) -> Candidate:
        """What is kept of a point at which the template fails: where it would come from, and no launch."""
        source = f"{self._provenance(point, problem)}\n"
        return Candidate(problem, self.name, point, source, self.entry, NO_LAUNCH)

    def _provenance(self, point: Point, problem: Problem) -> str:
        """The comment that a source starts with: the same for the same point, wherever it is rendered."""
        return (
            f"// evo {__version__} template {problem.task}/{self.name}\n"
            f"// problem {problem.key}\n"
            f"// point {canonical_json(dict(point))}\n"
        )

    def _body(self, point: Point, problem: Problem) -> str:
        """The source without its provenance. The last ones are kept: a point's siblings for other problems
        mostly have the same."""
        values = {**self._filling(point, problem), **self.derived(point, problem)}
        key = repr(values)
        if key not in self._bodies:
            if len(self._bodies) >= BODIES_KEPT:
                self._bodies.clear()
            body = self._includes.paste(self._program.render(values), self.path)
            # from each place of the name: to look for the whole expression takes a millisecond
            calls = re.compile(rf"\b{re.escape(self.entry)}\s*\(")
            if not any(calls.match(body, at) for at in _places(body, self.entry)):
                hint = "ENTRY names the __global__ function"
                self._fail(f"the source has no function {self.entry}", hint, self.path)
            self._bodies[key] = body
        return self._bodies[key]

    @cached_property
    def _bodies(self) -> dict[str, str]:
        return {}

    @cached_property
    def _python(self) -> Path:
        return _python_of(self.path)

    def _ask(self, name: str, *args: Any) -> Any:
        """Calls a function of the template's Python file."""
        return self._ask_for(lambda said: said, name, *args)

    def _ask_for(self, kind: Callable[[Any], Made], name: str, *args: Any) -> Made:
        """What a function of the template's Python file says, made into what it should be."""
        with blame(self._python):
            return kind(getattr(self._module, name)(*args))

    def _fail(self, message: str, hint: str, path: Path | None = None) -> NoReturn:
        raise BadTemplate(f"{path or self._python}:1: {message}", hint)


def _places(text: str, word: str) -> Iterator[int]:
    """Where `word` begins in `text`."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def list_templates(task: str, folders: Sequence[Path] = ()) -> list[str]:
    """Names of all templates of a task, sorted. A .cu file without a Python file beside it is none."""
    found = set()
    for suffix in _SUFFIXES:
        for path in (p for f in folders_of(task, folders) for p in f.glob(f"{task}/*{suffix}")):
            name = path.name.removesuffix(suffix)
            if _NAME.fullmatch(name) and (suffix != ".cu" or path.with_suffix(".py").is_file()):
                found.add(name)
    return sorted(found)


def load_template(task: Task, name: str, folders: Sequence[Path] = (), gpu: Gpu | None = None) -> Template:
    """The template `name` of `task`, checked: it parses, every hole has a value, its models and rules run.

    `gpu` is the one that launches are made for; by default it is the one that stands for the instruction set
    that the template needs. UnknownName if there is no such template; BadTemplate with file and line if it is
    broken.
    """
    relative = [f"{task.name}/{name}{suffix}" for suffix in _SUFFIXES if _NAME.fullmatch(name)]
    path = next(filter(None, (find_file(one, folders) for one in relative)), None)
    if path is None:
        raise UnknownName.among("template", name, list_templates(task.name, folders))
    python = _python_of(path)
    if not python.is_file():
        raise BadTemplate(f"{path}:1: there is no {python.name} beside it", "a template is two files")
    program = Macros.of(path) if path.suffix == ".cu" else Program.of(path)
    module = _names_of(python, path, task, program)
    with blame(python):
        arch_number(module.NEEDS)
    found = Template(
        name=name,
        task=task,
        space=_with_hardware_rules(module),
        needs=module.NEEDS,
        entry=module.ENTRY,
        path=path,
        deterministic=bool(getattr(module, "DETERMINISTIC", True)),
        reads=tuple(getattr(module, "READS", ())),
        gpu=gpu or target(module.NEEDS),
        _module=module,
        _program=program,
        _includes=Includes(task.name, tuple(folders)),
    )
    _check_holes(found)
    short = getattr(module, "SHORT", None)
    if isinstance(program, Macros) and short is not None:
        _check_source(found, program, short)
    return found


def _check_source(template: Template, program: Macros, short: ShortTemplate) -> None:
    """What a plain source says of its kernel's arguments and macros is what the Python file says."""
    task, entry = template.task, template.entry
    check_macros(program, [one.name for one in template.space.parameters])
    text = template._includes.paste(program.text, template.path)
    check_kernel(template.path, text, entry)
    parameters = parameters_of(text, entry)
    with blame(template._python):
        names, args = short.arguments(task)
    if parameters is not None:
        check_arguments(short.written_at, entry, parameters, names, args, task.buffers(task.example))
    buffers = task.buffers(task.example)
    if any(one.constant for one in buffers):
        check_constants(template.path, text, buffers, args, template.macros(task.example))


def _names_of(python: Path, path: Path, task: Task, program: Program | Macros) -> Any:
    """What a template's Python file defines, in the names of the long form. BadTemplate if one is missing."""
    try:
        module = load_module(python)
    except BadTemplate as error:
        if "TypeError: template() " not in error.message:
            raise
        hint = f"it takes {', '.join(inspect.signature(template).parameters)}"
        raise BadTemplate(error.message, hint) from error
    short = getattr(module, "TEMPLATE", None)
    if isinstance(short, ShortTemplate):
        entry = short.entry or only_kernel(path, path.read_text(encoding="utf-8"))
        try:
            return short.names(task, entry, program.holes)
        except UsageError as error:
            raise BadTemplate(f"{short.written_at}: {error.message}", error.hint) from error
    module = module if short is None else short
    required = ("SPACE", "NEEDS", "ENTRY", "smem_bytes", "threads", "derived", "launch")
    if missing := [n for n in required if not hasattr(module, n)]:
        hint = "TEMPLATE = template(…), or all names that evo/template/loading.py lists"
        raise BadTemplate(f"{python}:1: does not define {', '.join(missing)}", hint)
    return module


def _with_hardware_rules(module: Any) -> Space:
    optional = {name: getattr(module, name, None) for name in ("registers", "grid", "cluster")}
    models = ResourceModels(module.NEEDS, module.smem_bytes, module.threads, **optional)
    first, last = hardware_rules(models)
    space: Space = module.SPACE
    return replace(space, rules=(*first, *space.rules, *auto_rules(space.parameters), *last), models=models)


def _check_holes(template: Template) -> None:
    """Every hole has a parameter or a derived value, at the task's example problem."""
    declared = {p.name for p in template.space.parameters}
    declared |= template.derived(template.space.default, template.task.example).keys()
    if isinstance(template._program, Macros):
        template._program.check(declared)
    for hole, line in template._program.holes.items():
        if hole not in declared:
            hint = f"declared: {', '.join(sorted(declared))}"
            raise BadTemplate(
                f"{template.path}:{line}: hole {hole} has neither parameter nor derived value", hint
            )


def _python_of(path: Path) -> Path:
    return path.with_name(path.name.split(".")[0] + ".py")
