"""The statements of a kernel's body: what its variables are, by how much its loops go on, how buffers are
indexed. And constants that may become tunables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from evo.dtype import CXX_TYPES

_INTEGER = (
    r"(?:unsigned\s+int|unsigned|u?int|size_t|auto|u?int(?:8|16|32|64)_t|(?:unsigned\s+)?long(?:\s+long)?)"
)
_CASTS = re.compile(
    rf"\(\s*(?:const\s+)?{_INTEGER}\s*\)|\b(?:static|reinterpret)_cast\s*<[^<>]*>\s*(?=\()"
    r"|#\s*pragma[^\n]*|\b(?!std)\w+\s*::\s*(?=\w)"
)
_CONSTANT = r"(?:constexpr|const)\s+(?:static\s+)?(?:const\s+)?"
_DECLARED = rf"\b{_CONSTANT}{_INTEGER}\s+([^;]+);|\benum\b[^{{;]*\{{([^}}]*)\}}"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n\\]+?)[ \t]*$"
_EDGES = re.compile(
    r"[;{},?:\[\]]|&&|\|\||[-+*/%&|^]=|[<>=!]=|(?<![<>])[<>](?![<>])|(?<![=!<>])=(?!=)|\breturn\b|\belse\b"
)
_STAYS = re.compile(r"vec|lane|halo|radius|pad(?!ded)|warp_?size|head", re.IGNORECASE)
"""Names of constants that the rest of a kernel depends on: how wide a vector is, how far a stencil looks."""


class Statements:
    """The body of a kernel, without casts."""

    def __init__(self, body: str) -> None:
        self.text = re.sub(r"\s*\.\s*(?=[xyz]\b)", ".", _CASTS.sub(" ", body))
        assigned = list(self._assigned())
        self.steps: dict[str, list[str]] = {}
        """By how much variables grow, of those that do: names are used again for other loops."""
        for name, step in re.findall(r"\b(\w+)\s*\+=\s*([^;{}]+)", self.text):
            self.steps.setdefault(name, []).append(trimmed(step))
        for name in {before or after for before, after in re.findall(r"\+\+(\w+)|(\w+)\+\+", self.text)}:
            self.steps.setdefault(name, []).append("1")
        self.definitions = {name: text for name, text in assigned if self._once(name)}
        """Variables that have one value."""
        places = {"blockIdx", "threadIdx", *self.definitions}
        parts = [text for text in _EDGES.split(self.text) if places & set(re.findall(r"\w+", text))]
        self.expressions = [*assigned, *(("", trimmed(text)) for text in parts)]
        """What is assigned, with the variable's name, then all other expressions that may name a place."""

    def _assigned(self) -> Iterator[tuple[str, str]]:
        for statement in re.split(r"[;{}]", self.text):
            for part in split_by_commas(re.sub(r"^\s*for\s*\(", " ", statement)):
                if found := re.search(r"(?<![\w.\]>])(\w+)\s*=(?!=)([^=]+)$", part):
                    yield found[1], trimmed(found[2])

    def _once(self, name: str) -> bool:
        changed = (
            rf"(?<![\w.]){name}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\s*{name}\b|\b{name}\s*(?:\+\+|--)"
        )
        return len(re.findall(changed, self.text)) == 1

    def indices(self, buffer: str) -> list[str]:
        """How a buffer is indexed."""
        return re.findall(rf"\b{buffer}\s*\[((?:[^\[\]]|\[[^\]]*\])*)\]", self.text)


def trimmed(text: str) -> str:
    """The text between the last bracket that does not end in it and the first that does not begin in it."""
    opened: list[int] = []
    for at, sign in enumerate(text):
        if sign == "(":
            opened.append(at)
        elif sign == ")" and opened:
            opened.pop()
        elif sign == ")":
            return text[:at].strip()
    return text[opened[-1] + 1 if opened else 0 :].strip()


def split_by_commas(text: str) -> list[str]:
    """The parts of a text between commas that stand in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def with_plain_pointers(body: str, buffers: Sequence[str]) -> str:
    """The body with `x[row * n + i]` where it has `p[i]` and `p = x + row * n`, or `x += row * n` before."""
    for buffer in buffers:
        moved = rf"(?<=[;{{}}])\s*{buffer}\s*\+=\s*([^;]+);"
        if len(found := re.findall(moved, body)) == 1:
            body = _moved(re.sub(moved, " ", body), buffer, buffer, found[0])
    named = "|".join(buffers) or "(?!)"
    pointer = rf"[\w ]+\*\s*(?:const\b|__restrict__|\s)*(\w+)\s*=\s*(&?)\s*({named})\b([^;,]*);"
    for one in list(re.finditer(pointer, body)):
        name, address, buffer, rest = one.groups()
        offset = re.fullmatch(r"\s*\[(.*)\]\s*" if address else r"\s*\+(.*)|\s*", rest, re.DOTALL)
        others = len(re.findall(rf"\b{name}\b", body)) - len(re.findall(rf"\b{name}\s*\[", body))
        if offset and others == 1:
            body = _moved(body.replace(one[0], " ", 1), name, buffer, offset[1] or "")
    return body


def _moved(body: str, name: str, buffer: str, by: str) -> str:
    """The body with `buffer[by + i]` in place of `name[i]`."""
    return re.sub(rf"\b{name}\s*\[", lambda _: f"{buffer}[({by}) + " if by else f"{buffer}[", body)


def constants_in(code: str) -> dict[str, str]:
    """Whole numbers that have a name, and what they are: `#define N 128`, `constexpr int N = 2 * M`."""
    pairs = re.findall(_DEFINED, code, re.MULTILINE)
    for declared, listed in re.findall(_DECLARED, code):
        parts = split_by_commas(declared or listed)
        found = (re.fullmatch(r"\s*(\w+)\s*[={]([^{}]+)\}?\s*", part) for part in parts)
        pairs += [one.groups() for one in found if one]
    plain = [(name, _CASTS.sub(" ", text).strip()) for name, text in pairs]
    constants = {name: text for name, text in plain if re.fullmatch(r"[\w\s+*/()<>-]+", text)}
    known = {*constants, "sizeof", *CXX_TYPES}
    return {name: text for name, text in constants.items() if set(re.findall(r"[A-Za-z_]\w*", text)) <= known}


def may_be_tuned(name: str, code: str) -> bool:
    """Whether a constant may get another value: nothing else has its name, or depends on the value."""
    declared = re.findall(rf"\b{_INTEGER}\s+{name}\b|\bdefine[ \t]+{name}\b|(?:::|\.){name}\b", code)
    looks = re.search(rf"-\s*(?:\d+\s*\*\s*)?{name}\b", code)
    return len(declared) == 1 and not looks and not _STAYS.search(name)


def as_tunables(text: str, names: Mapping[str, int]) -> str:
    """The source with these constants as macros that have a default, where each has a line of its own."""
    for name, value in names.items():
        guarded = f"#ifndef {name}\n#define {name} {value}\n#endif"
        text = re.sub(
            rf"^[ \t]*#[ \t]*define[ \t]+{name}\b[^\n]*$"
            rf"|^[ \t]*(?:(?:static|inline|__device__)\s+)*{_CONSTANT}[\w ]+?\s{name}\s*[={{][^;,\n]*;"
            r"(?=[ \t]*(?://[^\n]*|/\*[^\n]*\*/[ \t]*)?$)",
            guarded,
            text,
            count=1,
            flags=re.MULTILINE,
        )
    return text
