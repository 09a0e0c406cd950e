"""What must hold of the tree as a whole: words, doors, sizes of things."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import evo
from evo.dtype import is_dtype
from evo.task import list_tasks, load_task
from evo.task.task import EXAMPLE
from evo.task.tensors import FAMILIES

PACKAGE = Path(evo.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))

UNUSED_WORDS = {"util", "utils", "helper", "helpers", "manager", "handler", "common", "misc", "data", "info",
                "process", "do", "my", "new", "old", "v2"}  # fmt: skip

TERM = "gaussian_process"
"""A term of the field, although it has one of these words."""

DOORS = {
    "optuna": {"strategy"},
    "sqlalchemy": {"store"},
    "alembic": {"store"},
    "zstandard": {"store"},
    "jinja2": {"template"},
    "cuda": {"device"},
    "ninja": {"compile"},
    "safetensors": {"calls"},
    "psutil": {"evaluate", "store"},
    "platformdirs": {"cache"},
    "typer": {"cli"},
    "cloudpickle": {"api"},
    "threadpoolctl": {"strategy"},
    "distributed": {"cluster"},
    "dask_jobqueue": {"cluster"},
    "rich": {"cli", "report"},
}
"""A third-party library -> the only modules of evo that import it."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """The top-level names of everything that a file imports, at any depth."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found


def module_of(path: Path) -> str:
    """`store` for evo/store/engine.py, `gpu` for evo/gpu.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_names_of_files_say_something() -> None:
    files = [p for folder in ("evo", "templates", "tests") for p in (ROOT / folder).rglob("*") if p.is_file()]
    bad = [
        p
        for p in files
        if set(re.split(r"[_.]", p.name.lower().replace(TERM, ""))) & UNUSED_WORDS
        and "__pycache__" not in p.parts
    ]
    assert not bad


def test_names_of_classes_and_functions_say_something() -> None:
    bad = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                words = re.findall(r"[A-Z]?[a-z0-9]+", node.name)
                if {word.lower() for word in words} & (UNUSED_WORDS - {"new", "old", "do", "process"}):
                    bad.append(f"{path.name}:{node.lineno} {node.name}")
    assert not bad


@pytest.mark.parametrize("library", DOORS)
def test_a_library_has_one_door(library: str) -> None:
    users = {module_of(path) for path in MODULES if library in imports(path)}
    assert users <= DOORS[library]
    assert users, f"nobody imports {library}: is it still a dependency?"


def test_the_environment_is_read_by_the_command_line_alone() -> None:
    """A subprocess may be given an environment; a setting may not come from one."""
    pattern = re.compile(r"os\.environ\b(?!\s*[|,)}])|os\.getenv")
    bad = {
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in MODULES
        if module_of(path) != "cli"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    }
    assert not bad


def test_only_the_command_line_prints() -> None:
    """Others may report a step that takes long, on stderr."""
    bad = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in MODULES
        if module_of(path) != "cli"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not any(keyword.arg == "file" for keyword in node.keywords)
    ]
    assert not bad


def test_importing_the_command_line_brings_nothing_heavy() -> None:
    code = "import sys, evo.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert not {"torch", "numpy", "optuna", "sqlalchemy", "jinja2", "cuda"} & set(done.stdout.split())


def test_a_private_name_stays_in_its_module() -> None:
    bad = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evo"):
                bad += [
                    f"{path.name}:{node.lineno} {a.name}" for a in node.names if re.match(r"_[a-z]", a.name)
                ]
    assert not bad


DEVICE_CLASSES = {"CudaDevice", "CudaKernel", "EmulatorDevice", "EmulatorKernel"}
ABOUT_THE_EMULATOR = {"cli/kernel.py", "explain/emulation.py", "explain/profiling.py", "selftest/mutants.py"}
"""They emulate, whatever the device: `evo emulate`, counters for `evo profile`, mutants of PTX."""
DEVICES = {"device", "_device", "kernel", "_kernel"}
"""What variables that hold a device or a loaded kernel are called."""


def last_name(node: ast.AST) -> str:
    """`device` for `device` and for `self.device`; "" for what is no name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def switches_on_a_device(tree: ast.AST) -> Iterator[ast.expr]:
    """Where code asks which device it has, rather than what it is like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "hasattr", "getattr"):
            subjects = {last_name(n) for argument in node.args for n in ast.walk(argument)}
            if last_name(node.args[0]) in DEVICES or subjects & DEVICE_CLASSES:
                yield node
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(s, ast.Attribute) and s.attr == "kind" and last_name(s.value) in DEVICES
                   for s in sides):  # fmt: skip
                yield node
            if any(isinstance(s, ast.Constant) and s.value in ("cuda", "emulator") for s in sides) and any(
                last_name(s) in DEVICES for s in sides
            ):
                yield node


def test_a_device_is_asked_what_it_is_like_and_not_which_it_is() -> None:
    bad = []
    for path in MODULES:
        place = path.relative_to(PACKAGE).as_posix()
        if place.split("/")[0] in ("device", "testing"):
            continue
        tree = tree_of(path)
        bad += [f"{place}:{node.lineno}" for node in switches_on_a_device(tree)]
        imported = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        allowed = {"EmulatorDevice", "EmulatorKernel"} if place in ABOUT_THE_EMULATOR else set()
        bad += [f"{place} imports {name}" for name in sorted(imported & DEVICE_CLASSES - allowed)]
    assert not bad


@pytest.mark.parametrize(
    "switch",
    [
        "if isinstance(self.device, CudaDevice): pass",
        "if isinstance(found, EmulatorKernel): pass",
        "wait = getattr(self.device, 'synchronize', None)",
        "if hasattr(device, 'mark'): pass",
        "n = 2 if device.kind == 'cuda' else 1",
        "n = 2 if 'emulator' == self.device else 1",
    ],
)
def test_a_switch_on_a_device_is_found(switch: str) -> None:
    assert list(switches_on_a_device(ast.parse(switch)))


TASK_FOLDERS = [ROOT / "tests/toys"]
"""Tasks beside those that come with evo."""
WORDS_OF_THE_FIELD = {
    *("at", "bias", "columns", "eager", "efficient", "gap", "low", "math", "rows", "scale", "small", "total"),
    *("equal", "labels", "log", "loss", "normal", "ones", "seeds", "uniform", "weight", "zeros"),
    *("batch", "growing", "huge", "integers", "layout", "matmul", "offset", "out", "scales", "square"),
}
"""What tasks call something, and the engine something else: looked for where a problem or tensors are asked
for it, and not elsewhere."""
KEYED_BY_THE_TASK = {"problem", "sizes", "flags", "inputs", "outputs", "tensors", "baselines"}
"""What variables are called that are asked by a task's names."""
MAKES_A_PROBLEM = {"replace", "problem", "Problem"}
"""Functions whose keywords may be a task's names."""
NAMES_A_TASK = {
    ("cli/options.py", "attention"),
    ("cli/importing.py", "kernelbench"),
    ("importers/files.py", "kernelbench"),
    ("importers/flashinfer_trace.py", "Flash"),
}
"""The task of a command that is told of none; formats of files, which have words of a task's names."""
OTHER_LETTERS = {
    *(("compile/ninja.py", "cxx"), ("compile/standard_headers.py", "a, T"), ("device/cuda.py", "ab")),
    *(("device/emulator/abi.py", "box"), ("device/emulator/device.py", "box"), ("trial/trial.py", "box")),
    *(("launch/plans.py", "box"), ("export/c_header.py", "box"), ("export/formats.py", "c")),
    *(("gate/tolerance.py", "NaN"), ("importers/script/arrays.py", "b"), ("template/macros.py", "c")),
}
"""What is made of letters that a task calls its matrices and sizes by, and means something else."""


