"""One candidate through the pipeline: compile, load, check, time. Returns a Trial and writes nothing.

Only a CandidateError becomes a Trial; whatever else is raised is a bug or a broken machine, and is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from evo.cache import Cache
from evo.calls import OwnCalls, with_calls
from evo.compile import PARTS, Compiler, find_compiler
from evo.cores import evaluators_on_a_gpu
from evo.device import Device, Kernel
from evo.device.open import gpu_id, is_gpu, open_device, part_for, prepare_device
from evo.errors import CandidateError, NotEnoughMemory
from evo.evaluate.journey import Journey, Watch, unwatched
from evo.evaluate.program import Precompiler, Program, failed
from evo.evaluate.versions import versions_of
from evo.gate import Green, KernelFor, check
from evo.gpu import Gpu, Limits
from evo.study import Setup
from evo.task import Task, find_file, load_task
from evo.task.computed import check_tensors
from evo.timing import Ready, TimingSession, TimingSettings
from evo.trial import (
    WORST,
    Binary,
    Candidate,
    LaunchConfig,
    Outcome,
    Problem,
    Timing,
    Trial,
    body_of,
    digest_of,
)

LARGE_BYTES = 64 << 20
"""Problems that move more keep a GPU and its memory busy by themselves: one process evaluates."""


class Evaluator:
    """Takes candidates of one task through the pipeline on one device. Not for several threads."""

    def __init__(self, spec: EvaluatorSpec, device: Device, compiler: Compiler) -> None:
        self.spec = spec
        self.device = device
        self.compiler = compiler
        self._program = spec.program()
        self.versions = versions_of(device, self.task.packages)
        self._session: TimingSession | None = None
        self._last: tuple[Candidate, Kernel | Green] | None = None
        """What was evaluated last: unloaded in the next turn, not while another kernel is timed."""

    @property
    def task(self) -> Task:
        return self._program.task

    @property
    def usable(self) -> bool:
        """Whether the device still works; after a kernel killed its context only a new process helps."""
        return self.device.usable

    def get_ready(self, problem: Problem) -> None:
        """Does now what the first candidate of `problem` would wait for."""
        if self.device.measures:
            self._session_for(problem)

    def meanwhile(self) -> bool:
        """Captures a baseline, while there is no candidate; whether there are more. The first candidate is
        timed beside those that are captured by then, any later one beside all."""
        return self._session is not None and self._session.capture_next()

    def evaluate(
        self,
        candidate: Candidate,
        watch: Watch = unwatched,
        earlier: int = 0,
        best_us: float | None = None,
        compares: bool = False,
    ) -> Trial:
        """The candidate's journey, and how it ended. `earlier`: how often it was evaluated before; `best_us`:
        the best time of its problem so far, if there is one. `compares`: GPUs are compared by it, so that its
        time on the first timing input is enough, and it is not checked again if it was the last that was."""
        journey = Journey(candidate, watch)
        if self.device.measures:
            session = self._session_for(candidate.problem)
            session.hear(best_us)
            if session.timed and not compares:
                session.capture_all()
        try:
            with journey.stage("compile"):
                binary = journey.binary = self._compile(candidate)
            with self._beside(journey):
                green = self._passed(candidate) if compares else None
                if green is None:
                    green = self._green(candidate, binary, journey, earlier)
                with journey.stage("timing"):
                    ready = self._prepare(green, journey, whole=earlier > 0, first_alone=compares)
            timing = self._time(ready, green.problem, journey)
            estimate = None if timing else self._estimate(green)
        except CandidateError as error:
            return failed(
                candidate,
                error,
                seconds=journey.seconds,
                compiler=self.compiler.version,
                binary=journey.binary,
                device=self.device.name,
                versions=self.versions,
            )
        return Trial(
            candidate,
            Outcome.TIMED if timing else Outcome.GREEN,
            resources=binary.resources,
            machine_code=binary.machine_code,
            compiler=binary.compiler,
            reads=self._program.undeclared(candidate, binary),
            errors=green.errors,
            timing=timing,
            estimate_us=estimate,
            estimate_gpu="" if timing else self.device.gpu.name,
            counters=_counters(green),
            seconds=journey.seconds,
            extent=green.extent,
            device=self.device.name,
            versions=self.versions,
        )

    def _passed(self, candidate: Candidate) -> Green | None:
        """The candidate's gate, if it was the last one that was evaluated, and passed."""
        last, found = self._last or (None, None)
        return found if last == candidate and isinstance(found, Green) else None

    def _green(self, candidate: Candidate, binary: Binary, journey: Journey, earlier: int) -> Green:
        self._last = None
        with journey.stage("load"):
            kernel = self.device.load(binary, candidate.launch)
        self._last = candidate, kernel
        with journey.stage("gate"):
            green = self._check(candidate, kernel, trial_seed(self.spec.seed, candidate, earlier), journey)
        self._last = candidate, green
        return green

    def gate(self, candidate: Candidate, seed: int, thorough: bool) -> Green:
        """Compiles, loads and checks alone; raises the CandidateError that stands in the way."""
        binary, journey = self._compile(candidate), Journey(candidate, unwatched)
        if thorough:
            self._program.refuse_undeclared(candidate, binary)
        with self._beside(journey):
            self._last = None
            kernel = self.device.load(binary, candidate.launch)
            return self._check(candidate, kernel, seed, journey, thorough)

    @contextmanager
    def _beside(self, journey: Journey) -> Iterator[None]:
        """On a GPU beside others, but never beside a timing; it has done all that it was given at the end."""
        with self.device.beside(partial(journey.stage, "turn")):
            yield
            self.device.finish()

    def close(self) -> None:
        self._session = self._last = None
        self.device.close()
        self.compiler.close()

    def _compile(self, candidate: Candidate) -> Binary:
        return self.compiler.compile(candidate.source, candidate.entry, self.spec.arch)

    def _check(
        self, candidate: Candidate, kernel: Kernel, seed: int, journey: Journey, thorough: bool = False
    ) -> Green:
        template = self._program.template(candidate.template)
        return check(
            self._kernel_for(candidate, kernel),
            self.device,
            self.task,
            candidate.problem,
            self._program.tiles(candidate),
            seed=seed,
            deterministic=template.deterministic,
            thorough=thorough,
            accept_unproven=self.spec.accept_unproven,
            between=lambda finish: self.device.give_way(finish, partial(journey.stage, "turn")),
        )

    def _kernel_for(self, candidate: Candidate, kernel: Kernel) -> KernelFor:
        """The candidate's kernel for the gate's other problems: the same code wherever it is the same, so
        that what is checked is what is timed. A program is compiled once, and loaded once for what its launch
        needs."""
        own = body_of(candidate.source)
        binaries, kernels = {own: kernel.binary}, {(own, _needs(candidate.launch)): kernel}
        found: dict[str, tuple[Kernel, LaunchConfig]] = {candidate.problem.key: (kernel, candidate.launch)}

        def kernel_for(problem: Problem) -> tuple[Kernel, LaunchConfig]:
            if problem.key not in found:
                body, launch = self._program.sibling_launch(candidate, problem)
                if body not in binaries:
                    binaries[body] = self._compile(self._program.sibling(candidate, problem))
                needs = body, _needs(launch)
                if needs not in kernels:
                    kernels[needs] = self.device.load(binaries[body], launch)
                found[problem.key] = kernels[needs], launch
            return found[problem.key]

        return kernel_for

    def small_launch(self, candidate: Candidate) -> tuple[Problem, LaunchConfig] | None:
        """The largest of the gate's small problems that the very same code serves, and its launch there."""
        return self._program.small_launch(candidate)

    def _prepare(self, green: Green, journey: Journey, whole: bool, first_alone: bool) -> Ready | None:
        """Captures the kernel beside others; None where times are not measured. One of the best that is
        measured again is timed as a `whole`: a bound of its time is not enough."""
        if not self.device.measures:
            return None
        self.device.give_way(self.device.finish, partial(journey.stage, "turn"))
        session = self._session_for(green.problem)
        return session.prepare(green, (session.first,) if first_alone else session.inputs if whole else None)

    def _time(self, ready: Ready | None, problem: Problem, journey: Journey) -> Timing | None:
        if ready is None:
            return None
        return self._session_for(problem).time(ready, journey.stage)

    def _session_for(self, problem: Problem) -> TimingSession:
        if self._session is None or self._session.problem.key != problem.key:
            self._session = None  # free the buffers of the last problem first
            self._session = TimingSession(
                self.device,
                self.task,
                problem,
                seed=self.spec.seed,
                ranking=self.spec.ranking,
                settings=self.spec.timing,
                at_once=False,
            )
        return self._session

    def _estimate(self, green: Green) -> float | None:
        resources, nbytes = green.kernel.binary.resources, self.task.nbytes(green.problem)
        return self.device.estimate_us(green.report, resources, green.launch, nbytes)


