"""The zoo of a task: planted kernels that the gate must refuse, and honest ones that it must not.

A task may have a folder TASK/cheats. Each `.cu` file there is one planted kernel. Its first line says what is
wrong with it; comments below may say more:

    // The last key is dropped
    // expect: row error                    the reasons (of a Red) or outcomes that it must end with; GREEN
                                            of an honest one, MARKED of one that reads clocks or places
    // on a GPU: row error, runs differ     the same on a GPU, where that differs: `a symptom` if chance says
                                            how the output is wrong, `emulator: race` where only the emulator
                                            sees it, which finalists must pass too
    // only: emulator (why)                 what cannot be told on a GPU
    // problem: 1,8,160,64 causal           a shape, a storage type and flags (NAME or NAME=VALUE), as needed
    // launch: threads=256 smem=300000 grid_y=70000 arch=sm_120 cooperative=1 cluster=2
    // workspace: NAME BYTES [zeroed]       one more argument
    // check: thorough                      what only the check for finalists sees
    // needs: sm_90                         an architecture below which it does not compile; sm_90a: that one

    // template: gemm_wgmma                 the template that it alters, where that is not the first
    // point: per_thread=4                  parameters of the template that are not the default

Where the folder has no `zoo.py`, the honest kernel is the task's first template at its default. A file then
says which of its text is another (and which place, if there are several), as often as needed:

    // instead of number 2: __syncthreads();
    // there is:

or is a whole source. With a `zoo.py` quoted includes are pasted (files beside it, or those of the templates),
and it says what the gate must know:

    SHAPE     str                                           the problem of a file that names none
    TILES     tuple[int, ...]                               tile sizes, around which the gate looks
    HONEST    str                                           the source of the honest kernel
    CONTROLS  Mapping[str, tuple[shape, dtype, flags]]      problems for which it must be GREEN, by name
    prelude   (problem) -> str                              what every source begins with
    launch    (problem) -> LaunchConfig

and, where they apply, `LOOSE_BASELINES`: names of baselines that no honest kernel is held to. All kernels are
called `kernel` then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from evo.errors import BadTemplate, UsageError
from evo.gpu import arch_number
from evo.selftest.zoo_rules import HINT, RULES, ZooRules, rules_file, rules_of
from evo.task import Task, blame
from evo.trial import BufferArg, LaunchConfig, Point, Problem, Workspace

FLAWLESS = "nothing is wrong"
"""What is said of an honest kernel."""
_COMMENT = re.compile(
    r"^// (expect|on a GPU|only|problem|template|point|launch|workspace|check|needs): (.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class Planted:
    """One file of the zoo, or the honest kernel for one problem (`expected` is GREEN then). Picklable.

    `launched` are the numbers that it has instead of the zoo's own: threads, smem (bytes), grid_y,
    cooperative (0 or 1), cluster (CTAs along x; the grid is rounded up to it)."""

    name: str
    says: str
    source: str
    problem: Problem
    expected: frozenset[str]
    expected_on_gpu: frozenset[str]
    rules: Path
    """What says how it is launched: the zoo's zoo.py, or a template's Python file."""
    point: Point = field(default_factory=dict)
    """Of the template, where it alters one."""
    emulator_only: bool = False
    arch: str | None = None
    launched: Mapping[str, int] = field(default_factory=dict)
    workspaces: tuple[Workspace, ...] = ()
    thorough: bool = False
    needs: str = ""
    """The architecture below which it does not compile ("sm_90"), or the only one ("sm_90a"), if any."""

    def runs_on(self, arch: str) -> bool:
        """Whether a GPU of `arch` has what it needs."""
        if self.needs.endswith("a"):
            return arch == self.needs
        return not self.needs or arch_number(arch) >= arch_number(self.needs)

    @property
    def honest(self) -> bool:
        return self.expected == {"GREEN"}

    @property
    def tiles(self) -> tuple[int, ...]:
        return rules_of(self.rules).tiles(self.problem, self.point)

    @property
    def entry(self) -> str:
        """The name of the kernel."""
        return rules_of(self.rules).entry

    def launch(self, problem: Problem) -> LaunchConfig:
        """How it is launched for `problem`."""
        usual = rules_of(self.rules).launch(problem, self.point, self.problem)
        x, y, z = usual.grid
        threads, cluster = self.launched.get("threads"), self.launched.get("cluster")
        return replace(
            usual,
            grid=(-(-x // (cluster or 1)) * (cluster or 1), self.launched.get("grid_y", y), z),
            cluster=(cluster, 1, 1) if cluster else usual.cluster,
            block=usual.block if threads is None else (threads, 1, 1),
            smem_bytes=self.launched.get("smem", usual.smem_bytes),
            args=(*usual.args, *(BufferArg(w.name) for w in self.workspaces)),
            workspaces=(*usual.workspaces, *self.workspaces),
            cooperative=bool(self.launched.get("cooperative", usual.cooperative)),
        )


@dataclass(frozen=True)
class Zoo:
    """The planted kernels of a `folder`; `rules` is the file that says how they are launched."""

    task: Task
    folder: Path
    rules: Path

    @classmethod
    def of(cls, task: Task, folders: Sequence[Path] = (), named: Path | None = None) -> Zoo:
        """The zoo of a task: the folder that a person `named`, else TASK/cheats. Its zoo.py is that of the
        folder, else the task's own. UsageError where there is none, BadTemplate where zoo.py is broken."""
        beside = named / RULES if named else None
        rules = beside if beside and beside.is_file() else rules_file(task, folders)
        written = rules is not None and rules.name == RULES
        folder = named or (rules.parent if written else rules.parent / "cheats") if rules else None
        if rules is None or folder is None or not (written or named or folder.is_dir()):
            raise UsageError(f"task {task.name} has no planted kernels", HINT)
        if not any(folder.glob("*.cu")):
            raise UsageError(f"no planted kernels in {folder}", HINT)
        rules_of(rules)
        return cls(task, folder, rules)

    @property
    def _rules(self) -> ZooRules:
        return rules_of(self.rules)

    @cached_property
    def controls(self) -> dict[str, Problem]:
        """The problems for which honest kernels must be GREEN, by name."""
        return {name: problem for name, (problem, _) in self._rules.controls(self.task).items()}

    @property
    def loose_baselines(self) -> tuple[str, ...]:
        return self._rules.loose_baselines

    def planted(self) -> list[Planted]:
        """All files by name, and the honest kernel for each control, last."""
        return [self.read(path.stem) for path in sorted(self.folder.glob("*.cu"))] + self._honest()

    def _honest(self) -> list[Planted]:
        green, found = frozenset({"GREEN"}), []
        for name, (at, point) in self._rules.controls(self.task).items():
            source = self._rules.honest(at, point)
            found.append(Planted(f"honest {name}", FLAWLESS, source, at, green, green, self.rules, point))
        return found

    def read(self, name: str) -> Planted:
        """One file of the zoo. BadTemplate if its comments are malformed."""
        path = self.folder / f"{name}.cu"
        text = path.read_text(encoding="utf-8")
        said = dict(_COMMENT.findall(text))
        if not text.startswith("// ") or "expect" not in said:
            hint = "see evo/selftest/zoo.py for the comments that it begins with"
            raise BadTemplate(f"{path}:1: a cheat says what is wrong and what to expect", hint)
        with blame(path):
            problem = self._problem(said.get("problem", ""))
            rules = self._altered(said["template"], path) if "template" in said else self.rules
            expected = self._names(said["expect"])
            overrides, point = (_pairs(said.get(what, "")) for what in ("launch", "point"))
            return Planted(
                name,
                text.splitlines()[0][3:],
                rules_of(rules).source(text, problem, point, path),
                problem,
                expected,
                self._names(said["on a GPU"]) if "on a GPU" in said else expected,
                rules,
                point,
                emulator_only=said.get("only", "").startswith("emulator"),
                arch=overrides.pop("arch", None),
                launched={what: int(number) for what, number in overrides.items()},
                workspaces=_workspaces(said.get("workspace", "")),
                thorough=said.get("check") == "thorough",
                needs=said.get("needs", ""),
            )

    def _altered(self, template: str, path: Path) -> Path:
        """The Python file of the template that a file names."""
        folder = self.rules.parents[1] if self.rules.name == RULES else self.rules.parent
        found = folder / f"{template}.py"
        if not found.is_file():
            raise BadTemplate(f"{path}:1: there is no template {template}", f"templates are in {folder}")
        return found

    def _problem(self, text: str) -> Problem:
        """The problem of a comment: a shape, a storage type and flags, none of which is needed."""
        shape, dtype = self._rules.shape(), None
        flags: dict[str, str | bool] = {}
        for word in text.split():
            name, equals, value = word.partition("=")
            if word[0].isdigit():
                shape = word
            elif word in self.task.dtypes:
                dtype = word
            else:
                flags[name] = value if equals else True
        return self.task.problem(shape, dtype, **flags)

    def _names(self, text: str) -> frozenset[str]:
        """The reasons of a comment; "a symptom" is each way in which a race may show in an output."""
        names = frozenset(name.strip() for name in text.split(","))
        if "a symptom" not in names:
            return names
        relations = {r.name for at in self.controls.values() for r in self.task.relations(at)}
        return names | {
            "row error",
            "element error",
            "NaN in the output",
            "Inf in the output",
            "runs differ",
            *(f"relation broken: {name}" for name in relations),
        }


def _pairs(text: str) -> dict[str, str]:
    return dict(item.split("=") for item in text.split())


def _workspaces(text: str) -> tuple[Workspace, ...]:
    if not text:
        return ()
    name, nbytes, *zeroed = text.split()
    return (Workspace(name, int(nbytes), zeroed == ["zeroed"]),)
