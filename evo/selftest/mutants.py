"""Mutation testing of the gate: which mutants of an honest kernel it refuses, on the emulator, on all cores.

What counts is a mutant that runs and differs. Statements that the kernel never executes are not changed; a
mutant that ptxas refuses is no program; a survivor for which ptxas gives the same machine code changes
nothing. Each other survivor is listed with its line, and runs once more beside the original, on inputs of the
check for candidates at OTHER_SEEDS other seeds. Where no bit of any output differs, it is the same kernel, as
far as can be told. Where bits differ, the check for finalists refuses it, or the difference is within the
tolerance: then a person reads the line, and says whether the mutant is as right as the original.

The work is in steps that are independent of each other: the check for candidates, the comparison, the check
for finalists at one seed. So it spreads over processes, and what is known can be kept between two runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from evo.cache import Cache
from evo.calls import with_calls
from evo.child import end_with
from evo.compile import assemble, find_compiler, machine_code
from evo.device.emulator import EmulatorDevice, EmulatorKernel, interpreter
from evo.errors import BadTemplate, CandidateError, Infeasible, Uncompilable
from evo.gate import Green, check
from evo.gate.cases import Case, plan
from evo.gate.memory import GuardedMemory
from evo.gpu import Limits
from evo.selftest.mutant_results import Fate, MutantResult, MutationTarget, in_order
from evo.selftest.mutation import Mutant, cuda_lines, mutants, sample
from evo.task import Task, load_task
from evo.template import load_template
from evo.trial import LaunchConfig, Outcome, Problem, body_of, digest_of

DIGEST_BYTES = hashlib.sha256().digest_size
OTHER_SEEDS = 4
"""Seeds at which a survivor is compared with the original."""
PATIENCE = 4
"""A mutant that runs this many times as long as the honest kernel's longest launch is a runaway."""


