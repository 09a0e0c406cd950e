"""The zoo of a task: planted kernels that the gate must refuse, and honest ones that it must not.

A task may have a folder TASK/cheats. Each `.cu` file there is one planted kernel, a function `kernel`. Its
first line says what is wrong with it; comments below may say more:

    // The last key is dropped
    // expect: row error                    the reasons (of a Red) or outcomes that it must end with; GREEN
                                            of an honest one, MARKED of one that reads clocks or places
    // on a GPU: row error, runs differ     the same on a GPU, where that differs: `a symptom` if chance says
                                            how the output is wrong, `emulator: race` where only the emulator
                                            sees it, which finalists must pass too
    // only: emulator (why)                 what cannot be told on a GPU
    // problem: 1,8,160,64 causal           a shape, a storage type and flags (NAME or NAME=VALUE), as needed
    // launch: threads=256 smem=300000 grid_y=70000 arch=sm_120
    // workspace: NAME BYTES [zeroed]       one more argument
    // check: thorough                      what only the check for finalists sees
    // needs: sm_90                         an architecture below which it does not compile

Quoted includes are pasted. A file `zoo.py` beside the kernels says what the gate must know of them:

    SHAPE     str                                           the problem of a file that names none
    TILES     tuple[int, ...]                               tile sizes, around which the gate looks
    HONEST    str                                           the source of the honest kernel
    CONTROLS  Mapping[str, tuple[shape, dtype, flags]]      problems for which it must be GREEN, by name
    prelude   (problem) -> str                              what every source begins with
    launch    (problem) -> LaunchConfig

and, where they apply, `LOOSE_BASELINES`: names of baselines that no honest kernel is held to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from evo.errors import BadTemplate, UsageError
from evo.gpu import arch_number
from evo.task import Task, blame, find_file, load_module
from evo.trial import BufferArg, LaunchConfig, Problem, Workspace

RULES = "zoo.py"
FLAWLESS = "nothing is wrong"
"""What is said of an honest kernel."""
_REQUIRED = ("SHAPE", "TILES", "HONEST", "CONTROLS", "prelude", "launch")
_COMMENT = re.compile(r"^// (expect|on a GPU|only|problem|launch|workspace|check|needs): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Planted:
    """One file of the zoo, or the honest kernel for one problem (`expected` is GREEN then). Picklable.

    `launched` are the numbers that it has instead of the zoo's own: threads, smem (bytes), grid_y."""

    name: str
    says: str
    source: str
    problem: Problem
    expected: frozenset[str]
    expected_on_gpu: frozenset[str]
    rules: Path
    """The zoo's zoo.py."""
    emulator_only: bool = False
    arch: str | None = None
    launched: Mapping[str, int] = field(default_factory=dict)
    workspaces: tuple[Workspace, ...] = ()
    thorough: bool = False
    needs: str = ""
    """The architecture below which it does not compile ("sm_90"), if any."""

    def runs_on(self, arch: str) -> bool:
        """Whether a GPU of `arch` has what it needs."""
        return not self.needs or arch_number(arch) >= arch_number(self.needs)

    @property
    def honest(self) -> bool:
        return self.expected == {"GREEN"}

    @property
    def tiles(self) -> tuple[int, ...]:
        return tuple(_rules(self.rules).TILES)

    def launch(self, problem: Problem) -> LaunchConfig:
        """How it is launched for `problem`."""
        with blame(self.rules):
            usual: LaunchConfig = _rules(self.rules).launch(problem)
        x, y, z = usual.grid
        threads = self.launched.get("threads")
        return replace(
            usual,
            grid=(x, self.launched.get("grid_y", y), z),
            block=usual.block if threads is None else (threads, 1, 1),
            smem_bytes=self.launched.get("smem", usual.smem_bytes),
            args=(*usual.args, *(BufferArg(w.name) for w in self.workspaces)),
            workspaces=(*usual.workspaces, *self.workspaces),
        )


