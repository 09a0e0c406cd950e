"""Solutions of FlashInfer-Bench: one JSON file for each choice of flags, in Python, with the cubins as
base64. flashinfer-bench 0.1.2 validates and builds them, and its reference agrees (seen without a GPU)."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

from evo.export.bundle import Bundle
from evo.export.python import write_package
from evo.launch.dispatch import flags_text
from evo.version import __version__

BINARY = (".cubin", ".pt", ".so")
"""Files that are no text. Of these only cubins go into a solution."""


def write_flashinfer(bundle: Bundle, folder: Path, library: Path | None) -> None:  # noqa: ARG001
    """A file for each choice of flags that a kernel is for. The `definition` is named like the task, or as
    FlashInfer-Bench names it: change it there."""
    flags = {tuple(one.champion.problem.flags.items()) for one in bundle.kernels}
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch) / bundle.module
        write_package(bundle, package, None)
        sources = [
            {"path": path.relative_to(scratch).as_posix() + suffix, "content": text}
            for path in sorted(package.rglob("*"))
            if path.is_file()
            for suffix, text in _content(path)
        ]
    for chosen in sorted(flags, key=str):
        solution = _solution(bundle, dict(chosen), sources)
        text = json.dumps(solution, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{solution['name']}.json").write_text(text, encoding="utf-8")


def _solution(bundle: Bundle, flags: dict[str, Any], sources: list[dict[str, str]]) -> dict[str, Any]:
    task = bundle.task.name
    name = "_".join([bundle.module, *flags_text(flags).replace("=", "_").split()])
    outputs = [b.name for b in bundle.task.buffers(bundle.task.example.replace(**flags)) if b.written]
    main = _MAIN.format(module=bundle.module, task=task, flags=flags, outputs=outputs)
    return {
        "name": name,
        "definition": task,
        "author": f"evo {__version__}",
        "description": f"Kernels of {task} that evo found and checked; cubins lie beside their sources.",
        "spec": {
            "language": "python",
            "target_hardware": sorted({one.gpu for one in bundle.kernels}),
            "entry_point": "main.py::run",
            "dependencies": ["torch"],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": main}, *sources],
    }


def _content(path: Path) -> list[tuple[str, str]]:
    """What is added to the file's name, and its text."""
    if path.suffix == ".cubin":
        return [(".b64", base64.b64encode(path.read_bytes()).decode())]
    return [] if path.suffix in BINARY else [("", path.read_text(encoding="utf-8"))]


_MAIN = '''"""{task} by the kernels beside this file."""

try:
    from .{module} import {task} as call
except ImportError:  # where this file is no part of a package
    from {module} import {task} as call

FLAGS = {flags!r}
OUTPUTS = {outputs!r}


def run(*tensors, **named):
    """The outputs, in the definition's order, from the inputs, by place or by name."""
    found = call(*tensors, **named, **FLAGS)
    return tuple(found[name] for name in OUTPUTS) if isinstance(found, dict) else found
'''
