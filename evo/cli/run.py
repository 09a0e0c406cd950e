"""The commands that search: search, resume, space."""

from __future__ import annotations
import typer


def search() -> None:
    "x"


def resume() -> None:
    "x"


def space() -> None:
    "x"
