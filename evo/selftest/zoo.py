"""The gate's own test: a zoo of planted kernels that must be refused, and honest ones that must not.

A cheat is one file. Its first line says what is wrong with it; comments below may say more:

    // The last key is dropped
    // expect: row error                    the reasons (of a Red) or outcomes that it must end with
    // on a GPU: row error, runs differ     the same on a GPU, where that differs: `a symptom` if chance says
                                            how the output is wrong, `emulator: race` where only the emulator
                                            sees it, whom finalists must pass too
    // only: emulator (why)                 what cannot be told on a GPU
    // problem: 1,8,160,64 causal         this shape unless said otherwise, not causal
    // launch: threads=256 smem=300000 grid_y=70000 arch=sm_120
    // workspace: NAME BYTES [zeroed]       one more argument
    // check: thorough                      what only the check for finalists sees
    #define KEYS (length - 1)
    #include "include/flash.cuh"

All are launched as `include/flash.cuh` is, which is the honest kernel that most of them alter.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import evo
from evo.cache import Cache
from evo.child import Child, Report
from evo.compile import Compiler, find_compiler
from evo.device import Device, Kernel
from evo.device.open import is_gpu, open_device
from evo.errors import BadTemplate, CandidateError, Crashed, Hung, UsageError
from evo.gate import Green, check
from evo.gate.emulator_check import second_opinion
from evo.gate.tolerance import compare
from evo.gpu import Gpu
from evo.task import Task, load_task
from evo.trial import Binary, BufferArg, LaunchConfig, Outcome, Problem, ScalarArg, Workspace

ROWS = 32
"""Query rows and keys of a tile of include/flash.cuh."""
SHAPE = "1,8,160,64"
SYMPTOMS = frozenset({
    "row error", "element error", "NaN in the output", "Inf in the output", "runs differ",
    *(f"relation broken: {name}" for name in ("ones", "heads apart", "causality", "key order")),
})  # fmt: skip
"""How a race may show in an output on a GPU."""
Stage = Literal["candidates", "finalists"]
CONTROLS = tuple(
    (dtype, dim, causal) for dtype in ("fp16", "bf16") for dim in (64, 128) for causal in (False, True)
)


@dataclass(frozen=True)
class Planted:
    """One file of the zoo, or a variant of the honest kernel (`expected` is GREEN then)."""

    name: str
    says: str
    source: str
    problem: Problem
    expected: frozenset[str]
    expected_on_gpu: frozenset[str]
    emulator_only: bool = False
    arch: str | None = None
    threads: int | None = None
    smem: int | None = None
    grid_y: int | None = None
    workspaces: tuple[Workspace, ...] = ()
    thorough: bool = False

    @property
    def honest(self) -> bool:
        return self.expected == {"GREEN"}

    def launch(self, problem: Problem) -> LaunchConfig:
        pitch = problem["D"] + 8
        smem = 5 * ROWS * pitch * 2 + ROWS * (ROWS + 1) * 4
        return LaunchConfig(
            grid=(-(-problem["L"] // ROWS), self.grid_y or problem["B"] * problem["H"], 1),
            block=(self.threads or 128, 1, 1),
            smem_bytes=smem if self.smem is None else self.smem,
            args=(
                *(BufferArg(name) for name in "qkvo"),
                ScalarArg(problem["L"], "i32"),
                ScalarArg(math.log2(math.e) / math.sqrt(problem["D"]), "f32"),
                *(BufferArg(w.name) for w in self.workspaces),
            ),
            workspaces=self.workspaces,
        )


@dataclass(frozen=True)
class Finding:
    """How one planted kernel ended, and which stage refused it: what every candidate goes through, or what
    only finalists do. `right`: refused if planted, GREEN if honest; `reasoned`: for the reason that it should
    have."""

    name: str
    says: str
    outcome: str
    reason: str
    where: str
    right: bool
    reasoned: bool
    seconds: float
    launches: int = 0
    stage: Stage = "candidates"


def load_zoo(folder: Path, task: Task) -> list[Planted]:
    """All cheats of a folder, and the honest kernel in all variants, last."""
    cheats = [read_cheat(path, task) for path in sorted(folder.glob("*.cu"))]
    honest = []
    for dtype, dim, causal in CONTROLS:
        problem = task.problem(SHAPE.rsplit(",", 1)[0] + f",{dim}", dtype, causal=causal)
        source = _with_base('#include "include/flash.cuh"\n', problem, folder)
        name = f"honest {dtype} D={dim}{' causal' if causal else ''}"
        green = frozenset({"GREEN"})
        honest.append(Planted(name, "nothing is wrong", source, problem, green, green))
    return cheats + honest


def read_cheat(path: Path, task: Task) -> Planted:
    """One file of the zoo. BadTemplate if its comments are malformed."""
    text = path.read_text(encoding="utf-8")
    said = dict(
        re.findall(r"^// (expect|on a GPU|only|problem|launch|workspace|check): (.*)$", text, re.MULTILINE)
    )
    if not text.startswith("// ") or "expect" not in said:
        raise BadTemplate(
            f"{path}:1: a cheat says what is wrong and what to expect", "see evo/gate/selftest.py"
        )
    asked = said.get("problem", "").split()
    shape = next((word for word in asked if word != "causal"), SHAPE)
    problem = task.problem(shape, causal="causal" in asked)
    expected = _names(said["expect"])
    on_gpu = _names(said["on a GPU"]) if "on a GPU" in said else expected
    overrides = dict(item.split("=") for item in said.get("launch", "").split())
    numbers = {name: int(overrides[name]) for name in ("threads", "smem", "grid_y") if name in overrides}
    planted = Planted(
        path.stem, text.splitlines()[0][3:], _with_base(text, problem, path.parent), problem, expected,
        on_gpu, said.get("only", "").startswith("emulator"), overrides.get("arch"),
        workspaces=_workspaces(said.get("workspace", "")), thorough=said.get("check") == "thorough",
    )  # fmt: skip
    return replace(planted, **numbers)  # type: ignore[arg-type]


def _names(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(","))
    return names | SYMPTOMS if "a symptom" in names else names


def _workspaces(text: str) -> tuple[Workspace, ...]:
    if not text:
        return ()
    name, nbytes, *zeroed = text.split()
    return (Workspace(name, int(nbytes), zeroed == ["zeroed"]),)


def _with_base(text: str, problem: Problem, folder: Path) -> str:
    """The text with what the harness defines, and the base kernel pasted in."""
    element = {"fp16": "__half", "bf16": "__nv_bfloat16"}[problem.dtype]
    defined = {"CAUSAL": int(problem["causal"]), "DIM": problem["D"], "ELEMENT": element}
    headers = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    start = headers + "".join(f"#define {name} {value}\n" for name, value in defined.items())
    for name in re.findall(r'^#include "([\w/.]+)"$', text, re.MULTILINE):
        text = text.replace(f'#include "{name}"', (folder / name).read_text(encoding="utf-8"))
    return start + text


def try_planted(planted: Planted, device: Device, compiler: Compiler, task: Task, seed: int) -> Finding:
    """One kernel through compiler, device and gate."""
    return _finding(planted, device.checks_accesses, lambda: _gate(planted, device, compiler, task, seed))


def try_finalist(planted: Planted, emulator: Device, compiler: Compiler, task: Task, seed: int) -> Finding:
    """One kernel that is GREEN on a GPU as a finalist: on the emulator too, compiled for that GPU."""
    found = _finding(
        planted, False, lambda: second_opinion(lambda: _gate(planted, emulator, compiler, task, seed))
    )
    return replace(found, stage="finalists")


def _finding(planted: Planted, checked: bool, verdict: Callable[[], Green]) -> Finding:
    start = time.perf_counter()
    launches, outcome, reason, where = 0, Outcome.GREEN.value, "", ""
    try:
        launches = verdict().launches
    except CandidateError as error:
        outcome, reason, where = error.outcome, error.reason, error.where
    took = time.perf_counter() - start
    return finding(planted, checked, outcome, reason, where, seconds=took, launches=launches)


def _gate(planted: Planted, device: Device, compiler: Compiler, task: Task, seed: int) -> Green:
    arch = planted.arch or device.gpu.arch
    binary: Binary = compiler.compile(planted.source, "kernel", arch)

    def kernel_for(problem: Problem) -> tuple[Kernel, LaunchConfig]:
        launch = planted.launch(problem)
        return device.load(binary, launch), launch

    return check(kernel_for, device, task, planted.problem, (ROWS,), seed=seed, thorough=planted.thorough)


def finding(
    planted: Planted, checked: bool, outcome: str, reason: str, where: str = "",
    *, seconds: float, launches: int = 0,
) -> Finding:  # fmt: skip
    """Compares how a kernel ended with how it should have; `checked`: on a device that checks accesses."""
    expected = planted.expected if checked else planted.expected_on_gpu
    right = (outcome == Outcome.GREEN) == planted.honest
    reasoned = bool(expected & {outcome, reason})
    return Finding(
        planted.name, planted.says, outcome, reason, where, right, right and reasoned, seconds, launches
    )


def self_test(
    zoo: Sequence[Planted], device: Device, compiler: Compiler, task: Task, seed: int = 0
) -> Iterator[Finding]:
    """The whole zoo, in this process: for the emulator, where no kernel can do harm."""
    for planted in zoo:
        if device.checks_accesses or not planted.emulator_only:
            yield try_planted(planted, device, compiler, task, seed)
    yield from try_baselines(device.torch_device, task, seed)


def try_baselines(torch_device: str, task: Task, seed: int, seeds: int = 1) -> Iterator[Finding]:
    """The library's own implementations through the numeric checks: none may be refused.

    Those that round the scores to the storage type are no honest kernels by the task's word, and left out."""
    import torch

    for dtype, dim, causal in CONTROLS:
        problem = task.problem(SHAPE.rsplit(",", 1)[0] + f",{dim}", dtype, causal=causal)
        for name, run in task.baselines(problem, torch_device).items():
            if name == "hybrid":
                continue
            start, refused = time.perf_counter(), None
            for at in range(seed, seed + seeds):
                for family in task.families.names:
                    inputs = task.inputs(problem, family, at, torch_device)
                    with torch.no_grad():
                        out = run(inputs)
                    try:
                        compare(
                            "o", out, task.reference(problem, inputs)["o"], task.honest(problem, inputs)["o"]
                        )
                    except CandidateError as error:
                        refused = refused or (error.reason, f"{family} seed={at}: {error}")
            outcome = "RED" if refused else "GREEN"
            reason, where = refused or ("", "")
            title = f"torch {name} {problem.dtype} D={dim}{' causal' if causal else ''}"
            green = outcome == "GREEN"
            yield Finding(
                title, "nothing is wrong", outcome, reason, where, green, green, time.perf_counter() - start
            )


