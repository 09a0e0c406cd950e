"""Whether the emulator's estimate was fitted to the kernels of a template, and how well it orders them.

The file `estimate.json` of a task's folder says it. Its `templates` are the fitted ones; its
`rank_correlation` is Spearman's, of estimates and times measured on an H200, within each of them: in a
later study where that has 50 trials of the template, else in the one they were fitted to
(benchmarks/results/estimate-h200.json). The constants are in `estimate.py`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from evo.task import find_file


@cache
def _said(task: str) -> dict[str, Any]:
    path = find_file(f"{task}/estimate.json", ())
    said: dict[str, Any] = json.loads(path.read_text()) if path else {}
    return said


def is_fitted(task: str, template: str) -> bool:
    """Whether the constants were fitted to the kernels of a template of a task."""
    return template in _said(task).get("templates", ())


def rank_correlation(task: str, template: str) -> float | None:
    """Spearman's rank correlation of estimates and measured times among kernels of a template; None where
    it was never measured."""
    found: float | None = _said(task).get("rank_correlation", {}).get(template)
    return found
