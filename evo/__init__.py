"""evo: evolutionary search for the fastest correct CUDA kernel.

What a task or template file needs, and no other name is promised:

    from evo import In, InOut, Out, Task
    from evo.template import template
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from evo.version import __version__

if TYPE_CHECKING:
    from evo.task import Families, Flag, In, InOut, Out, Relation, Task, Tolerance
    from evo.trial import Problem

__all__ = [
    "Families",
    "Flag",
    "In",
    "InOut",
    "Out",
    "Problem",
    "Relation",
    "Task",
    "Tolerance",
    "__version__",
]

_FOUND_IN = dict.fromkeys(__all__, "evo.task") | {"Problem": "evo.trial"}


def __getattr__(name: str) -> object:
    """The public names, imported when they are first asked for: a command starts without them."""
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'evo' has no attribute {name!r}")
    return getattr(import_module(_FOUND_IN[name]), name)
