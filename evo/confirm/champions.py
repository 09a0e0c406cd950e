"""Champions: CONFIRMED kernels that were kept, and which of them serves a problem.

    promote    a finalist of a finished confirmation -> kernels/<task>/<arch>/<problem>.cu and .json
    champions  what a folder holds
    choose     the champion for a problem within limits, how to launch it there, and why this one

A champion is made for one problem. It serves others of the same flags and storage type where
its template renders the very same code for them: then the nearest one is chosen, and the reason says so.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.errors import BadTemplate, NothingFound, UnknownName, UsageError
from evo.gpu import Limits
from evo.task import load_task
from evo.template import Template, load_template
from evo.trial import PLAIN, Candidate, LaunchConfig, Problem, Trial, body_of, varies

if TYPE_CHECKING:
    from evo.store import Confirmation, Finalist
    from evo.study import Study

FORMAT = 1


KERNELS = Path("kernels")
"""Where champions are kept unless another folder is named: below the current one."""


def kernels_folder() -> Path:
    """The champions that come with evo: in its package if it came as a wheel, else in its tree."""
    package = Path(__file__).parents[1]
    own = package / "kernels"
    return own if own.is_dir() else package.parent / "kernels"


def kernels_folders(asked: Path | None = None) -> tuple[Path, ...]:
    """Where champions are looked for: in the folder that a person `asked` for, else in KERNELS and in those
    that come with evo, each once. UsageError where there is no such folder."""
    if asked is not None and not asked.is_dir():
        raise UsageError(f"there is no folder {asked}", "evo promote TRIAL --kernels DIR makes one")
    found = [asked] if asked else [folder for folder in (KERNELS, kernels_folder()) if folder.is_dir()]
    return tuple({folder.resolve(): folder for folder in found}.values())


@dataclass(frozen=True)
class Champion:
    """A kept kernel: its source at `path`, and the record beside it."""

    path: Path
    record: Mapping[str, Any]

    @property
    def problem(self) -> Problem:
        p = self.record["problem"]
        return Problem(p["task"], p["sizes"], p["dtype"], p["flags"])

    @property
    def arch(self) -> str:
        return str(self.record["arch"])

    @property
    def name(self) -> str:
        return "/".join(self.path.with_suffix("").parts[-3:])

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def launch(self) -> LaunchConfig:
        """For its own problem."""
        return LaunchConfig.from_json(json.dumps(self.record["launch"]))

    @property
    def warm(self) -> Mapping[str, Any]:
        """Its standing with a warm L2."""
        found: Mapping[str, Any] = self.record["confirmed"]["standings"]["warm"]
        return found

    @property
    def median_us(self) -> float:
        return float(self.warm["median_us"])

    @property
    def ranking(self) -> str:
        """Which of its times that is; older records have one on plain inputs alone."""
        return str(self.warm.get("ranking", PLAIN))


@dataclass(frozen=True)
class Choice:
    """A champion for a problem: how it is launched there, and why it is the one."""

    champion: Champion
    launch: LaunchConfig
    exact: bool
    why: str

    def candidate(self, problem: Problem) -> Candidate:
        """The champion's very source, as it is launched for `problem`."""
        record = self.champion.record
        return Candidate(
            problem,
            str(record["template"]),
            record["point"],
            self.champion.source,
            str(record["entry"]),
            self.launch,
        )