class MutationRun:
    """Tries the mutants of one target, in one process."""

    def __init__(self, target: MutationTarget) -> None:
        import torch

        torch.set_num_threads(1)
        self.target = target
        task = load_task(target.problem.task, target.folders)
        self.task = with_calls(task, target.problem, target.calls)
        self.template = load_template(self.task, target.template, target.folders)
        self.limits = Limits.of(target.gpu)
        if reason := self.template.supports(target.problem, self.limits):
            raise Infeasible(reason)
        self.point = target.point or self.template.space.default_for(target.problem, self.limits)
        self.candidate = self.template.candidate(self.point, target.problem)
        with find_compiler(target.nvcc, Cache(target.cache)) as compiler:
            self.toolkit = compiler.toolkit
            self.binary = compiler.compile(self.candidate.source, self.candidate.entry, target.gpu.arch)
        self.device = EmulatorDevice(target.gpu, cache=target.cache)
        self.tiles = self.template.tiles(self.point, target.problem)
        self.places, longest = self._kept_profile()
        self._code: str | None = None
        self.device.instruction_budget = int(PATIENCE * longest)

    def verify(self) -> None:
        """BadTemplate where the original itself is not GREEN in the check for finalists: then nothing is
        learnt from its mutants."""
        verdict = self.finalist(None, self.target.seed)
        if verdict != Outcome.GREEN:
            raise BadTemplate(
                f"{self.template.path}:1: the original is {verdict}",
                "mutants are made of an honest kernel",
            )

    def every(self) -> list[Mutant]:
        """All mutants of executed statements."""
        return list(mutants(self.binary.ptx, self.places))

    def some(self, count: int | None) -> list[Mutant]:
        """`count` of them with every kind, the same ones each time; all where it is None."""
        target = self.target
        seed = f"{target.template} {target.problem.key} {target.seed}"
        return self.every() if count is None else sample(self.every(), count, seed)

    def try_one(self, mutant: Mutant) -> MutantResult:
        """One mutant through all steps."""
        tried = self.look(mutant)
        if tried.fate == "survived":
            tried = self.compare(mutant, tried)
        return self.judge(mutant, tried, self.target.seed) if tried.differs else tried

    def look(self, mutant: Mutant) -> MutantResult:
        """One mutant through the check for candidates; a survivor through ptxas too."""
        begin = time.perf_counter()
        fate: Fate = "refused"
        outcome, reason, where = self._verdict(mutant, self.target.seed, thorough=False)
        if reason in ("unreadable PTX", "unsupported instruction"):
            fate = "no program"
        elif outcome == Outcome.GREEN:
            fate = self._difference(mutant)
        place, text = self.places[mutant.line]
        seconds = time.perf_counter() - begin
        said = (mutant.kind, mutant.line, mutant.before, mutant.after, place, text)
        return MutantResult(*said, fate, outcome, reason, where, seconds)

    def compare(self, mutant: Mutant, tried: MutantResult) -> MutantResult:
        """A survivor beside the original, bit for bit."""
        begin = time.perf_counter()
        differs, compared = self._compare(mutant)
        seconds = tried.seconds + time.perf_counter() - begin
        return replace(tried, differs=differs, compared=compared, seconds=seconds)

    def judge(self, mutant: Mutant, tried: MutantResult, seed: int) -> MutantResult:
        """A survivor through the check for finalists at `seed`; it takes up to a minute."""
        return tried.with_verdict(seed, self.finalist(mutant, seed))

    def finalist(self, mutant: Mutant | None, seed: int) -> str:
        """How the check for finalists ends at `seed`, of a mutant or of the original."""
        return " ".join(self._verdict(mutant, seed, thorough=True)[:2]).strip()

    def _verdict(self, mutant: Mutant | None, seed: int, thorough: bool) -> tuple[str, str, str]:
        try:
            self._check(self.binary.ptx if mutant is None else mutant.of(self.binary.ptx), seed, thorough)
        except CandidateError as error:
            return error.outcome, error.reason, error.where
        return Outcome.GREEN, "", ""

    def _check(self, ptx: str, seed: int, thorough: bool) -> Green:
        binary = replace(self.binary, ptx=ptx)
        kernel = self.device.load(binary, self.candidate.launch)
        return check(
            lambda at: (kernel, self._launch_for(at)),
            self.device,
            self.task,
            self.target.problem,
            self.tiles,
            seed=seed,
            deterministic=self.template.deterministic,
            thorough=thorough,
        )

    def _launch_for(self, problem: Problem) -> LaunchConfig:
        """How the same code is launched for `problem`; Infeasible where it does not serve it."""
        if reason := self.template.supports(problem, self.limits):
            raise Infeasible(reason)
        sibling = self.template.sibling(self.candidate, problem)
        if body_of(sibling.source) != body_of(self.candidate.source):
            raise Infeasible("other code, which has other mutants")
        return sibling.launch

    def _difference(self, mutant: Mutant) -> Fate:
        """What ptxas makes of a mutant that the gate did not refuse."""
        entry, arch = self.candidate.entry, self.target.gpu.arch
        original, changed = self.binary.ptx, mutant.of(self.binary.ptx)
        if self._code is None:
            self._code = machine_code(assemble(original, arch, self.toolkit.ptxas), original, entry)
        try:
            code = machine_code(assemble(changed, arch, self.toolkit.ptxas), changed, entry)
        except Uncompilable:
            return "no program"
        return "unchanged" if code == self._code else "survived"

    def _compare(self, mutant: Mutant) -> tuple[int, int]:
        """In how many launches the outputs have other bits than the original's, or there is a fault, and of
        how many: inputs and schedules of the check for candidates at other seeds."""
        changed = replace(self.binary, ptx=mutant.of(self.binary.ptx))
        mutated = self.device.load(changed, self.candidate.launch)
        differs = compared = 0
        for case, launch, bits in self._originals:
            for schedule in case.schedules:
                differs += self._bits(mutated, launch, case, schedule) != bits
                compared += 1
        return differs, compared

    @cached_property
    def _originals(self) -> list[tuple[Case, LaunchConfig, bytes]]:
        """Cases of the check for candidates at other seeds that the same code serves, and what the original
        leaves; of the study's own problem one piece. Kept in the cache."""
        task, problem, tiles = self.task, self.target.problem, self.tiles
        cases: dict[str, Case] = {}
        for seed in range(self.target.seed + 1, self.target.seed + 1 + OTHER_SEEDS):
            for case in plan(task, problem, tiles, self.device, seed=seed):
                at = task.share(problem, 0.0) if case.kind == "own" else case.problem
                if case.kind != "relations":
                    cases[f"{at.key} {case.family} {case.seed}"] = replace(case, problem=at)
        served = []
        for case in cases.values():
            with contextlib.suppress(Infeasible):
                served.append((case, self._launch_for(case.problem)))
        cache = Cache(self.target.cache)
        key = digest_of("bits", self.binary.ptx, repr(served), _arithmetic(task))
        if (kept := cache.read(key)) is None:
            kernel = self.device.load(self.binary, self.candidate.launch)
            kept = b"".join(self._bits(kernel, launch, case, case.schedules[0]) for case, launch in served)
            cache.write(key, kept)
        bits = [kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES)]
        return [(*at, digest) for at, digest in zip(served, bits, strict=True)]

    def _bits(self, kernel: EmulatorKernel, launch: LaunchConfig, case: Case, schedule: str) -> bytes:
        """A digest of the outputs of one launch; another if the launch did what it must not."""
        import torch

        inputs = self.task.inputs(case.problem, case.family, case.seed, "cpu")
        memory = GuardedMemory(self.task.buffers(case.problem), launch.workspaces, torch_device="cpu")
        memory.fill(inputs, seed=0)
        images = memory.room_for_images(1)
        memory.poison(0)
        fault = kernel.execute(launch, memory.regions, schedule).fault
        memory.take_image(images[0])
        if fault or memory.unlike(images, same_outputs=False).any():
            return b"damage" if fault is None else fault.text.encode()
        outputs = memory.outputs(images[0])
        raw = (outputs[name].contiguous().view(-1).view(torch.uint8) for name in sorted(outputs))
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in raw)).digest()

    def _kept_profile(self) -> tuple[dict[int, tuple[str, str]], float]:
        """`_profile`, from the cache where this kernel has been run for it."""
        cache = Cache(self.target.cache)
        said = (self.binary.ptx, self.candidate.source, self.target.problem.key, repr(self.tiles))
        key = digest_of("profile", *said, _arithmetic(self.task))
        if (kept := cache.read(key)) is None:
            kept = json.dumps(self._profile()).encode()
            cache.write(key, kept)
        places, longest = json.loads(kept)
        return {int(line): (place, text) for line, (place, text) in places.items()}, longest

    def _profile(self) -> tuple[dict[int, tuple[str, str]], float]:
        """The executed PTX lines with their CUDA line and its text; warp instructions of the longest launch.

        They run what the gate runs: its boundary problems, and one piece of the target's own problem, whose
        instructions are scaled up to all of it."""
        problem = self.target.problem
        kernel = self.device.load(self.binary, self.candidate.launch)
        source, lines = self.candidate.source.splitlines(), cuda_lines(self.binary.ptx)
        found: dict[int, tuple[str, str]] = {}
        longest = 0.0
        piece = self.task.share(problem, 0.0)
        pieces = self.task.flop(problem) / self.task.flop(piece)
        cases = [(at, self.task.families.plain, 1.0) for at in self.task.gate_problems(problem, self.tiles)]
        cases += [(piece, family, pieces) for family in self.task.families.names]
        many = (*self.task.piece_problems(problem, self.tiles), *self.task.lone_problems(problem, self.tiles))
        cases += [(at, self.task.families.plain, 1.0) for at in many]
        for at, family, scale in cases:
            try:
                launch = self._launch_for(at)
            except Infeasible:
                continue
            memory = GuardedMemory(self.task.buffers(at), launch.workspaces, torch_device="cpu")
            memory.fill(self.task.inputs(at, family, 0, "cpu"), seed=0)
            memory.poison(0)
            run = kernel.execute(launch, memory.regions, profile=True)
            if run.fault:
                raise BadTemplate(
                    f"{self.template.path}:1: the original is refused: {run.fault.text}",
                    "mutants are made of an honest kernel",
                )
            longest = max(longest, scale * run.counters["instructions"])
            for work in run.instructions:
                if work.executed_count:
                    place = lines.get(work.ptx_line, (0,))
                    text = source[place[0] - 1].strip() if 0 < place[0] <= len(source) else ""
                    found[work.ptx_line] = (" from ".join(map(str, place)), text)
        return found, longest