@dataclass(frozen=True)
class Zoo:
    """The planted kernels of a `folder`, and what its zoo.py, `rules`, says of them."""

    task: Task
    folder: Path
    rules: Path

    @classmethod
    def of(cls, task: Task, folders: Sequence[Path] = (), named: Path | None = None) -> Zoo:
        """The zoo of a task: the folder that a person `named`, else TASK/cheats. Its zoo.py is that of the
        folder, else the task's own. UsageError where there is none, BadTemplate where zoo.py is broken."""
        own = find_file(f"{task.name}/cheats/{RULES}", folders)
        beside = named / RULES if named else None
        rules = beside if beside and beside.is_file() else own
        hint = f"planted kernels are .cu files in {task.name}/cheats, beside a zoo.py: see docs/gate.md"
        if rules is None:
            raise UsageError(f"task {task.name} has no planted kernels", hint)
        folder = named or rules.parent
        if not any(folder.glob("*.cu")):
            raise UsageError(f"no planted kernels in {folder}", hint)
        if missing := [name for name in _REQUIRED if not hasattr(_rules(rules), name)]:
            raise BadTemplate(f"{rules}:1: does not define {', '.join(missing)}", hint)
        return cls(task, folder, rules)

    @cached_property
    def controls(self) -> dict[str, Problem]:
        """The problems for which honest kernels must be GREEN, by name."""
        said = _rules(self.rules).CONTROLS
        with blame(self.rules):
            return {
                name: self.task.problem(shape, dtype, **flags) for name, (shape, dtype, flags) in said.items()
            }

    @property
    def loose_baselines(self) -> tuple[str, ...]:
        return tuple(getattr(_rules(self.rules), "LOOSE_BASELINES", ()))

    def planted(self) -> list[Planted]:
        """All files by name, and the honest kernel for each control, last."""
        return [self.read(path.stem) for path in sorted(self.folder.glob("*.cu"))] + self._honest()

    def _honest(self) -> list[Planted]:
        text, green = _rules(self.rules).HONEST, frozenset({"GREEN"})
        return [
            Planted(f"honest {name}", FLAWLESS, self._source(text, at), at, green, green, self.rules)
            for name, at in self.controls.items()
        ]

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
            expected = self._names(said["expect"])
            overrides = dict(item.split("=") for item in said.get("launch", "").split())
            return Planted(
                name,
                text.splitlines()[0][3:],
                self._source(text, problem),
                problem,
                expected,
                self._names(said["on a GPU"]) if "on a GPU" in said else expected,
                self.rules,
                emulator_only=said.get("only", "").startswith("emulator"),
                arch=overrides.pop("arch", None),
                launched={what: int(number) for what, number in overrides.items()},
                workspaces=_workspaces(said.get("workspace", "")),
                thorough=said.get("check") == "thorough",
                needs=said.get("needs", ""),
            )

    def _problem(self, text: str) -> Problem:
        """The problem of a comment: a shape, a storage type and flags, none of which is needed."""
        shape, dtype = _rules(self.rules).SHAPE, None
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

    def _source(self, text: str, problem: Problem) -> str:
        """The text after the zoo's prelude, its quoted includes pasted."""
        for name in re.findall(r'^#include "([\w/.]+)"$', text, re.MULTILINE):
            near = self.folder / name
            path = near if near.is_file() else self.rules.parent / name
            text = text.replace(f'#include "{name}"', path.read_text(encoding="utf-8"))
        with blame(self.rules):
            return f"{_rules(self.rules).prelude(problem)}{text}"


def _workspaces(text: str) -> tuple[Workspace, ...]:
    if not text:
        return ()
    name, nbytes, *zeroed = text.split()
    return (Workspace(name, int(nbytes), zeroed == ["zeroed"]),)


@cache
def _rules(path: Path) -> Any:
    """The module of a zoo.py, once in a process."""
    return load_module(path)
