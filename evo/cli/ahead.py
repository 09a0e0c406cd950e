"""The processes that evaluate: they start before the words of a command are understood.

Importing torch takes them longer than all that a search does before its first trial, those words included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cores import evaluators_on_a_gpu, usable_cores

if TYPE_CHECKING:
    from evo.child import Spare

SEARCHING = ("search", "resume")
"""The commands that evaluate."""
NOT_HERE = {"-h", "--help", "--scheduler", "--slurm", "--shapes"}
"""With one of these it does so elsewhere, in processes of other commands, or not at all."""
DRIVER = Path("/dev/nvidiactl")
"""Is there where NVIDIA's driver is loaded."""


@contextmanager
def first_evaluators(words: Sequence[str]) -> Iterator[tuple[Spare, ...]]:
    """The processes for the command that `words` begin, ended at the end; none for one that evaluates
    nothing. The first ones start a device each, that of a GPU's first evaluator; the others wait with that.
    """
    asked = {word.partition("=")[0] for word in words}
    if not words or words[0] not in SEARCHING or NOT_HERE & asked:
        yield ()
        return
    from evo.child import EVALUATES, Spare

    first = devices_of(words)
    others = evaluators_on_a_gpu(usable_cores() // len(first)) - 1  # of each GPU; a pool may need fewer
    kind: type[Spare] = Spare
    if first == ["emulator"] or not DRIVER.exists():
        from evo.fork_server import Forked, can_fork

        others, kind = 0, Forked if can_fork() else Spare
    spares: list[Spare] = []
    try:
        for device in [*first, *[""] * others * len(first)]:
            spares.append(kind(("evo.evaluate.early", device), env=EVALUATES))
        yield tuple(spares)
    finally:
        for spare in spares:
            spare.close()


def devices_of(words: Sequence[str]) -> list[str]:
    """What --device and --gpus say, or would mean where there are GPUs: a new study is on the first one, an
    old one wherever it was ("auto"). --gpu is the emulator's. A word that is no device is told later."""
    word, gpus = _said(words, "--device") or "auto", _said(words, "--gpus")
    if word == "emulator" or _said(words, "--gpu") is not None:
        return ["emulator"]
    if word == "auto" and (words[0] == "search" or gpus):
        word = "cuda:0"
    return [f"cuda:{number}" for number in re.findall(r"\d+", gpus or "")] or [word]


def _said(words: Sequence[str], option: str) -> str | None:
    """The last value of an option."""
    said = [word.removeprefix(f"{option}=") for word in words if word.startswith(f"{option}=")]
    said += [value for word, value in pairwise(words) if word == option]
    return said[-1] if said else None
