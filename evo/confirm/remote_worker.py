"""CONFIRMED on another machine: the confirm worker's process runs on a worker of a cluster that has the GPU.

The rules are those of this machine. Each answer is stored here before the next question; where the machine is
lost, finalists are gated once more in a new process on the same GPU, and no finalist is blamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.confirm.worker import Surroundings, WorkerProcess, WorkerSpec
from evo.errors import Crashed, MachineError
from evo.trial import Candidate, CaseError, Round

if TYPE_CHECKING:
    from evo.cluster.remote import Remote
    from evo.confirm.on_emulator import GateRequest

LOSSES = 3
"""How often the machine may be lost over one question."""


@dataclass(frozen=True)
class ConfirmationJob:
    """A confirm worker's process on a machine of a cluster. `frees`: the digest of the study's job there."""

    spec: WorkerSpec
    digest: str
    frees: str
    beside: tuple[str, ...] = ("expect",)

    def answering(self, device: str, cache: Path, nvcc: Path | None) -> WorkerProcess:
        evaluator = replace(self.spec.evaluator, device=device, cache=cache, nvcc=nvcc)
        return WorkerProcess(replace(self.spec, evaluator=evaluator))

    def needs(self, method: str, words: Sequence[Any]) -> Sequence[str]:
        return needed(method, words)


def needed(method: str, words: Sequence[Any]) -> Sequence[str]:
    """The finalists that a question is about, which must be loaded."""
    if method == "round":
        return tuple(words[2])
    return (str(words[0]),) if method == "sanitize" else ()


class RemoteWorker:
    """A confirm worker whose process is on another machine; see `ConfirmWorker`."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._loaded: tuple[str, ...] = ()
        self._gated: dict[str, tuple[Candidate, int]] = {}

    @property
    def loaded(self) -> Sequence[str]:
        return self._loaded

    def surroundings(self) -> Surroundings:
        found: Surroundings = self._ask_again("surroundings")
        return found

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:
        self._remote.tell("expect", tuple(coming), asked_at)

    def gate_s(self, name: str, seed: int) -> float:
        return float(self._ask_again("gate_s", name, seed))

    def gate(self, name: str, candidate: Candidate, seed: int, thorough: bool) -> tuple[CaseError, ...]:
        found: tuple[CaseError, ...] = self._ask_again("gate", name, candidate, seed, thorough)
        self._gated[name] = candidate, seed
        return found

    def sanitize(self, name: str) -> str:
        return str(self._ask_again("sanitize", name))

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        from evo.cluster.remote import Lost

        try:
            found: Round = self._ask("round", protocol, seed, tuple(names))
        except Lost as lost:
            raise Crashed("its machine was lost", lost.message) from lost
        return found

    def skipped(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._ask_again("skipped")
        return found

    def kernels(self) -> Mapping[str, Sequence[str]]:
        found: Mapping[str, Sequence[str]] = self._ask_again("kernels")
        return found

    def close(self) -> None:
        self._loaded = ()
        self._remote.close()

    def _ask_again(self, method: str, *words: object) -> Any:
        """The answer, from another process where one is lost: what the question needs is loaded there."""
        from evo.cluster.remote import Lost

        for losses in range(1, LOSSES + 1):
            try:
                for name in needed(method, words):
                    if name not in self._loaded:
                        self._ask("gate", name, *self._gated[name], False)
                return self._ask(method, *words)
            except Lost as lost:
                if losses == LOSSES:
                    hint = "evo confirm STUDY --scheduler ADDRESS goes on"
                    raise MachineError(f"the confirm worker was lost {LOSSES} times: {lost}", hint) from lost
        raise AssertionError

    def _ask(self, method: str, *words: object) -> Any:
        from evo.cluster.remote import Lost

        try:
            answer = self._remote.ask(method, *words)
        except Lost:
            self._loaded = ()
            raise
        self._loaded = answer.loaded
        if answer.error is not None:
            raise answer.error
        return answer.value
