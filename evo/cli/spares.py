"""The process that starts with a command, before it is known what it will do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evo.child import Spare


@contextmanager
def first_evaluator(device: str) -> Iterator[Spare]:
    """The process that will evaluate first. It starts before anything else is looked at: importing torch
    takes it longer than all that a search does before its first trial."""
    from evo.child import ONE_THREAD, Spare

    spare = Spare(("evo.evaluate.early", device), env=ONE_THREAD)
    try:
        yield spare
    finally:
        spare.close()