@cache
def names_of_tasks() -> frozenset[str]:
    """The tasks, their sizes, flags, buffers, families, baselines and named problems."""
    found: set[str] = set()
    for task in (load_task(name, TASK_FOLDERS) for name in list_tasks(TASK_FOLDERS)):
        families = set(task.families.names) - set(FAMILIES)  # those that evo gives every task
        problems = set(task.problems) - {EXAMPLE}
        found |= {task.name, *task.sizes, *task.flags, *families, *problems}
        found |= {buffer.name for buffer in task.buffers(task.example)}
        found |= {name for group, members in task.baseline_groups.items() for name in (group, *members)}
        found |= set(task.baselines(task.example, "cpu"))
    return frozenset(found)


def said_in(node: ast.AST, docstrings: set[int]) -> Iterator[str]:
    """The words of an identifier or of a string that is no docstring, also joined as they stand: of
    `large_logits_of` large_logits, too."""
    texts = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname")]
    if isinstance(node, ast.Constant) and id(node) not in docstrings:
        texts.append(node.value)
    for text in texts:
        for word in re.findall(r"\w+", text) if isinstance(text, str) else ():
            parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", word)
            yield from ("_".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))


def keys_in(node: ast.AST) -> Iterator[str]:
    """The keys by which a node asks a problem or tensors for something, or makes a problem of them."""
    keys: list[ast.expr | None] = []
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if len(constant_text(key)) == 1]
    elif isinstance(node, ast.Subscript):
        if last_name(node.value) in KEYED_BY_THE_TASK or len(constant_text(node.slice)) == 1:
            keys = [node.slice]
    elif isinstance(node, ast.Call):
        of = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if of in KEYED_BY_THE_TASK and last_name(node.func) in ("get", "pop"):
            keys = list(node.args[:1])
        if last_name(node.func) in MAKES_A_PROBLEM:
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        keys = [node.left] if last_name(node.comparators[0]) in KEYED_BY_THE_TASK else []
    yield from (constant_text(key) for key in keys)


