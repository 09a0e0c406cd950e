"""Champions: CONFIRMED kernels that were kept.

    promote    a finalist of a finished confirmation -> kernels/<task>/<arch>/<problem>.cu and .json
    champions  what a folder holds
    unkept     a trial as if it were a champion, for a call of a study's best kernel

`choice.py` says which of them serves a problem.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.errors import UsageError
from evo.trial import PLAIN, LaunchConfig, Problem, Trial

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
    """A kept kernel: its source at `path`, and the record beside it. `text` is the source of one that is in
    no folder; then `path` is its name."""

    path: Path
    record: Mapping[str, Any]
    text: str = ""

    @property
    def problem(self) -> Problem:
        p = self.record["problem"]
        return Problem(p["task"], p["sizes"], p["dtype"], p["flags"])

    @property
    def arch(self) -> str:
        return str(self.record["arch"])

    @property
    def gpu(self) -> str:
        """The GPU that it was found and timed on."""
        return str(self.record["gpu"])

    @property
    def name(self) -> str:
        return "/".join(self.path.with_suffix("").parts[-3:])

    @property
    def source(self) -> str:
        return self.text or self.path.read_text(encoding="utf-8")

    @property
    def launch(self) -> LaunchConfig:
        """For its own problem."""
        return LaunchConfig.from_json(json.dumps(self.record["launch"]))

    @property
    def warm(self) -> Mapping[str, Any]:
        """Its standing with a warm L2; empty for a trial that is not CONFIRMED."""
        found: Mapping[str, Any] = self.record["confirmed"]["standings"]["warm"] if self.confirmed else {}
        return found

    @property
    def confirmed(self) -> bool:
        return "confirmed" in self.record

    @property
    def median_us(self) -> float | None:
        return float(self.warm["median_us"]) if self.confirmed else None

    @property
    def ranking(self) -> str:
        """Which of its times that is; older records have one on plain inputs alone."""
        return str(self.warm.get("ranking", PLAIN))


def promote(
    trial: Trial,
    study: Study,
    confirmation: Confirmation | None,
    arch: str,
    folder: Path,
    *,
    replace: bool = False,
) -> Champion:
    """Keeps a CONFIRMED trial as the champion of its problem on `arch`, source and record. The record says
    what it `replaces`.

    UsageError if it is not CONFIRMED, or not faster than the champion there is (unless `replace`)."""
    finalist = _confirmed(trial, confirmation)
    assert confirmation is not None
    candidate = trial.candidate
    path = path_of(trial, arch, folder)
    record = _record(trial, study, confirmation, finalist, arch)
    champion = Champion(path, record)
    incumbent = champion_at(path, replace)
    if incumbent is not None:
        record["replaces"] = _brief(incumbent)
    if incumbent is not None and not replace:
        if incumbent.ranking != champion.ranking:
            raise UsageError(
                f"the champion {incumbent.name} was timed by another ranking: {incumbent.ranking}, "
                f"{trial.name} by {champion.ranking}",
                "say --replace to keep this one instead",
            )
        own_us, its_us = champion.warm["median_us"], incumbent.warm["median_us"]
        if its_us <= own_us:
            raise UsageError(
                f"{trial.name} takes {own_us:.2f} µs, the champion {incumbent.name} {its_us:.2f} µs",
                "promote a faster one, or say --replace",
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, candidate.source)
    _write(path.with_suffix(".json"), json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return champion


def champion_at(path: Path, replace: bool = False) -> Champion | None:
    """The champion whose source lies at `path`, with that source; None where there is none. UsageError where
    its record is broken; with `replace` that is none, too."""
    if not path.is_file():
        return None
    try:
        found = _read(path.with_suffix(".json"))
    except UsageError:
        if replace:
            return None
        raise
    return Champion(path, found.record, found.source)


def path_of(trial: Trial, arch: str, folder: Path) -> Path:
    """Where the champion of a trial's problem lies."""
    problem = trial.candidate.problem
    return folder / problem.task / arch / f"{_slug(problem)}.cu"


def _brief(champion: Champion) -> dict[str, Any]:
    """What a record says of the champion before it."""
    record = champion.record
    return {
        "trial": f"{record['trial']['study']}/{record['trial']['number']}",
        "template": record["template"],
        "point": record["point"],
        "machine_code": record["machine_code"],
        "median_us": champion.median_us,
        "interval": champion.warm.get("interval"),
        "ranking": champion.ranking,
        "gpu": champion.gpu,
    }


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


def champion_of(trial: Trial, study: Study, confirmation: Confirmation | None, arch: str) -> Champion:
    """A correct trial as a champion that no folder has; with its times where it is CONFIRMED."""
    try:
        finalist = _confirmed(trial, confirmation)
    except UsageError:
        return unkept(trial, study, arch)
    assert confirmation is not None
    record = _record(trial, study, confirmation, finalist, arch)
    return Champion(Path(trial.name), record, trial.candidate.source)


def unkept(trial: Trial, study: Study, arch: str) -> Champion:
    """A correct trial of which no folder has the files, CONFIRMED or not."""
    return Champion(Path(trial.name), _origin(trial, study, arch), trial.candidate.source)


def _origin(trial: Trial, study: Study, arch: str) -> dict[str, Any]:
    """What a record says of a kernel and where it comes from."""
    problem = trial.candidate.problem
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
    }


def _record(
    trial: Trial, study: Study, confirmation: Confirmation, finalist: Finalist, arch: str
) -> dict[str, Any]:
    worst = max((e.part_of_limit for e in trial.errors), default=None)
    return {
        **_origin(trial, study, arch),
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
        _ = champion.problem, champion.launch, champion.gpu, record["confirmed"], champion.median_us
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no champion's record: {error}", "promote the trial again") from error
    return champion


def champions(*folders: Path) -> list[Champion]:
    """All champions of the folders, by name in each. UsageError where a record is broken."""
    return [_read(path) for folder in folders for path in sorted(folder.glob("*/*/*.json"))]
