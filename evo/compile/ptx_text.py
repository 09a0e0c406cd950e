"""The text of PTX without what is no code.

The threads that compile look at each candidate's, one at a time by Python's lock: with several GPUs all would
wait for that."""

from __future__ import annotations

import re

_NO_CODE = re.compile(
    r""""[^"\n]*"|//[^\n]*|/\*.*?\*/|\.file\s+\d+\s+(?="[^"\n]*")"""
    r"|\.loc\s+\d+\s+\d+\s+\d+(?:\s*,\s*function_name\s+[\w$]+(?:\+\d+)?\s*,\s*inlined_at(?:\s+\d+){3})?",
    re.DOTALL,
)
"""A string, a comment, or where a line comes from."""
_PLAIN = re.compile(
    r"\n\t(?:\.loc\t\d+ \d+ \d+(?:, function_name [\w$]+(?:\+\d+)?, inlined_at \d+ \d+ \d+)?"
    r"|// (?:begin|end) inline asm)(?=\n)"
)
"""The usual lines that are no code, half of a text: gone sooner than by looking at each of its characters."""


def code_of(ptx: str) -> str:
    """PTX without comments, and without what says where a line comes from; strings are empty."""
    return _NO_CODE.sub(_emptied, _PLAIN.sub("", ptx))


def _emptied(no_code: re.Match[str]) -> str:
    return '""' if no_code[0].startswith('"') else ""
