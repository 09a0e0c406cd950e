"""Where a failure of the gate belongs: added to what passes through.

A gate enters hundreds of these, so they are classes: generators would take it a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence

from evo.device import Device
from evo.errors import CandidateError, Red
from evo.gate.cases import Case
from evo.trial import CaseError


class Blame:
    """Adds the case, and the errors measured so far, to a failure that passes through."""

    __slots__ = ("_case", "_errors", "_launch")

    def __init__(self, case: Case, launch: str, errors: Sequence[CaseError]) -> None:
        self._case, self._launch, self._errors = case, launch, errors

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CandidateError):
            place = f"{self._case} {self._launch}"
            error.where = f"{place}: {error.where}" if error.where else place
            if isinstance(error, Red):
                error.errors = tuple(self._errors)


class Alive:
    """Where torch is the first to meet the error of a kernel that was still running, it is Crashed."""

    __slots__ = ("_blame", "_device")

    def __init__(self, device: Device, blame: Blame) -> None:
        self._device, self._blame = device, blame

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RuntimeError):
            with self._blame:
                self._device.finish()
