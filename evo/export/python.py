"""A folder that `pip install ./DIR` installs, without a compiler and without evo."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from evo.export.bundle import Bundle
from evo.export.readme import readme
from evo.launch import HERE, SOURCES
from evo.launch.contract import FILE
from evo.launch.packaged import LIBRARY
from evo.version import __version__

RUNTIME = (
    "contract", "dispatch", "driver", "fast", "operators", "packaged", "plans", "reading", "scratch",
    "traced",
)  # fmt: skip
"""Modules of evo/launch that a folder has a copy of; they import nothing of evo."""
LICENSE = "Apache-2.0"


def write_python(bundle: Bundle, folder: Path, library: Path | None) -> None:
    """The folder: pyproject.toml, README.md, tests, and the package."""
    package = folder / bundle.module
    write_package(bundle, package, library)
    _write(folder / "pyproject.toml", _pyproject(bundle))
    _write(folder / "README.md", readme(bundle))
    _write(folder / "tests" / "test_contract.py", _TESTS.format(module=bundle.module))


def write_package(bundle: Bundle, package: Path, library: Path | None) -> None:
    """The package alone: kernels and their sources, the table, the runtime, and the cases."""
    import torch

    task = bundle.task.name
    init = _INIT.format(module=bundle.module, task=task, namespace=bundle.namespace, own=_import(bundle))
    _write(package / "__init__.py", init)
    main = _MAIN.format(module=bundle.module, task=task, unchecked=UNCHECKED)
    _write(package / "__main__.py", main)
    _write(package / "dispatch.json", json.dumps(bundle.record(), indent=1, ensure_ascii=False) + "\n")
    for name in RUNTIME:
        shutil.copyfile(HERE / f"{name}.py", package / f"{name}.py")
    for path in SOURCES:
        shutil.copyfile(path, package / path.name)
    if library is not None:
        shutil.copyfile(library, package / LIBRARY)
    for own in filter(None, (bundle.fallback, bundle.pack)):
        shutil.copyfile(own, package / own.name)
    write_kernels(bundle, package)
    torch.save(bundle.cases(), package / FILE)


def write_kernels(bundle: Bundle, folder: Path) -> None:
    """Cubins, sources, and records of where each comes from."""
    for one in bundle.kernels:
        record = one.record()
        for arch, file in record["cubins"].items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.binaries[arch].cubin)
        _write(folder / record["source"], one.champion.source)
        said = json.dumps(dict(one.champion.record), indent=1, ensure_ascii=False)
        _write(folder / "provenance" / f"{one.name}.json", said + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _import(bundle: Bundle) -> str:
    """The lines that say what the task has of its own."""
    own = {"fallback": bundle.fallback, "pack": bundle.pack}
    imports = "".join(f"from .{name} import {name}\n" for name, file in own.items() if file)
    return (
        "from .dispatch import Place\n"
        + imports
        + "from .packaged import PackagedKernel\n"
        + "".join(f"\n{name} = None" for name, file in own.items() if not file)
    )


def _pyproject(bundle: Bundle) -> str:
    name = bundle.module.replace("_", "-")
    return _PYPROJECT.format(name=name, module=bundle.module, version=__version__, task=bundle.task.name)


_PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "CUDA kernels of {task}, found and checked by evo"
readme = "README.md"
requires-python = ">=3.11"
license = {{ text = "Apache-2.0" }}
dependencies = ["torch>=2.11"]

[tool.setuptools]
packages = ["{module}"]

[tool.setuptools.package-data]
{module} = ["*.json", "*.pt", "*.so", "*.cpp", "*.hpp", "cubins/*", "sources/*", "provenance/*"]
"""

UNCHECKED = 3
"""The exit code of a package's check that could not try every case: the machine lacks what it needs."""
_INIT = '''"""CUDA kernels of {task}, found and checked by evo. README.md has their numbers.

    from {module} import {task}
    print({task}.table())
"""

from pathlib import Path

{own}
__all__ = ["{task}", "Place"]

{task} = PackagedKernel(Path(__file__).parent, "{namespace}", fallback, pack)
"""{task} as one call, on torch tensors: `{task}(...)`, `{task}.explain(...)`, `{task}.table()`."""
'''

_MAIN = '''"""python -m {module}: the decision table, and what there is here; with `check` the contract."""

import sys

import torch

from . import {task} as call
from .contract import cases, check
from .packaged import NotServed, place_of

print(call.table())
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    print(f"here: {{place_of(torch.cuda.current_device()).name}}")
else:
    arches = sorted({{arch for one in call.dispatch.kernels.values() for arch in one["cubins"]}})
    needs = "NVIDIA's driver and one of " + ", ".join(arches)
    print(f"here: no GPU that torch can use; the kernels need {{needs}}")
if sys.argv[1:] == ["check"]:
    every, unchecked = cases(call.folder), []
    for case in every:
        try:
            print(f"right on {{case['name']}}: {{check(call, case, device)}}")
        except NotServed as error:
            unchecked.append(error)
    if unchecked:
        count = f"{{len(unchecked)}} of {{len(every)}} cases"
        print(f"{{count}} could not be checked here: {{unchecked[0]}}", file=sys.stderr)
        sys.exit({unchecked})
'''

_TESTS = '''"""The contract: small cases of the gate. On a GPU kernels answer, elsewhere the fallback."""

import pytest
import torch

import {module}
from {module}.contract import cases, check
from {module}.packaged import NotServed

CALL = getattr({module}, {module}.__all__[0])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = cases(CALL.folder)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_it_is_right_on(case):
    try:
        assert check(CALL, case, DEVICE)
    except NotServed as why:
        pytest.skip(str(why))


def test_the_table_can_be_read():
    assert CALL.dispatch.record["task"] in CALL.table()
    assert all((CALL.folder / file).is_file() for one in CALL.dispatch.kernels.values()
               for file in one["cubins"].values())
'''
