"""What must hold of the tree as a whole: words, doors, sizes of things."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import evo

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
    "psutil": {"evaluate", "store"},
    "platformdirs": {"cache"},
    "typer": {"cli"},
    "rich": {"cli", "report"},
}
"""A third-party library -> the only modules of evo that import it."""


def imports(path: Path) -> set[str]:
    """The top-level names of everything that a file imports, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
        for node in ast.walk(ast.parse(path.read_text())):
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
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not any(keyword.arg == "file" for keyword in node.keywords)
    ]
    assert not bad


def test_importing_the_command_line_brings_nothing_heavy() -> None:
    code = "import sys, evo.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"torch", "numpy", "optuna", "sqlalchemy", "jinja2", "cuda"} & set(done.stdout.split())


def test_a_private_name_stays_in_its_module() -> None:
    bad = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
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
        tree = ast.parse(path.read_text())
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
