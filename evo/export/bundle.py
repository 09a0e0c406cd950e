"""What an exported folder holds, whatever its format: kernels with their cubins and their reach, the decision
table, the fallback's source, and small cases with their answers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.compile import Compiler
from evo.confirm.champions import Champion
from evo.confirm.choice import launch_by, not_called, template_of
from evo.confirm.portfolio import Row
from evo.errors import NothingFound, Uncompilable, UsageError
from evo.export.reach import Reach, reach_of
from evo.export.sides import sides_of
from evo.gate.tolerance import limits_of
from evo.gpu import Limits, arch_number, target
from evo.launch.dispatch import serves
from evo.task import Task, find_file
from evo.template import Template
from evo.trial import Binary, LaunchConfig, Problem, digest_of
from evo.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
CLUSTERS = (9, 0)
"""The first compute capability with clusters."""
ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What a kernel is compiled for besides its own architecture, where its template needs no more."""
CASE_BYTES = 1 << 18
"""Inputs of a case at most."""
CASES_OF_A_KERNEL = 1
FALLBACK, PACK = "fallback.py", "pack.py"


@dataclass(frozen=True)
class Exported:
    """A champion, for which sizes its code serves, and its cubins by architecture."""

    champion: Champion
    reach: Reach
    binaries: Mapping[str, Binary]
    tiles: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of files: sm_90a_b1_h8_l512_d64_fp16, or of a trial mission_118."""
        parts = self.champion.name.split("/")
        return re.sub(r"\W", "_", "_".join(parts[-2:]))

    @property
    def gpu(self) -> str:
        """The full name of the GPU that it was timed on, as the driver says it."""
        confirmed = self.champion.record.get("confirmed", {})
        return str(confirmed.get("device") or self.champion.gpu)

    def record(self) -> dict[str, Any]:
        """What dispatch.json says of it."""
        warm = self.champion.warm
        return {
            "name": self.name,
            "entry": self.champion.record["entry"],
            "problem": self.champion.record["problem"],
            "cubins": {arch: f"cubins/{self.name}_{arch}.cubin" for arch in self.binaries},
            "source": f"sources/{self.name}.cu",
            "gpu": self.gpu,
            "median_us": self.champion.median_us,
            "interval": warm.get("interval"),
            "speedup": warm.get("speedup"),
            "versus": warm.get("versus") or None,
            "ranking": self.champion.ranking if self.champion.confirmed else None,
            "reach": {name: list(ends) for name, ends in self.reach.ranges.items()},
            "tried": self.reach.tried,
            "launch": dict(self.reach.launch),
        }


@dataclass(frozen=True)
class Bundle:
    """The content of an exported folder. `module` is its name in Python."""

    task: Task
    module: str
    kernels: tuple[Exported, ...]
    rows: tuple[Row, ...]
    fallback: Path | None
    pack: Path | None = None

    @property
    def namespace(self) -> str:
        """Of its operators in torch: another one for other kernels, so that two folders fit a process."""
        return f"{self.module}_{digest_of([one.champion.source for one in self.kernels])[:8]}"

    @property
    def fallback_name(self) -> str:
        """What the fallback's file calls itself; "" without one."""
        if self.fallback is None:
            return ""
        said = re.search(r'^NAME = "(.*)"$', self.fallback.read_text(encoding="utf-8"), re.M)
        return said[1] if said else self.fallback.stem

    def record(self) -> dict[str, Any]:
        """dispatch.json."""
        named = {id(one.champion): one.name for one in self.kernels}
        return {
            "format": FORMAT,
            "evo": __version__,
            "task": self.task.name,
            "about": (type(self.task).__doc__ or self.task.name).split("\n\n")[0],
            "dtypes": list(self.task.dtypes),
            "flags": {
                name: {"values": list(flag.values), "default": flag.default}
                for name, flag in self.task.flags.items()
            },
            "optional": _optional(self.task),
            "forms": list(_forms(self.task)),
            "fallback": self.fallback_name,
            "kernels": [one.record() for one in self.kernels],
            "decisions": [row.record(named[id(row.champion)]) for row in self.rows],
        }

    def cases(self) -> list[dict[str, Any]]:
        """Small cases of the gate that the kernels serve, with the answers in fp64, rounded to fp32, and the
        gate's limits."""
        found = {}
        for one in self.kernels:
            for problem in _small(self.task, one):
                for family in (self.task.families.plain, self.task.families.sharp):
                    if family:
                        found[problem.key, family] = _case(self.task, problem, family)
        return list(found.values())