def _arithmetic(task: Task) -> list[str]:
    """What bits depend on besides a kernel and seeds: the emulator, the task and what it is made of, where
    torch draws."""
    import torch

    folder = Path(interpreter.__file__).with_name("ptx")
    files = [
        *(Path(inspect.getfile(part)) for part in type(task).__mro__ if issubclass(part, Task)),
        *sorted(Path(inspect.getfile(Task)).parent.glob("*.py")),
        *(path for path in sorted(folder.iterdir()) if path.is_file()),
    ]
    sources = b"".join(path.read_bytes() for path in files)
    kind = torch.backends.cpu.get_cpu_capability()
    return [hashlib.sha256(sources).hexdigest(), torch.__version__, kind]


Step = Literal["look", "compare", "judge", "verify"]


@dataclass(frozen=True)
class Attempt:
    """One step of one mutant; `tried` is what is known of it. `verify` is of the original, without one."""

    target: MutationTarget
    step: Step
    mutant: Mutant | None = None
    tried: MutantResult | None = None
    seed: int = 0
    """That a survivor is judged at."""


_runs: dict[str, MutationRun] = {}
"""Those of this process: one for each target whose mutants it has tried."""


def _try(attempt: Attempt) -> MutantResult | None:
    name = repr(attempt.target)
    if name not in _runs:
        _runs[name] = MutationRun(attempt.target)
    run = _runs[name]
    if attempt.step == "verify" or attempt.mutant is None:
        run.verify()
        return None
    if attempt.step == "look" or attempt.tried is None:
        return run.look(attempt.mutant)
    if attempt.step == "compare":
        return run.compare(attempt.mutant, attempt.tried)
    return run.judge(attempt.mutant, attempt.tried, attempt.seed)


