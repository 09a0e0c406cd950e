"""The Python stays in pieces that a person can read: short files, short functions, short lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("evo", "tests", "benchmarks", "templates")
SOURCES = sorted(
    path for name in FOLDERS for path in (ROOT / name).rglob("*.py") if ".venv" not in path.parts
)
FILE_LINES, FUNCTION_LINES, COLUMNS = 400, 60, 120


def too_long(text: str) -> Iterator[str]:
    """What in a file's text is above a limit; a function is counted whole, with its docstring."""
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield f"the file has {len(lines)} lines of {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {count} lines of {FUNCTION_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"line {number} has {len(line)} columns of {COLUMNS}"


def test_what_is_too_long_is_found() -> None:
    function = "async def f():\n" + "    pass\n" * 59
    fits = f"{function}# {'x' * 118}\n" + "\n" * 339
    assert list(too_long(fits)) == []
    assert list(too_long(f"{function}    pass\n# {'x' * 119}\n" + "\n" * 339)) == [
        "the file has 401 lines of 400",
        "line 1: f has 61 lines of 60",
        "line 62 has 121 columns of 120",
    ]


def test_there_is_python_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(FOLDERS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_functions_and_lines_are_short(path: Path) -> None:
    found = list(too_long(path.read_text()))
    assert found == []