DeviceFactory = Callable[[], tuple[Device, Compiler, Task]]
"""Makes what a child process tries kernels with; must be picklable."""


def self_test_isolated(
    zoo: Sequence[Planted], make: DeviceFactory, seed: int = 0, deadline_s: float = 8.0,
    second: Callable[[Planted], Finding] | None = None,
) -> Iterator[Finding]:  # fmt: skip
    """The whole zoo on a GPU, in a process that may hang or die, as kernels there make it; the next one,
    which is made ready meanwhile, continues. What is GREEN there goes to the `second` stage, in this
    process."""
    child, spare = Child(_Trying, make), Child(_Trying, make)
    try:
        for planted in zoo:
            if planted.emulator_only:
                continue
            start = time.perf_counter()
            try:
                found = child.ask("attempt", planted, seed, deadline=deadline_s)
            except (Hung, Crashed) as error:
                reason = "no answer" if isinstance(error, Hung) else error.reason
                took = time.perf_counter() - start
                found = finding(planted, False, error.outcome, reason, seconds=took)
            if found.outcome == Outcome.GREEN and second is not None:
                last = second(planted)
                launches, seconds = found.launches + last.launches, found.seconds + last.seconds
                found = replace(last, launches=launches, seconds=seconds)
            yield found
            if found.outcome in (Outcome.HUNG, Outcome.CRASHED):
                child.close()
                child, spare = spare, Child(_Trying, make)
    finally:
        child.close()
        spare.close()


