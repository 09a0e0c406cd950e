"""Champions that no search found: a template at a point, for tests of what becomes of champions."""

from __future__ import annotations

import json
from typing import Any

from evo.confirm.champions import Champion, kernels_folder, unkept
from evo.gpu import Limits, target
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Outcome, Trial


def kept(task: str, template: str, sizes: str, point: dict[str, Any], arch: str, **flags: Any) -> Champion:
    """The kernel of `template` at its suited point, changed by `point`, as a champion for these sizes and
    flags, found on the GPU that an architecture stands for."""
    limits = Limits.of(target(arch))
    found = load_template(load_task(task), template, (), limits.gpu)
    problem = load_task(task).problem(sizes, **flags)
    full = {**found.space.default_for(problem, limits), **point}
    refused = found.space.why_not(full, limits, problem)
    assert refused is None, refused
    candidate = found.candidate(full, problem)
    study = Study(template, problem, "cuda:0", limits.gpu.name, (template,), 60.0)
    number = 1 + len(point) + int(str(problem["M"]) if "M" in problem.sizes else 0)
    return unkept(Trial(candidate, Outcome.GREEN, study=template, number=number), study, arch)


def confirmed_us(name: str) -> str:
    """The time that a champion of the tree is CONFIRMED at, as tables show it: 3.50 µs."""
    record = json.loads((kernels_folder() / f"{name}.json").read_text())
    return f"{record['confirmed']['standings']['warm']['median_us']:.2f} µs"
