"""One candidate through the pipeline: compile, load, check, time. Returns a Trial and writes nothing.

Only a CandidateError becomes a Trial; whatever else is raised is a bug or a broken machine, and is passed on.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache as once
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from evo import __version__
from evo.compile import Compiler
from evo.device import Device, Kernel
from evo.errors import CandidateError, Infeasible, Red
from evo.gate import Green, KernelFor, check
from evo.task import Task, load_task
from evo.template import Template, load_template
from evo.timing import Ready, TimingSession
from evo.trial import Binary, Candidate, LaunchConfig, Outcome, Problem, Timing, Trial, body_of, digest_of

if TYPE_CHECKING:
    from evo.evaluate.spec import EvaluatorSpec

Watch = Callable[[str], None]
"""Is told the name of each stage when it begins: "compile", "load", "gate", "timing"; "turn" is the wait for
one's turn on a GPU."""


def _nobody(_stage: str) -> None:
    """Watches nothing."""


class Program:
    """A candidate's template and task, so that its point can be rendered for the gate's other problems."""

    def __init__(self, spec: EvaluatorSpec) -> None:
        self.spec = spec
        self.task = load_task(spec.task, spec.folders)
        self._template = once(lambda name: load_template(self.task, name, spec.folders, spec.gpu))

    def template(self, name: str) -> Template:
        """The template of that name, loaded once."""
        return self._template(name)

    def sibling(self, candidate: Candidate, problem: Problem) -> Candidate:
        """The same point for another problem; Infeasible where the template cannot serve it."""
        if problem.key == candidate.problem.key:
            return candidate
        template = self.template(candidate.template)
        if reason := template.supports(problem, self.spec.limits):
            raise Infeasible(reason)
        return template.sibling(candidate, problem)

    def sources(self, candidate: Candidate) -> list[Candidate]:
        """`candidate`, and those siblings that the gate will ask for whose code is another."""
        template = self.template(candidate.template)
        tiles = template.tiles(candidate.point, candidate.problem)
        found = {body_of(candidate.source): candidate}
        for problem in self.task.gate_problems(candidate.problem, tiles):
            try:
                sibling = self.sibling(candidate, problem)
            except Infeasible:
                continue
            found.setdefault(body_of(sibling.source), sibling)
        return list(found.values())


class Precompiler:
    """Compiles candidates ahead of a GPU's evaluator, into the cache they share; for many threads at once."""

    def __init__(self, spec: EvaluatorSpec) -> None:
        self._program = Program(spec)
        # the processes that feed the GPU must not wait for a core
        self._compiler = spec.compiler(background=True)
        self._arch = spec.arch

    def __call__(self, candidate: Candidate) -> Trial | None:
        """Warms the cache with all that evaluating `candidate` will compile; its Trial if that fails."""
        begin = time.perf_counter()
        try:
            for source in self._program.sources(candidate):
                self._compiler.compile(source.source, source.entry, self._arch)
        except CandidateError as error:
            seconds = {"compile": time.perf_counter() - begin}
            return failed(candidate, error, seconds=seconds, compiler=self._compiler.version)
        return None

    def close(self) -> None:
        self._compiler.close()