@dataclass(frozen=True)
class EvaluatorSpec:
    """All that is needed to make the same Evaluator in any process of this machine; picklable.

    `device` is "cuda:0" or "emulator", `gpu` the one at hand or the one that the emulator stands for;
    `limits` are what the space was pruned by; `seed` is the study's: the gate's seeds follow from it.
    """

    task: str
    device: str
    gpu: Gpu
    limits: Limits
    cache: Path
    seed: int = 0
    folders: tuple[Path, ...] = ()
    nvcc: Path | None = None
    problem: Problem | None = None
    """Whose baselines are captured when the evaluator is made; else with its first candidate."""
    ranking: str = WORST
    """Which of a kernel's times on the timing inputs counts."""
    timing: TimingSettings = field(default_factory=TimingSettings)
    compile_timeout_s: float = 60.0
    accept_unproven: bool = False
    """Whether a kernel on which some class of the gate's cases hardly ran may be GREEN."""
    calls: OwnCalls | None = None
    """Recorded calls that the kernels of `of_calls` are checked and timed on, too."""
    of_calls: Problem | None = None

    @classmethod
    def of(cls, setup: Setup) -> EvaluatorSpec:
        """What makes a study's evaluators on this machine."""
        study = setup.study
        return cls(
            task=study.problem.task,
            device=study.device,
            gpu=setup.gpu,
            limits=setup.limits,
            cache=setup.cache,
            seed=study.seed,
            folders=setup.folders,
            nvcc=setup.nvcc,
            problem=study.problem,
            ranking=study.ranking,
            accept_unproven=study.accept_unproven,
            calls=study.calls,
            of_calls=study.problem,
        )

    def groups(self, devices: Sequence[str]) -> dict[str, EvaluatorSpec]:
        """What evaluates on each of the devices, by the ids of their GPUs."""
        return {gpu_id(device): replace(self, device=device) for device in devices}

    @property
    def on_gpu(self) -> bool:
        return is_gpu(self.device)

    @property
    def forks(self) -> bool:
        return not self.on_gpu

    @property
    def arch(self) -> str:
        """What code is compiled for: the GPU at hand, or the one that the emulator stands for."""
        return self.gpu.arch

    def prepare(self) -> None:
        """What every process needs and one should make first: a compiler that works, the built emulator.

        Raises MachineError where something is missing, UsageError where recorded calls have gone."""
        if self.calls is not None:
            self.calls.located()
        prepare_device(self.device, self.cache)
        self.compiler().close()

    def compiler(self, whole: bool = False, background: bool = False) -> Compiler:
        """What gives the device what it runs: a GPU the cubin, the emulator the PTX; `whole`: both, and the
        lines of the source, for tools that name them."""
        return find_compiler(
            self.nvcc,
            Cache(self.cache),
            timeout_s=self.compile_timeout_s,
            parts=PARTS if whole else (part_for(self.device),),
            background=background,
        )

    def evaluators(self, workers: int) -> int:
        """How many processes evaluate when `workers` may work: few on a GPU, where the others compile."""
        if not self.on_gpu:
            return workers
        if self.problem and load_task(self.task, self.folders).nbytes(self.problem) > LARGE_BYTES:
            return 1
        return evaluators_on_a_gpu(workers)

    def precompiler(self, workers: int) -> Precompiler | None:
        """What compiles ahead of the evaluators; None where the evaluators do it themselves."""
        if not self.on_gpu or workers < 1:
            return None
        # the processes that feed the GPU must not wait for a core
        return Precompiler(self.program(), self.compiler(background=True), self.arch)

    def program(self) -> Program:
        """The task and its templates, for rendering a candidate for other problems."""
        task = with_calls(load_task(self.task, self.folders), self.of_calls, self.calls)
        return Program(task, self.folders, self.gpu, self.limits)

    def check_task(self) -> None:
        """BadTemplate if what the task computes cannot be right: it is said before a search begins."""
        path = find_file(f"{self.task}/task.py", self.folders)
        assert path is not None
        check_tensors(load_task(self.task, self.folders), path)

    def build(self) -> Evaluator:
        """The evaluator; imports torch and takes seconds."""
        from evo.evaluate.early import prepare

        prepare(self.device)
        import torch

        torch.set_num_threads(1)
        self.check_task()
        compiler = self.compiler()
        device = open_device(self.device, self.gpu, cache=self.cache, compiler=compiler)
        evaluator = Evaluator(self, device, compiler)
        if self.problem is not None:
            with suppress(NotEnoughMemory):  # a candidate of it says so; those of others may fit
                evaluator.get_ready(self.problem)
        return evaluator


def trial_seed(study_seed: int, candidate: Candidate, earlier: int = 0) -> int:
    """The seed of a candidate's gate: it follows from the study's seed and the candidate alone, so that the
    same candidate meets the same inputs in whatever order it is evaluated; and from how often it was so
    `earlier`, so that it meets others when it is gated again."""
    again = [earlier] if earlier else []
    return int(digest_of(study_seed, candidate.digest, *again)[:8], 16)


def _needs(launch: LaunchConfig) -> tuple[object, ...]:
    """What a device grants when it loads a kernel."""
    return launch.block, launch.smem_bytes, launch.cluster, launch.cooperative and launch.grid


def _counters(green: Green) -> dict[str, float]:
    coverage = green.report.coverage
    counters = {name: float(value) for name, value in green.report.counters.items()}
    return counters | ({} if coverage is None else {"coverage": coverage})
