"""The emulator's C++ stays in pieces that a person can read: short files, short functions, short lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for pattern in ("*.cpp", "*.hpp", "*.h") for path in (ROOT / "evo").rglob(pattern))
FILE_LINES, FUNCTION_LINES, COLUMNS = 500, 60, 120

# A number such as 1'000 is left as it is: its quote follows a digit.
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
_NO_FUNCTION = re.compile(r"\b(namespace|struct|class|enum|union)\b[^()=]*$|=\s*$")


def functions(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, number of lines, and head of every function; a lambda in a table counts as one.

    Found by counting braces outside of comments, strings and macros. What a brace opens is told by the text
    before it: a function (or a statement within one) has a parameter list, a type or a list of values none.
    """
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    head, first, line = "", 1, 1
    begun: tuple[int, str] | None = None  # the function that is open
    depth = 0  # of braces within it
    for character in code:
        line += character == "\n"
        if character == "{":
            if begun:
                depth += 1
            elif "(" in head and not _NO_FUNCTION.search(head):
                begun, depth = (first, " ".join(head.split())), 1
            head = ""
        elif character == "}":
            depth -= begun is not None
            if begun and not depth:
                yield begun[0], line - begun[0] + 1, begun[1]
                begun = None
            head = ""
        elif character == ";":
            head = ""
        else:
            if not head.strip():
                first = line
            head += character


def test_there_is_cpp_to_look_at() -> None:
    assert len(SOURCES) > 30


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_files_functions_and_lines_are_short(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= FILE_LINES
    assert not [n for n, line in enumerate(lines, 1) if len(line) > COLUMNS]
    assert not [found for found in functions(text) if found[1] > FUNCTION_LINES]


def test_the_scan_sees_functions_of_every_kind() -> None:
    text = """
    namespace a {
    template <class T>
    struct S : B {
      int x = 0;
      int member(int a) const {
        if (a) { return '{'; }  // {
        return "}{"[0];
      }
      S(int x) : x(x) {}
    };
    #define MACRO(x) \\
      void x() {
    u32 free(
        int b) {
      struct Local { int y; };
      return 1'000;
    }
    const Row ROWS[] = {
        {"name", 1, [](int x) {
           return x;
         }},
    };
    }
    """
    assert [(n, lines) for n, lines, _ in functions(text)] == [(6, 4), (10, 1), (14, 5), (20, 3)]
