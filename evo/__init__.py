"""evo: evolutionary search for the fastest correct CUDA kernel.

The names below are promised, and no others (docs/python.md explains them). Beside them a template file has

    from evo.template import template
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from evo.version import __version__

if TYPE_CHECKING:
    from evo.api.kernel import kernel
    from evo.api.search import search
    from evo.api.shapes import search_shapes
    from evo.api.study import Study, load_study
    from evo.api.study_set import StudySet, load_studies
    from evo.api.trial import Trial
    from evo.api.tune import tune
    from evo.calls.capture import capture
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
    "Study",
    "StudySet",
    "Task",
    "Tolerance",
    "Trial",
    "__version__",
    "capture",
    "kernel",
    "load_studies",
    "load_study",
    "search",
    "search_shapes",
    "tune",
]

_FOUND_IN = dict.fromkeys(__all__, "evo.task") | {
    "Problem": "evo.trial",
    "Study": "evo.api.study",
    "StudySet": "evo.api.study_set",
    "Trial": "evo.api.trial",
    "capture": "evo.calls.capture",
    "kernel": "evo.api.kernel",
    "load_study": "evo.api.study",
    "load_studies": "evo.api.study_set",
    "search": "evo.api.search",
    "search_shapes": "evo.api.shapes",
    "tune": "evo.api.tune",
}


def __getattr__(name: str) -> object:
    """The public names, imported when they are first asked for: a command starts without them."""
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'evo' has no attribute {name!r}")
    return getattr(import_module(_FOUND_IN[name]), name)