def bundle_of(
    task: Task,
    chosen: Sequence[Champion],
    rows: Sequence[Row],
    compiler: Compiler,
    folders: Sequence[Path] = (),
    module: str = "",
) -> Bundle:
    """The bundle of champions of one task. NothingFound without any; UsageError where one does not compile
    for its own architecture, UnknownName where its template is gone."""
    if not chosen:
        hint = "search, confirm, and `evo promote` the best"
        raise NothingFound(f"there is no kernel of {task.name} to export", hint)
    kernels = tuple(_exported(champion, task, compiler, folders) for champion in chosen)
    names = [one.name for one in kernels]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two kernels are called {twice[0]}", "export them into two folders")
    own = [find_file(f"{task.name}/{name}", folders) for name in (FALLBACK, PACK)]
    return Bundle(task, module or f"evo_{task.name}", kernels, tuple(rows), *own)


def _exported(champion: Champion, task: Task, compiler: Compiler, folders: Sequence[Path]) -> Exported:
    if why := not_called(champion.launch):
        hint = "a kernel that takes it as an argument: const float* __restrict__"
        raise UsageError(f"{champion.name} cannot be exported: {why}", hint)
    limits = Limits.of(target(champion.arch))
    template = template_of(champion, limits, folders)

    def launch_at(problem: Problem) -> LaunchConfig | None:
        launch = launch_by(template, champion, problem, limits)
        return None if isinstance(launch, str) else launch

    reach = reach_of(champion, task, launch_at)
    return Exported(
        champion,
        reach,
        _binaries(champion, template, compiler),
        template.tiles(champion.record["point"], champion.problem),
    )


def _binaries(champion: Champion, template: Template, compiler: Compiler) -> dict[str, Binary]:
    """By architecture; its own must compile."""
    entry = str(champion.record["entry"])
    try:
        found = {champion.arch: compiler.compile(champion.source, entry, champion.arch)}
    except Uncompilable as error:
        why = f"{champion.name} does not compile for {champion.arch}: {error.reason}"
        raise UsageError(why, "search again, and promote what is found") from error
    if champion.arch.endswith("a"):
        return found
    needs = max(arch_number(template.needs), CLUSTERS if math.prod(champion.launch.cluster) > 1 else (0, 0))
    others = [arch for arch in ARCHES if arch_number(arch) >= needs and arch not in found]
    requests = [(champion.source, entry, arch) for arch in others]
    for arch, built in zip(others, compiler.compile_many(requests, 2), strict=True):
        if not isinstance(built, Uncompilable):
            found[arch] = built
    return dict(sorted(found.items(), key=lambda item: arch_number(item[0])))


def _optional(task: Task) -> list[dict[str, str]]:
    """Tensors that set a flag where they are given."""
    return [{"name": name, "when": one.when} for name, one in task.tensors.items() if one.when]


def _forms(task: Task) -> Iterable[dict[str, Any]]:
    """The buffers for every choice of flags."""
    for values in itertools.product(*(flag.values for flag in task.flags.values())):
        flags = dict(zip(task.flags, values, strict=True))
        sides = sides_of(task, flags)
        own = task.example.replace(**flags)
        by_dtype = {dtype: task.buffers(own.replace(dtype=dtype)) for dtype in task.dtypes}
        yield {
            "flags": flags,
            "buffers": [
                {
                    "name": buffer.name,
                    "role": buffer.role,
                    "sides": sides[buffer.name],
                    "dtypes": {dtype: specs[at].dtype for dtype, specs in by_dtype.items()},
                }
                for at, buffer in enumerate(task.buffers(own))
            ],
        }


def _small(task: Task, one: Exported) -> list[Problem]:
    """A few small problems that its code serves, of which one is around its tiles."""
    problem = one.champion.problem
    known = [*task.gate_problems(problem, one.tiles), *task.piece_problems(problem, one.tiles), problem]
    fitting = [
        at for at in known if serves({"reach": one.reach.ranges}, at.sizes) and task.nbytes(at) <= CASE_BYTES
    ]
    return sorted(fitting, key=task.flop)[-CASES_OF_A_KERNEL:]


def _case(task: Task, problem: Problem, family: str, seed: int = 1) -> dict[str, Any]:
    inputs = task.inputs(problem, family, seed, "cpu")
    exact, honest = task.reference(problem, inputs), task.honest(problem, inputs)
    return {
        "name": f"{problem.key} {family}",
        "inputs": {name: tensor.clone() for name, tensor in inputs.items()},
        "flags": dict(problem.flags),
        "expected": {name: _expected(task, exact[name], honest[name]) for name in exact},
    }


def _expected(task: Task, exact: Tensor, honest: Tensor) -> dict[str, Any]:
    limits = limits_of(exact, honest, task.tolerance)
    return {
        "values": exact.float() if exact.is_floating_point() else exact,
        "row_limit": float(limits.row_limit),
        "element_limit": float(limits.element_limit),
    }
