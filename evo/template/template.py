"""Templates: CUDA source with holes, rendered into candidates. The only importer of Jinja.

A template is two files with one stem in `templates/<task>/`. `<name>.cu.jinja` is CUDA C++ with holes
`{{ bm }}` and line statements `//% if stages > 1`. `<name>.py` says what may fill them; it defines

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
to run. In models `p.bm` may be an array: write them with operators and `np.where`.

The Jinja that is understood is small on purpose: holes, arithmetic, `if`, `set`, and `for … in range(…)`.
Nothing in it can reach Python, run forever or grow without bound.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from evo import __version__
from evo.errors import BadTemplate, UnknownName, UsageError
from evo.gpu import Gpu, Limits, arch_number, target
from evo.space import Filling, ResourceModels, Space, hardware_rules
from evo.task import Task, blame, find_file, load_module, template_folders
from evo.trial import (
    BufferArg,
    Candidate,
    LaunchConfig,
    Point,
    Problem,
    TensorMapArg,
    Value,
    body_of,
    canonical_json,
)

RENDERED_BYTES = 1 << 20
"""Most bytes that a template may render to, includes not counted; a real one has a few tens of KB."""
BODIES_KEPT = 32
"""Rendered sources that a template keeps in memory, some 60 KB each."""
LOOP_STEPS = 100_000
"""Most steps of all loops of one rendering together."""

_SUFFIX = ".cu.jinja"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]*)"[^\n]*$', re.MULTILINE)
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[ \t]*\n", re.MULTILINE)
_INCLUDE_NAME = re.compile(r"[A-Za-z0-9_]+(?:[./-][A-Za-z0-9_]+)*")

_FILTERS = frozenset({"int", "float", "abs", "round", "lower", "upper", "string", "min", "max"})
_TESTS = frozenset({"odd", "even", "divisibleby", "eq", "ne", "lt", "le", "gt", "ge", "in", "true", "false"})
_LOOP_FIELDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_NODES = (
    nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.If, nodes.For,
    nodes.Assign, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add,
    nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Filter,
    nodes.Test, nodes.Call, nodes.Getattr,
)  # fmt: skip


@dataclass(frozen=True)
class Template:
    """A loaded template. `space` has the template's rules and the ones that hold for every template."""

    name: str
    task: Task
    space: Space
    needs: str
    entry: str
    path: Path
    """The .cu.jinja file."""
    deterministic: bool
    gpu: Gpu
    """The GPU that launches are made for."""
    _module: ModuleType
    _program: jinja2.Template
    _holes: frozenset[str]
    _folders: tuple[Path, ...]

    def holes(self) -> frozenset[str]:
        """The names that the source leaves open."""
        return self._holes

    def supports(self, problem: Problem, limits: Limits) -> str | None:
        """Why this template cannot serve `problem` within `limits` at all; None where it can."""
        if not limits.allows(self.needs):
            return f"needs {self.needs} instructions, {limits.instructions} allowed"
        said = self._ask("supports", problem) if hasattr(self._module, "supports") else None
        return None if said is None else str(said)

    def derived(self, point: Point, problem: Problem) -> dict[str, Value]:
        """The values of the holes that are no parameters."""
        derived = dict(self._ask("derived", Filling(point), problem))
        if clash := derived.keys() & point.keys():
            self._fail(f"derived values named like parameters: {', '.join(sorted(clash))}", "rename one")
        return derived

    def tiles(self, point: Point, problem: Problem) -> tuple[int, ...]:
        """The tile sizes whose boundaries the gate tests."""
        if hasattr(self._module, "tiles"):
            return tuple(int(t) for t in self._ask("tiles", Filling(point), problem))
        return tuple(int(point[name]) for name in ("bm", "bn") if name in point)

    def registers(self, point: Point, problem: Problem) -> int | None:
        """The template's model of the registers a thread, which the space is pruned by; None without one."""
        return (
            int(self._ask("registers", Filling(point), problem))
            if hasattr(self._module, "registers")
            else None
        )

    def launch(self, point: Point, problem: Problem) -> LaunchConfig:
        """The launch of this template's kernel for `problem`, checked against the template's own models."""
        p = Filling(point)
        launch = self._ask("launch", p, problem, self.gpu)
        if not isinstance(launch, LaunchConfig):
            self._fail(f"launch gave {type(launch).__name__}", "launch returns a LaunchConfig")
        for what, said in (("smem_bytes", launch.smem_bytes), ("threads", launch.threads)):
            model = int(self._ask(what, p, problem))
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
        """The candidate's point for another problem: neither it nor its launch need be checked again.

        It is the candidate's own program where this template has one for both problems and launches it as
        ever, even if the candidate was rendered by an older state of the template."""
        point, own = candidate.point, body_of(candidate.source)
        body = self._body(point, problem)
        launch = self._ask("launch", Filling(point), problem, self.gpu)
        if (
            body != own
            and body == self._body(point, candidate.problem)
            and candidate.launch == self._ask("launch", Filling(point), candidate.problem, self.gpu)
        ):
            body = own
        source = f"{self._provenance(point, problem)}\n{body}"
        return Candidate(problem, self.name, point, source, self.entry, launch)

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
        values = {**point, **self.derived(point, problem)}
        key = canonical_json(values)
        if key not in self._bodies:
            if len(self._bodies) >= BODIES_KEPT:
                self._bodies.clear()
            body = self._paste(self._render(values), set())
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
    def _included(self) -> dict[tuple[str, Path], tuple[Path, str]]:
        return {}

    def _render(self, values: Mapping[str, Value]) -> str:
        pieces, size = [], 0
        with _blame_jinja(self.path):
            for piece in self._program.generate({**values, "range": _Loops().range}):
                size += len(piece)
                if size > RENDERED_BYTES:
                    self._fail(
                        f"renders to more than {RENDERED_BYTES} bytes", "is a loop too long?", self.path
                    )
                pieces.append(piece)
        return "".join(pieces) + "\n"

    def _paste(self, text: str, pasted: set[Path], origin: Path | None = None) -> str:
        """`text` with each quoted include replaced by the file's text, the first time; nothing after that."""

        def content(match: re.Match[str]) -> str:
            asked = match[1], origin or self.path
            if asked not in self._included:
                found = self._include(*asked)
                self._included[asked] = found, _PRAGMA_ONCE.sub("", found.read_text(encoding="utf-8"))
            path, inner = self._included[asked]
            if path in pasted:
                return ""
            pasted.add(path)
            return f"// {path.name}\n{self._paste(inner, pasted, path).rstrip()}\n"

        return _INCLUDE.sub(content, text)

    def _include(self, name: str, origin: Path) -> Path:
        """The file that a quoted include means: below `<task>/include` or `include` of a template folder."""
        number = _line_of(origin, f'"{name}"')
        line = f"{origin}:{number}"
        roots = [
            (folder / place / "include").resolve()
            for folder in template_folders(self._folders)
            for place in (self.task.name, "")
        ]
        if not _INCLUDE_NAME.fullmatch(name):
            raise BadTemplate(f'{line}: refused to include "{name}"', "only files of an include folder")
        for root in roots:
            path = (root / name).resolve()
            if path.is_file():
                if not path.is_relative_to(root):  # a link that leads out
                    raise BadTemplate(
                        f'{line}: refused to include "{name}"', "it lies outside the include folder"
                    )
                return path
        raise BadTemplate(
            f'{line}: there is no include "{name}"', "quoted includes lie in include/ or TASK/include/"
        )

    @cached_property
    def _python(self) -> Path:
        return _python_of(self.path)

    def _ask(self, name: str, *args: Any) -> Any:
        """Calls a function of the template's Python file."""
        with blame(self._python):
            return getattr(self._module, name)(*args)

    def _fail(self, message: str, hint: str, path: Path | None = None) -> NoReturn:
        raise BadTemplate(f"{path or self._python}:1: {message}", hint)