class Evaluator:
    """Takes candidates of one task through the pipeline on one device. Not for several threads."""

    def __init__(self, spec: EvaluatorSpec, device: Device, compiler: Compiler) -> None:
        self.spec = spec
        self.device = device
        self.compiler = compiler
        self._program = Program(spec)
        self.versions = versions_of(device, self.task.packages)
        self._session: TimingSession | None = None
        self._last: Kernel | None = None
        """The kernel that was evaluated last: unloaded in the next turn, not while another one is timed."""

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

    def evaluate(self, candidate: Candidate, watch: Watch = _nobody, earlier: int = 0) -> Trial:
        """The candidate's journey, and how it ended. `earlier`: how often it was evaluated before."""
        journey = _Journey(candidate, watch)
        if self.device.measures:
            session = self._session_for(candidate.problem)
            if session.timed:
                session.capture_all()
        try:
            with journey.stage("compile"):
                binary = self._compile(candidate)
            journey.binary = binary
            with self._beside(journey):
                with journey.stage("load"):
                    kernel = self._last = self.device.load(binary, candidate.launch)
                with journey.stage("gate"):
                    seed = trial_seed(self.spec.seed, candidate, earlier)
                    green = self._check(candidate, kernel, seed, journey)
                with journey.stage("timing"):
                    ready = self._prepare(green, journey)
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
            errors=green.errors,
            timing=timing,
            estimate_us=estimate,
            estimate_gpu="" if timing else self.device.gpu.name,
            counters=_counters(green),
            seconds=journey.seconds,
            device=self.device.name,
            versions=self.versions,
        )

    def gate(self, candidate: Candidate, seed: int, thorough: bool) -> Green:
        """Compiles, loads and checks alone; raises the CandidateError that stands in the way."""
        binary, journey = self._compile(candidate), _Journey(candidate, _nobody)
        with self._beside(journey):
            kernel = self.device.load(binary, candidate.launch)
            return self._check(candidate, kernel, seed, journey, thorough)

    @contextmanager
    def _beside(self, journey: _Journey) -> Iterator[None]:
        """On a GPU beside others, but never beside a timing; it has done all that it was given at the end."""
        with self.device.beside(partial(journey.stage, "turn")):
            self._last = None
            yield
            self.device.finish()

    def close(self) -> None:
        self._session = self._last = None
        self.device.close()
        self.compiler.close()

    def _compile(self, candidate: Candidate) -> Binary:
        return self.compiler.compile(candidate.source, candidate.entry, self.spec.arch)

    def _check(
        self, candidate: Candidate, kernel: Kernel, seed: int, journey: _Journey, thorough: bool = False
    ) -> Green:
        template = self._program.template(candidate.template)
        return check(
            self._kernel_for(candidate, kernel),
            self.device,
            self.task,
            candidate.problem,
            template.tiles(candidate.point, candidate.problem),
            seed=seed,
            deterministic=template.deterministic,
            thorough=thorough,
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
                sibling = self._program.sibling(candidate, problem)
                body, launch = body_of(sibling.source), sibling.launch
                if body not in binaries:
                    binaries[body] = self._compile(sibling)
                needs = body, _needs(launch)
                if needs not in kernels:
                    kernels[needs] = self.device.load(binaries[body], launch)
                found[problem.key] = kernels[needs], launch
            return found[problem.key]

        return kernel_for

    def _prepare(self, green: Green, journey: _Journey) -> Ready | None:
        """Captures the kernel beside others; None where times are not measured."""
        if not self.device.measures:
            return None
        self.device.give_way(self.device.finish, partial(journey.stage, "turn"))
        return self._session_for(green.problem).prepare(green)

    def _time(self, ready: Ready | None, problem: Problem, journey: _Journey) -> Timing | None:
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
                settings=self.spec.timing,
                at_once=False,
            )
        return self._session

    def _estimate(self, green: Green) -> float | None:
        resources, nbytes = green.kernel.binary.resources, self.task.nbytes(green.problem)
        return self.device.estimate_us(green.report, resources, green.launch, nbytes)


class _Journey:
    """How far a candidate has come, and the seconds it took by stage; one inside another interrupts it."""

    def __init__(self, candidate: Candidate, watch: Watch) -> None:
        self.candidate = candidate
        self.binary: Binary | None = None
        self.seconds: dict[str, float] = {}
        self._watch = watch
        self._stage, self._since = "", 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        outer = self._stage
        self._enter(name)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, name: str) -> None:
        now = time.perf_counter()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = name, now
        if name:
            self._watch(name)


def failed(
    candidate: Candidate,
    error: CandidateError,
    *,
    seconds: Mapping[str, float],
    compiler: str = "",
    binary: Binary | None = None,
    device: str = "",
    versions: Mapping[str, str] | None = None,
) -> Trial:
    """The Trial of a candidate whose journey ended with `error`."""
    return Trial(
        candidate,
        Outcome(error.outcome),
        reason=error.reason,
        detail=error.detail,
        where=error.where,
        resources=binary.resources if binary else None,
        machine_code=binary.machine_code if binary else "",
        compiler=compiler,
        errors=error.errors if isinstance(error, Red) else (),
        seconds=dict(seconds),
        device=device,
        versions=dict(versions or {}),
    )


def trial_seed(study_seed: int, candidate: Candidate, earlier: int = 0) -> int:
    """The seed of a candidate's gate: it follows from the study's seed and the candidate alone, so that the
    same candidate meets the same inputs in whatever order it is evaluated; and from how often it was so
    `earlier`, so that it meets others when it is gated again."""
    again = [earlier] if earlier else []
    return int(digest_of(study_seed, candidate.digest, *again)[:8], 16)


def versions_of(device: Device, packages: Sequence[str] = ()) -> dict[str, str]:
    """What a trial, or a time beside it, depends on besides its candidate: names and versions. `packages`:
    more distributions, if they are installed."""
    found = {"evo": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if device.driver_version:
        found["driver"] = device.driver_version
    return found


def _needs(launch: LaunchConfig) -> tuple[object, ...]:
    """What a device grants when it loads a kernel."""
    return launch.block, launch.smem_bytes, launch.cluster


def _counters(green: Green) -> dict[str, float]:
    counters = {name: float(value) for name, value in green.report.counters.items()}
    if green.report.coverage is not None:
        counters["coverage"] = green.report.coverage
    return counters