def constant_text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_of_a_task_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines of code that name something that only a task knows, and the name."""
    names = names_of_tasks()
    letters = {name for name in names if len(name) == 1}
    own = {name.lower() for name in names - letters - WORDS_OF_THE_FIELD}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        yield from ((line, said) for said in said_in(node, docstrings) if said.lower() in own)
        yield from ((line, key) for key in keys_in(node) if key in names and key.lower() not in own)
        text = constant_text(node) if id(node) not in docstrings else ""
        rows = re.findall(
            r"^[A-Za-z]{2,}$|\b[A-Za-z](?:, ?[A-Za-z])+\b", text
        )  # "qkv"; "B,H,L" in a sentence
        yield from ((line, row) for row in rows if set(row) - {",", " "} <= letters)


def sets_of_dtypes(tree: ast.AST) -> Iterator[int]:
    """Lines of tuples, lists and sets whose elements are storage types."""
    for node in ast.walk(tree):
        elements = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else []
        if elements and all(is_dtype(constant_text(element)) for element in elements):
            yield elements[0].lineno


def test_the_engine_knows_no_task() -> None:
    """`testing` is made of kernels and tasks of its own."""
    bad = []
    for path in MODULES:
        place, tree = path.relative_to(PACKAGE).as_posix(), tree_of(path)
        found = set(names_of_a_task_in(tree)) if module_of(path) != "testing" else set()
        bad += [
            f"{place}:{line} {name}"
            for line, name in sorted(found)
            if (place, name) not in NAMES_A_TASK | OTHER_LETTERS
        ]
        bad += [f"{place}:{line} a set of dtypes" for line in sets_of_dtypes(tree) if place != "dtype.py"]
    assert not bad


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("if problem['causal']: pass", "causal"),
        ("def run(self, causal=False): pass", "causal"),
        ("is_causal = True", "causal"),
        ("said = 'a causal mask'", "causal"),
        ("said = f'{x} of the SDPA group'", "SDPA"),
        ("fastest_sdpa_us = 1.0", "sdpa"),
        ("class FastestSDPA: pass", "SDPA"),
        ("at = problem['L']", "L"),
        ("at = some.sizes['L']", "L"),
        ("at = anything['L']", "L"),
        ("small = problem.replace(L=64)", "L"),
        ("small = Problem('mine', {'B': 1}, 'fp16')", "B"),
        ("names = list('qkv')", "qkv"),
        ("hint = 'a shape is B,H,L,D as in 1,8'", "B,H,L,D"),
        ("x = inputs['low']", "low"),
        ("if 'bias' in problem.flags: pass", "bias"),
        ("turned = flags.get('bias')", "bias"),
        ("inputs = task.inputs(problem, 'large_logits', 0, 'cpu')", "large_logits"),
        ("task = load_task('attention')", "attention"),
        ("DEFAULT = 'row_sum'", "row_sum"),
    ],
)
def test_a_name_of_a_task_is_found(code: str, name: str) -> None:
    assert name in {found for _, found in names_of_a_task_in(ast.parse(code))}


@pytest.mark.parametrize(
    "code",
    [
        '"""evo gate attention --flag causal"""',
        'def f(problem):\n    """Of `causal` and problem["L"]."""\n    return problem.sizes',
        "import math\nlow, total = math.floor(x), problem[name]",
        "found['total'] = row.get('low')",
        "smallest = numpy.partition(row, k=3)",
        "code = {'fp16': 'e'}",
    ],
)
def test_other_words_are_left_alone(code: str) -> None:
    assert not list(names_of_a_task_in(ast.parse(code)))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("if dtype in ('fp16', 'bf16'): pass", True),
        ("KINDS = {'fp32'}", True),
        ("Kind = Literal['fp16', 'bf16']", True),
        ("def f(dtypes=['fp32', 'i32']): pass", True),
        ("dtype = 'fp16'", False),
        ("EPSILON = {'fp16': 2**-11, 'bf16': 2**-8}", False),
        ("axes = ('rows', 'fp16')", False),
    ],
)
def test_a_set_of_dtypes_is_found(code: str, found: bool) -> None:
    assert bool(list(sets_of_dtypes(ast.parse(code)))) is found