def _places(text: str, word: str) -> Iterator[int]:
    """Where `word` begins in `text`."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def list_templates(task: str, folders: Sequence[Path] = ()) -> list[str]:
    """Names of all templates of a task, sorted."""
    found = (path for folder in template_folders(folders) for path in folder.glob(f"{task}/*{_SUFFIX}"))
    return sorted({name for name in (p.name.removesuffix(_SUFFIX) for p in found) if _NAME.fullmatch(name)})


def load_template(task: Task, name: str, folders: Sequence[Path] = (), gpu: Gpu | None = None) -> Template:
    """The template `name` of `task`, checked: it parses, every hole has a value, its models and rules run.

    `gpu` is the one that launches are made for; by default it is the one that stands for the instruction set
    that the template needs. UnknownName if there is no such template; BadTemplate with file and line if it is
    broken.
    """
    path = find_file(f"{task.name}/{name}{_SUFFIX}", folders) if _NAME.fullmatch(name) else None
    if path is None:
        raise UnknownName.among("template", name, list_templates(task.name, folders))
    python = _python_of(path)
    if not python.is_file():
        raise BadTemplate(f"{path}:1: there is no {python.name} beside it", "a template is two files")
    module = load_module(python)
    required = ("SPACE", "NEEDS", "ENTRY", "smem_bytes", "threads", "derived", "launch")
    if missing := [n for n in required if not hasattr(module, n)]:
        raise BadTemplate(
            f"{python}:1: does not define {', '.join(missing)}", "see evo/template.py for all names"
        )
    with blame(python):
        arch_number(module.NEEDS)
    program, holes = _compile(path)
    template = Template(
        name=name,
        task=task,
        space=_with_hardware_rules(module),
        needs=module.NEEDS,
        entry=module.ENTRY,
        path=path,
        deterministic=bool(getattr(module, "DETERMINISTIC", True)),
        gpu=gpu or target(module.NEEDS),
        _module=module,
        _program=program,
        _holes=frozenset(holes),
        _folders=tuple(folders),
    )
    _check_holes(template, holes)
    return template


def _with_hardware_rules(module: ModuleType) -> Space:
    optional = {name: getattr(module, name, None) for name in ("registers", "grid", "cluster")}
    models = ResourceModels(module.NEEDS, module.smem_bytes, module.threads, **optional)
    first, last = hardware_rules(models)
    space: Space = module.SPACE
    return replace(space, rules=(*first, *space.rules, *last), models=models)


def _check_holes(template: Template, holes: Mapping[str, int]) -> None:
    """Every hole has a parameter or a derived value, at the task's example problem."""
    declared = {p.name for p in template.space.parameters}
    declared |= template.derived(template.space.default, template.task.example).keys()
    for hole, line in holes.items():
        if hole not in declared:
            hint = f"declared: {', '.join(sorted(declared))}"
            raise BadTemplate(
                f"{template.path}:{line}: hole {hole} has neither parameter nor derived value", hint
            )


