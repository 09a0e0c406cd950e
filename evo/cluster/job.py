"""What travels to a worker: the study's specification, candidates, and compiled code by content hash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from evo.cache import Cache
from evo.errors import CandidateError
from evo.evaluate import EvaluatorSpec, failed
from evo.evaluate.evaluating import Builds
from evo.evaluate.pool import Spec
from evo.trial import Candidate, Trial


@dataclass(frozen=True)
class Compiled:
    """What was compiled of a candidate: entries of a cache by key, a hash of source, options and compiler; or
    the `trial` that it is where it does not compile. `seconds`: what that took."""

    entries: Mapping[str, bytes] = field(default_factory=dict)
    trial: Trial | None = None
    seconds: float = 0.0


class Compiling(Protocol):
    """Compiles candidates, from several threads at once."""

    def __call__(self, candidate: Candidate) -> Compiled: ...

    def close(self) -> None: ...


class Job(Protocol):
    """Picklable; what the workers of a search do."""

    @property
    def digest(self) -> str:
        """Equal for equal jobs."""
        ...

    def compiling(self, cache: Path, nvcc: Path | None) -> Compiling:
        """What compiles on a worker, whose cache and compiler these are."""
        ...

    def at(
        self, devices: Mapping[str, str], cache: Path, nvcc: Path | None
    ) -> tuple[Spec, dict[str, Builds]]:
        """What a pool evaluates with: the specification, and what is built for each GPU."""
        ...


@dataclass(frozen=True)
class OnlyEvaluates:
    """A specification whose pool compiles nothing ahead: other workers do, and the code is in the cache."""

    spec: EvaluatorSpec

    def prepare(self) -> None:
        self.spec.prepare()

    def evaluators(self, workers: int) -> int:
        """As many as there are workers for each GPU."""
        return workers

    def precompiler(self, workers: int) -> None:  # noqa: ARG002
        return None

    @property
    def forks(self) -> bool:
        return self.spec.forks

    def build(self) -> object:
        return self.spec.build()


class CompilesAll:
    """Compiles all that evaluating a candidate will ask for."""

    def __init__(self, spec: EvaluatorSpec) -> None:
        self._program, self._arch = spec.program(), spec.arch
        self._cache, self._compiler = Cache(spec.cache), spec.compiler(background=True)

    def __call__(self, candidate: Candidate) -> Compiled:
        begin, entries = time.perf_counter(), {}
        try:
            for source in self._program.sources(candidate):
                asked = source.source, source.entry, self._arch
                self._compiler.compile(*asked)
                key = self._compiler.key(*asked)
                entries[key] = self._cache.read(key) or b""
        except CandidateError as error:
            seconds = {"compile": time.perf_counter() - begin}
            return Compiled({}, failed(candidate, error, seconds=seconds, compiler=self._compiler.version))
        return Compiled(entries, None, time.perf_counter() - begin)

    def close(self) -> None:
        self._compiler.close()


@dataclass(frozen=True)
class EvaluationJob:
    """Compiles and evaluates the candidates of a study."""

    spec: EvaluatorSpec
    digest: str

    def compiling(self, cache: Path, nvcc: Path | None) -> Compiling:
        return CompilesAll(replace(self.spec, cache=cache, nvcc=nvcc))

    def at(
        self, devices: Mapping[str, str], cache: Path, nvcc: Path | None
    ) -> tuple[Spec, dict[str, Builds]]:
        first = next(iter(devices.values()))
        spec = replace(self.spec, cache=cache, nvcc=nvcc, device=first)
        groups: dict[str, Builds] = {gpu: replace(spec, device=device) for gpu, device in devices.items()}
        return OnlyEvaluates(spec), groups  # type: ignore[return-value]


def keep(compiled: Compiled, cache: Path) -> None:
    """Puts the entries that came from another machine where an evaluator looks for them."""
    shelf = Cache(cache)
    for key, content in compiled.entries.items():
        if content and shelf.read(key) is None:
            shelf.write(key, content)
