"""No files of evo import each other in a circle, not even for types or inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import evo

PACKAGE = Path(evo.__file__).parent


def dotted(path: Path, root: Path) -> str:
    """`evo.store` for evo/store/__init__.py, `evo.store.engine` for evo/store/engine.py."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each module that is imported from and the name that is taken; "" where the module itself is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def graph_of(package: Path) -> dict[str, set[str]]:
    """Which modules each module imports. A file that takes a name from its own package is in a circle, too:
    the package's `__init__` imports it."""
    root = package.parent
    trees = {dotted(path, root): ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        graph[name] = set()
        for module, taken in imported(tree):
            found = f"{module}.{taken}" if f"{module}.{taken}" in trees else module
            if found in trees and found != name:
                graph[name].add(found)
    return graph


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, in order; none where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = graph_of(PACKAGE)
    assert sum(map(len, graph.values())) > 500
    assert circle_in(graph) == []


@pytest.mark.parametrize(
    "closing",
    [
        "from pond.first import fish",
        "def late():\n    from pond.first import fish",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pond import first",
        "import pond.first",
    ],
)
def test_a_circle_is_found(tmp_path: Path, closing: str) -> None:
    pond = tmp_path / "pond"
    pond.mkdir()
    (pond / "__init__.py").write_text("")
    (pond / "first.py").write_text("from pond.second import x\n")
    (pond / "second.py").write_text("x = 1\n")
    assert circle_in(graph_of(pond)) == []
    (pond / "second.py").write_text(f"{closing}\nx = 1\n")
    assert set(circle_in(graph_of(pond))) == {"pond.first", "pond.second"}
