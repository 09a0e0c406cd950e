"""Includes: the text of quoted ones is pasted, so that a candidate's source needs no file but the toolkit's.

An include in angle brackets stays: the toolkit's folders alone are searched for it (by nvcc also those of the
host's compiler), and one that is not there does not compile. Whatever else includes a file is refused with
file and line: a path that leads out of those folders, a macro for a name, a directive that is not written
plainly (`%:include`, a comment or a line's end inside).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evo.errors import BadTemplate
from evo.task import template_folders

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]*)"[^\n]*$', re.MULTILINE)
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[ \t]*\n", re.MULTILINE)
_FIRST_LINE = '#line 1 "'
_OF_TOOLKIT = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?!/)(?!(?:[^>\n]*/)?\.\.?/)[^>\n\\]+>", re.MULTILINE)
_ANY = re.compile(r"^[^\S\n]*(?:#|%:)[^\S\n]*(?:include|import)(?![A-Za-z0-9])[^\n]*", re.MULTILINE)
_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
_NO_CODE = re.compile(
    r"""R"(?P<end>[^ ()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/""", re.DOTALL
)
_INCLUDE_NAME = re.compile(r"[A-Za-z0-9_]+(?:[./-][A-Za-z0-9_]+)*")


class Includes:
    """The files that a task's templates can include: below `TASK/include` or `include` of a template folder.
    Each is found and read once, and pasted once after the same files."""

    def __init__(self, task: str, folders: Sequence[Path]) -> None:
        self._task, self._folders = task, folders
        self._found: dict[tuple[str, Path], tuple[Path, str]] = {}
        self._pasted: dict[tuple[Path, bool, frozenset[Path]], tuple[str, set[Path]]] = {}
        """A file's text with its own includes, with `#line` or without, after those that were there before;
        and those that are there then."""

    def paste(self, text: str, origin: Path) -> str:
        """`text`, rendered from the file `origin`, with its quoted includes replaced: by the file's text the
        first time, by nothing after that. Where `text` says by `#line` which file its lines are of, pasted
        ones do, too. BadTemplate with file and line where a file cannot be had."""
        return self._paste(text, origin, set())

    def _paste(self, text: str, origin: Path, pasted: set[Path]) -> str:
        _refuse_others(_INCLUDE.sub("", text), origin)

        def content(match: re.Match[str]) -> str:
            asked = match[1], origin
            if asked not in self._found:
                found = self._find(*asked)
                self._found[asked] = found, found.read_text(encoding="utf-8")
            path, inner = self._found[asked]
            if path in pasted:
                return ""
            _, directive, after = text[: match.start()].rpartition(_FIRST_LINE)
            key = path, bool(directive), frozenset(pasted)
            if key not in self._pasted:
                begin, instead = (f'{_FIRST_LINE}{path.name}"\n', "\n") if directive else ("", "")
                now = pasted | {path}
                inner = self._paste(begin + _PRAGMA_ONCE.sub(instead, inner), path, now)
                self._pasted[key] = inner.rstrip(), now
            inner, now = self._pasted[key]
            pasted.update(now)
            if directive:
                name, number = after.partition('"')[0], after.count("\n") + 1
                return f'{inner}\n#line {number} "{name}"'
            return f"// {path.name}\n{inner}\n"

        return _INCLUDE.sub(content, text)

    def _find(self, name: str, origin: Path) -> Path:
        """The file that a quoted include of `origin` means."""
        number = _line_of(origin, f'"{name}"')
        line = f"{origin}:{number}"
        roots = [
            (folder / place / "include").resolve()
            for folder in template_folders(self._folders)
            for place in (self._task, "")
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


def _refuse_others(text: str, origin: Path) -> None:
    """BadTemplate where `text`, rendered from the file `origin`, includes what is not the toolkit's."""
    text = _SPLICE.sub("", text) if "\\" in text else text
    if text.count("include") + text.count("import") == len(_OF_TOOLKIT.findall(text)):
        return  # few sources have these words elsewhere, and need a closer look
    code = _NO_CODE.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    for found in _ANY.finditer(code):
        if not _OF_TOOLKIT.match(found[0]):
            directive = found[0].strip()
            raise BadTemplate(
                f"{origin}:{_line_of(origin, directive)}: refused: {directive}",
                'write #include "NAME" for a file of an include folder, #include <NAME> for the toolkit\'s',
            )


def _line_of(path: Path, text: str) -> int:
    """The first line of a file that contains `text`, or of its words the last; 1 where none does."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for words in (text, text.rsplit(maxsplit=1)[-1]):
        if numbers := [i for i, line in enumerate(lines, 1) if words in line]:
            return numbers[0]
    return 1