def _python_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_SUFFIX) + ".py")


class _Loops:
    """The `range` of one rendering: all its loops draw on one budget of steps."""

    def __init__(self) -> None:
        self.left = LOOP_STEPS

    def range(self, *bounds: int) -> Iterator[int]:
        for i in range(*bounds):
            self.left -= 1
            if self.left < 0:
                raise SecurityError(f"loops take more than {LOOP_STEPS} steps")
            yield i


class _Sandbox(ImmutableSandboxedEnvironment):
    """Arithmetic on numbers that stay small: `"x" * 10**9` and towers of powers end here."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for side in (left, right):
            if not isinstance(side, (int, float, jinja2.Undefined)):
                raise SecurityError(f"{operator} works on numbers, not on {type(side).__name__}")
        result = super().call_binop(context, operator, left, right)
        if abs(result) >= 2**63:
            raise SecurityError(f"{left} {operator} {right} is beyond 64 bits")
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002
        return attr in _LOOP_FIELDS


def _text(value: Any) -> str:
    """A value as C++ writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str, jinja2.Undefined)):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise SecurityError(f"a hole cannot hold {value!r}")


def _compile(path: Path) -> tuple[jinja2.Template, dict[str, int]]:
    """The compiled template, and its holes with the line where each is first used."""
    environment = _Sandbox(
        undefined=jinja2.StrictUndefined, line_statement_prefix="//%", trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=False, autoescape=False, finalize=_text,
    )  # fmt: skip
    environment.globals.clear()
    with _blame_jinja(path):
        text = path.read_text(encoding="utf-8")
        if len(text) > RENDERED_BYTES:
            raise BadTemplate(f"{path}:1: the template is larger than {RENDERED_BYTES} bytes", "split it")
        tree = environment.parse(text, filename=str(path))
        for node in tree.find_all(nodes.Node):
            _refuse_unknown(node, path)
        names = meta.find_undeclared_variables(tree) - {"range"}
        holes = {n.name: n.lineno for n in sorted(tree.find_all(nodes.Name), key=lambda n: -n.lineno)}
        code = environment.compile(text, filename=str(path))
        program = jinja2.Template.from_code(environment, code, environment.make_globals(None))
    return program, {name: holes[name] for name in sorted(names)}


def _refuse_unknown(node: nodes.Node, path: Path) -> None:
    """BadTemplate unless `node` belongs to the part of Jinja that templates may use."""
    hint = "templates may use holes, arithmetic, if, set and `for i in range(n)`"
    what = type(node).__name__.lower()
    match node:
        case nodes.Filter(name=name):
            allowed, what = name in _FILTERS, f"filter {name}"
        case nodes.Test(name=name):
            allowed, what = name in _TESTS, f"test {name}"
        case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr):
            allowed, what = attr in _LOOP_FIELDS, f"loop.{attr}"
        case nodes.Getattr():
            allowed, what = False, f"attribute .{node.attr}"
        case nodes.Call():
            plain = not (node.kwargs or node.dyn_args or node.dyn_kwargs)
            allowed, what = plain and isinstance(node.node, nodes.Name) and node.node.name == "range", "call"
        case nodes.For():
            allowed, what = isinstance(node.iter, nodes.Call) and not node.recursive, "loop over no range"
        case nodes.Assign():
            allowed = isinstance(node.target, nodes.Name) and node.target.name not in ("range", "loop")
        case _:
            allowed = isinstance(node, _NODES)
    if not allowed:
        raise BadTemplate(f"{path}:{node.lineno}: refused: {what}", hint)


@contextmanager
def _blame_jinja(path: Path) -> Iterator[None]:
    """Turns what Jinja raises into a BadTemplate with the template's own line."""
    try:
        yield
    except UsageError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"{path}:{error.lineno}: {error.message}", "fix the template's syntax") from error
    except RecursionError as error:
        raise BadTemplate(f"{path}:1: nested too deeply", "simplify the expressions") from error
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, UnicodeDecodeError) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        hint = "a hole or statement of the template cannot be evaluated"
        raise BadTemplate(f"{path}:{lines[-1] if lines else 1}: {error}", hint) from error


def _line_of(path: Path, text: str) -> int:
    """The first line of a file that contains `text`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((i for i, line in enumerate(lines, 1) if text in line), 1)