def promote(
    trial: Trial,
    study: Study,
    confirmation: Confirmation | None,
    arch: str,
    folder: Path,
    *,
    replace: bool = False,
) -> Champion:
    """Keeps a CONFIRMED trial as the champion of its problem on `arch`, source and record.

    UsageError if it is not CONFIRMED, or not faster than the champion there is (unless `replace`)."""
    finalist = _confirmed(trial, confirmation)
    assert confirmation is not None
    candidate = trial.candidate
    path = folder / candidate.problem.task / arch / f"{_slug(candidate.problem)}.cu"
    record = _record(trial, study, confirmation, finalist, arch)
    champion = Champion(path, record)
    if path.is_file() and not replace:
        incumbent = _read(path.with_suffix(".json"))
        if incumbent.ranking != champion.ranking:
            raise UsageError(
                f"the champion {incumbent.name} was timed by another ranking: {incumbent.ranking}, "
                f"{trial.name} by {champion.ranking}",
                "say --replace to keep this one instead",
            )
        if incumbent.median_us <= champion.median_us:
            raise UsageError(
                f"{trial.name} takes {champion.median_us:.2f} µs, "
                f"the champion {incumbent.name} {incumbent.median_us:.2f} µs",
                "promote a faster one, or say --replace",
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, candidate.source)
    _write(path.with_suffix(".json"), json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return champion


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def _confirmed(trial: Trial, confirmation: Confirmation | None) -> Finalist:
    name = trial.name
    hint = f"evo confirm {trial.study}"
    if trial.reads:
        declare = f"a template that needs them declares them: READS = {tuple(trial.reads)}"
        raise UsageError(f"{name} reads {' '.join(trial.reads)}: it may know the gate", declare)
    if confirmation is None or confirmation.status != "finished":
        raise UsageError(f"{name} is not CONFIRMED", hint)
    found = [f for f in confirmation.finalists if f.number == trial.number]
    if not found:
        finalists = ", ".join(f.name for f in confirmation.green) or "none"
        raise UsageError(f"{name} was no finalist of its study's confirmation ({finalists} was)", hint)
    if found[0].outcome != "GREEN" or "warm" not in found[0].standings:
        why = f"{found[0].outcome} {found[0].reason}".strip()
        raise UsageError(f"{name} was refused when it was confirmed: {why}", "`evo show` tells more")
    return found[0]


def _record(
    trial: Trial, study: Study, confirmation: Confirmation, finalist: Finalist, arch: str
) -> dict[str, Any]:
    problem = trial.candidate.problem
    worst = max((e.part_of_limit for e in trial.errors), default=None)
    return {
        "format": FORMAT,
        "problem": {
            "task": problem.task,
            "sizes": dict(problem.sizes),
            "flags": dict(problem.flags),
            "dtype": problem.dtype,
            "key": problem.key,
        },
        "arch": arch,
        "gpu": study.gpu,
        "template": trial.candidate.template,
        "point": dict(trial.candidate.point),
        "entry": trial.candidate.entry,
        "launch": json.loads(trial.candidate.launch.to_json()),
        "candidate": trial.candidate.digest,
        "machine_code": trial.machine_code,
        "resources": asdict(trial.resources) if trial.resources else None,
        "trial": {
            "study": trial.study,
            "number": trial.number,
            "created": trial.created,
            "median_us": trial.timing.median_us if trial.timing else None,
        },
        "gate": {
            "cases": len(trial.errors),
            "worst_of_limit": worst,
            "thorough": finalist.outcome,
            "sanitizer": finalist.sanitizer,
        },
        "confirmed": {
            "id": confirmation.id,
            "ended": confirmation.ended,
            "seed": confirmation.seed,
            "device": confirmation.device,
            "standings": {p: asdict(s) for p, s in finalist.standings.items()},
            "baselines": {
                p: {n: asdict(s) for n, s in named.items()} for p, named in confirmation.baselines.items()
            },
            "kernels": dict(confirmation.kernels),
        },
        "compiler": trial.compiler,
        "versions": {**study.versions, **confirmation.versions},
    }


def _slug(problem: Problem) -> str:
    """b1_h8_l512_d64_causal_fp16"""
    sizes = [f"{name.lower()}{size}" for name, size in problem.sizes.items()]
    flags = [name if value is True else f"{name}_{value}" for name, value in problem.flags.items() if value]
    return re.sub(r"[^a-z0-9_]", "_", "_".join([*sizes, *flags, problem.dtype]))


def _read(path: Path) -> Champion:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        champion = Champion(path.with_suffix(".cu"), record)
        if record["format"] != FORMAT or not champion.path.is_file():
            raise ValueError("its source is missing" if record["format"] == FORMAT else "another format")
        _ = champion.problem, champion.launch, champion.median_us
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no champion's record: {error}", "promote the trial again") from error
    return champion


def champions(*folders: Path) -> list[Champion]:
    """All champions of the folders, by name in each. UsageError where a record is broken."""
    return [_read(path) for folder in folders for path in sorted(folder.glob("*/*/*.json"))]


def choose(
    problem: Problem, limits: Limits, found: Sequence[Champion], folders: Sequence[Path] = ()
) -> Choice:
    """The champion for `problem` within `limits`: its own, else the nearest whose code serves it. Its task
    and template are looked for in `folders` first.

    Among champions of the same problem the faster one wins, but one that was timed on plain inputs alone is
    behind those that were timed on all. NothingFound, with each one's reason, if there is
    none."""
    refused: list[str] = []
    fit: list[tuple[float, bool, float, Choice]] = []
    for champion in found:
        if champion.problem.task != problem.task:
            continue
        launch = _launch(champion, problem, limits, folders)
        if isinstance(launch, str):
            refused.append(f"{champion.name}: {launch}")
            continue
        far = distance(champion.problem, problem)
        choice = Choice(champion, launch, far == 0, _why(champion, problem))
        fit.append((far, champion.ranking == PLAIN, champion.median_us, choice))
    if not fit:
        raise NothingFound(
            f"no champion serves {problem.key} on {limits.instructions}",
            "; ".join(refused) or "there are no champions: search, confirm, and `evo promote` the best",
        )
    return min(fit, key=lambda f: f[:3])[3]


def distance(a: Problem, b: Problem) -> float:
    """How far two problems' sizes are apart, in doublings."""
    return sum(abs(math.log2(a.sizes[name] / b.sizes[name])) for name in a.sizes)


def _why(champion: Champion, problem: Problem) -> str:
    warm = champion.warm
    figures = f"CONFIRMED at {champion.median_us:.2f} µs on {champion.record['gpu']}, {_inputs_text(warm)}"
    if warm.get("speedup"):
        figures += f", {warm['speedup']:.2f}x of {warm['versus']}"
    if champion.problem.key == problem.key:
        return f"made for this very problem; {figures}"
    far = distance(champion.problem, problem)
    made = f"made for {champion.problem.key}, {figures}"
    return f"the nearest whose code serves it, {far:.1f} doublings away: {made}"


def _inputs_text(warm: Mapping[str, Any]) -> str:
    """What the time is of, and whether it depends on the data."""
    medians = {on: float(time["median_us"]) for on, time in warm.get("times", {}).items()}
    if len(medians) < 2:
        return f"on {next(iter(medians))} inputs" if medians else "on plain inputs alone"
    of = f"{warm['ranking']} of {', '.join(medians)}"
    low, high = min(medians.values()), max(medians.values())
    return f"{of} (data-dependent {low:.2f} to {high:.2f})" if varies([low, high]) else of


def _launch(
    champion: Champion, problem: Problem, limits: Limits, folders: Sequence[Path]
) -> LaunchConfig | str:
    """How `champion` is launched for `problem`, or why it cannot serve it."""
    own, launch = champion.problem, champion.launch
    if own.dtype != problem.dtype or own.flags != problem.flags:
        return "other flags or another storage type"
    try:
        name = str(champion.record["template"])
        template = load_template(load_task(problem.task, folders), name, folders, limits.gpu)
    except UnknownName as error:
        return error.message
    reason = template.supports(problem, limits)
    if reason is None and launch.smem_bytes > limits.smem_bytes:
        reason = f"needs {launch.smem_bytes} bytes of shared memory, {limits.smem_bytes} allowed"
    if reason is not None or own.key == problem.key:
        return reason or launch
    sibling = _rendered(champion, problem, template)
    if sibling is None or body_of(sibling.source) != body_of(champion.source):
        return f"its code is made for {own.key}"
    return sibling.launch


def _rendered(champion: Champion, problem: Problem, template: Template) -> Candidate | None:
    """The champion's point for another problem, by today's template; None if that has changed too much."""
    try:
        return template.candidate(template.space.parse(champion.record["point"]), problem)
    except (BadTemplate, UsageError):
        return None