class Workers:
    """Makes attempts in `jobs` processes, which live as long as this is entered, and as this process."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = None
        if jobs > 1:
            self._pool = ProcessPoolExecutor(jobs, get_context("spawn"), end_with, (os.getpid(),))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def each(
        self, work: Iterable[Attempt], until: float = math.inf
    ) -> Iterator[tuple[Attempt, MutantResult | None]]:
        """Results come as they end. Attempts of one target should stand beside each other. None is begun
        after `until`, a time of `time.monotonic`."""
        waiting = takewhile(lambda _: time.monotonic() < until, work)
        if self._pool is None:
            yield from ((attempt, _try(attempt)) for attempt in waiting)
            return
        asked = {self._pool.submit(_try, attempt): attempt for attempt in islice(waiting, self._jobs + 2)}
        while asked:
            for future in wait(asked, return_when=FIRST_COMPLETED).done:
                yield asked.pop(future), future.result()
                for attempt in islice(waiting, 1):
                    asked[self._pool.submit(_try, attempt)] = attempt


def try_mutants(
    target: MutationTarget,
    count: int | None,
    jobs: int,
    tell: Callable[[MutantResult], None] = lambda _: None,
) -> list[MutantResult]:
    """Tries `count` mutants (None: all), in `jobs` processes; calls `tell` with each as it ends. Ordered by
    line. BadTemplate where the original itself is not GREEN."""
    here = MutationRun(target)
    here.verify()
    chosen = {mutant.key: mutant for mutant in here.some(count)}
    tried: list[MutantResult] = []
    attempts = [Attempt(target, "look", mutant) for mutant in chosen.values()]
    with Workers(jobs) as workers:
        while attempts:
            further: list[Attempt] = []
            for _, found in workers.each(attempts):
                if found and (step := found.next_step):
                    further.append(Attempt(target, step, chosen[found.key], found, target.seed))
                elif found:
                    tell(found)
                    tried.append(found)
            attempts = further
    return in_order(tried)