class _Trying:
    """What tries one kernel after the other in a process that may hang or die."""

    def __init__(self, make: DeviceFactory, _report: Report) -> None:
        self._device, self._compiler, self._task = make()

    def attempt(self, planted: Planted, seed: int) -> Finding:
        return try_planted(planted, self._device, self._compiler, self._task, seed)


def try_zoo(
    zoo: Path | None, device: str, gpu: Gpu, cache: Path, nvcc: Path | None, seed: int = 0
) -> Iterator[Finding]:
    """The gate's test of itself; on a GPU in a process that may hang or die, and what passes there goes to
    the emulator, as finalists do. UsageError where `zoo` (default: the one that comes with evo) is not
    there."""
    package = Path(evo.__file__).parent
    own = package / "cheats"  # in a wheel
    folder = zoo or (own if own.is_dir() else package.parent / "tests" / "cheats")
    if not any(folder.glob("*.cu")):
        raise UsageError(
            f"no planted kernels in {folder}", "name their folder, tests/cheats in evo's source: --zoo DIR"
        )
    make = partial(gate_tools, device, gpu, cache, nvcc)
    planted = load_zoo(folder, load_task("attention"))
    emulator, compiler, task = gate_tools("emulator", gpu, cache, nvcc)
    try:
        if not is_gpu(device):
            yield from self_test(planted, emulator, compiler, task, seed)
        else:
            yield from self_test_isolated(
                planted, make, seed, second=lambda p: try_finalist(p, emulator, compiler, task, seed)
            )
    finally:
        compiler.close()


def gate_tools(device: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> tuple[Device, Compiler, Task]:
    compiler = find_compiler(nvcc, Cache(cache))
    made = open_device(device, gpu, cache=cache, compiler=compiler)
    return made, compiler, load_task("attention")
