"""Text that goes to a terminal. What templates, compilers, kernels and databases say may hold control codes:
they would move the cursor, hide lines or set the window's title. Here they become visible escapes."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^\n -~]")


def for_terminal(text: str, lines: bool = True) -> str:
    """`text` with an escape for every character that no terminal prints (`\\x1b`, `\\u202e`); line ends stay
    where there may be several `lines`."""
    if not text.isprintable():
        text = _ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else _escape(odd[0]), text)
        text = text if lines else text.replace("\n", "\\n")
    return text


def _escape(character: str) -> str:
    return "    " if character == "\t" else character.encode("unicode_escape").decode()
