"""Is the pruning true? Random points of the templates' spaces, and what compiler and device say of them.

Half of the points are ones that the rules allow: where compiling or loading one fails, the rules are *false
feasible* (time is lost). The other half are ones that a rule about the hardware refuses (shared memory,
threads, registers, cluster): where the device grants one, the rules are *false infeasible* (a kernel
is lost).
On a GPU the driver is asked (its limits, `cuFuncGetAttribute`, occupancy), else ptxas and the table of GPUs.
Beside that the models are compared with what they model: registers a thread, CTAs that an SM holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from evo.compile import Compiler
from evo.device import Device, Kernel
from evo.errors import CandidateError, Uncompilable
from evo.gpu import Gpu, Limits
from evo.selftest.zoo_run import open_tools
from evo.space import Space
from evo.template import Template
from evo.trial import Binary, Candidate, Point, Problem

DRAWS = 200
"""Batches of random points that are looked through for those that a hardware rule refuses."""
_BATCH = 2048
_LATE = ("shared_memory", "threads", "registers", "cluster")
"""The hardware rules by name that depend on the point; they are asked after a template's own rules."""


@dataclass(frozen=True)
class Audited:
    """One point: what the rules said of it ("" for feasible), and how compiling and loading it ended
    (`outcome` "granted", or that of the error). The models' values stand beside the measured ones; None where
    there is no model, or it never came to a binary."""

    template: str
    point: Point
    said: str
    outcome: str
    reason: str
    registers: int | None = None
    spill_bytes: int | None = None
    modelled_registers: int | None = None
    resident: int | None = None
    modelled_resident: int | None = None

    @property
    def granted(self) -> bool:
        return self.outcome == "granted"


def audit(
    templates: Sequence[Template],
    problem: Problem,
    limits: Limits,
    device: Device,
    compiler: Compiler,
    *,
    points: int,
    seed: int,
    jobs: int,
) -> Iterator[Audited]:
    """`points` random points, as many of each template, half of them feasible; compiled on `jobs` cores.

    Fewer where a template has fewer. Templates that do not serve `problem` within `limits` are left out."""
    serving = [t for t in templates if t.supports(problem, limits) is None]
    for number, template in enumerate(serving):
        share = points // len(serving) + (number < points % len(serving))
        rng = np.random.default_rng([seed, number])
        chosen = draw(template, problem, limits, rng, share)
        candidates = [template.candidate(point, problem) for point, _ in chosen]
        requests = [(c.source, c.entry, limits.gpu.arch) for c in candidates]
        for (point, said), candidate, built in zip(
            chosen, candidates, compiler.compile_many(requests, jobs), strict=True
        ):
            yield look(template, point, said, candidate, built, device)


def draw(
    template: Template, problem: Problem, limits: Limits, rng: np.random.Generator, count: int
) -> list[tuple[Point, str]]:
    """`count` points of a template with what the rules say: half feasible, half refused by the hardware's."""
    feasible = template.space.feasible(limits, problem)
    wanted = (count + 1) // 2
    rows = rng.permutation(len(feasible.indices))[:wanted]
    found = [(feasible.space.point_at(feasible.indices[row]), "") for row in rows]
    return found + list(islice(_refused(template, problem, limits, rng), count // 2))


def _refused(
    template: Template, problem: Problem, limits: Limits, rng: np.random.Generator
) -> Iterator[tuple[Point, str]]:
    """Random points that the template's own rules allow and a rule about the hardware refuses."""
    space = template.space
    own = Space(space.parameters, tuple(r for r in space.rules if r.name not in _LATE))
    seen = set()
    for _ in range(DRAWS):
        rows, _ = own.sieve(space.draw(rng, _BATCH), limits, problem)
        for row in rows:
            if (key := tuple(int(i) for i in row)) in seen:
                continue
            seen.add(key)
            point = space.point_at(row)
            if why := space.why_not(point, limits, problem):
                yield point, why


def look(
    template: Template,
    point: Point,
    said: str,
    candidate: Candidate,
    built: Binary | Uncompilable,
    device: Device,
) -> Audited:
    """What became of one point."""
    modelled = template.registers(point, candidate.problem)
    if isinstance(built, Uncompilable):
        return Audited(template.name, point, said, built.outcome, built.reason, modelled_registers=modelled)
    used = built.resources
    smem = candidate.launch.smem_bytes + used.static_smem_bytes
    found = Audited(
        template.name,
        point,
        said,
        "granted",
        "",
        registers=used.registers,
        spill_bytes=used.spill_bytes,
        modelled_registers=modelled,
        modelled_resident=device.gpu.ctas_resident(candidate.launch.threads, used.registers, smem),
    )
    try:
        kernel: Kernel = device.load(built, candidate.launch)
    except CandidateError as error:
        return replace(found, outcome=error.outcome, reason=error.reason)
    return replace(found, registers=kernel.registers, resident=kernel.ctas_resident(candidate.launch))


def summary(found: Sequence[Audited]) -> Mapping[str, Any]:
    """Counts and rates: of all points, and by template."""
    by_template = {
        name: [a for a in found if a.template == name] for name in sorted({a.template for a in found})
    }
    return {**_rates(found), "templates": {name: _rates(some) for name, some in by_template.items()}}


def _rates(found: Sequence[Audited]) -> dict[str, Any]:
    allowed, refused = [a for a in found if not a.said], [a for a in found if a.said]
    false_feasible, false_infeasible = (
        [a for a in allowed if not a.granted],
        [a for a in refused if a.granted],
    )
    modelled = [
        (a.registers - a.modelled_registers)
        for a in found
        if a.registers is not None and a.modelled_registers is not None
    ]
    occupancy = [a for a in found if a.resident is not None]
    return {
        "points": len(found),
        "feasible": len(allowed),
        "false_feasible": len(false_feasible),
        "false_feasible_rate": _rate(len(false_feasible), len(allowed)),
        "refused_by_hardware_rules": len(refused),
        "false_infeasible": len(false_infeasible),
        "false_infeasible_rate": _rate(len(false_infeasible), len(refused)),
        "false_infeasible_without_spills": sum(not a.spill_bytes for a in false_infeasible),
        "false_feasible_reasons": dict(Counter(f"{a.outcome} {a.reason}" for a in false_feasible)),
        "false_infeasible_reasons": dict(Counter(a.said for a in false_infeasible)),
        "refused_reasons": dict(Counter(a.said for a in refused)),
        "register_model_error_median": median(map(abs, modelled)) if modelled else None,
        "occupancy_asked": len(occupancy),
        "occupancy_differs": sum(a.resident != a.modelled_resident for a in occupancy),
    }


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def audited(
    templates: Sequence[Template],
    problem: Problem,
    device: str,
    gpu: Gpu,
    cache: Path,
    nvcc: Path | None,
    *,
    points: int,
    seed: int,
    jobs: int,
) -> Iterator[Audited]:
    """Random points of those templates on a device ("cuda:0", "emulator"), and what became of them."""
    made, compiler = open_tools(device, gpu, cache, nvcc)
    try:
        yield from audit(
            templates, problem, Limits.of(gpu), made, compiler, points=points, seed=seed, jobs=jobs
        )
    finally:
        compiler.close()
