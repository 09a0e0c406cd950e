"""The commands about one kernel: replay, emulate, gate."""

from __future__ import annotations


def replay() -> None:
    "x"


def emulate() -> None:
    "x"


def gate() -> None:
    "x"
