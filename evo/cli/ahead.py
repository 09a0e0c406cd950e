"""The process that evaluates first: it starts before the words of a command are understood.

Importing torch takes it longer than all that a search does before its first trial, those words included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evo.child import Spare

SEARCHING = ("search", "resume")
"""The commands that evaluate."""


@contextmanager
def first_evaluator(words: Sequence[str]) -> Iterator[Spare | None]:
    """The process for the command that `words` begin, ended at the end; None for one that evaluates
    nothing."""
    asked = {word.partition("=")[0] for word in words}
    if not words or words[0] not in SEARCHING or {"-h", "--help", "--scheduler", "--slurm"} & asked:
        yield None
        return
    from evo.child import EVALUATES, Spare

    spare = Spare(("evo.evaluate.early", device_of(words)), env=EVALUATES)
    try:
        yield spare
    finally:
        spare.close()


def device_of(words: Sequence[str]) -> str:
    """What --device says; --gpu is the emulator's. A word that is no device is told later."""
    if any(word.partition("=")[0] == "--gpu" for word in words):
        return "emulator"
    said = [word.removeprefix("--device=") for word in words if word.startswith("--device=")]
    said += [value for word, value in pairwise(words) if word == "--device"]
    return "".join(said[-1:]) or "auto"
