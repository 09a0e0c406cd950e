"""For which kernels the constants of the estimate were fitted. For all others it is a guess.

The file `estimate.json` of a task's folder says it: its `templates` are the fitted ones. The constants come
with evo, so only tasks that come with evo have such a file.
"""

from __future__ import annotations

import json
from functools import cache

from evo.task import find_file


@cache
def fitted_templates(task: str) -> frozenset[str]:
    """The templates of a task to whose kernels the constants were fitted."""
    path = find_file(f"{task}/estimate.json", ())
    return frozenset(json.loads(path.read_text())["templates"]) if path else frozenset()


def is_fitted(task: str, template: str) -> bool:
    return template in fitted_templates(task)
