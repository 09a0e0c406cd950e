"""What can go wrong, as a tree. A person sees `error: <message>`, `hint: <hint>`; scripts see the exit code.

::

    EvoError                     exit
    ├── UsageError                 2   the request is wrong: a malformed value, an impossible combination
    │   ├── UnknownName            2   no such task, template, study, strategy, trial …
    │   └── BadTemplate            2   a template or a task file is broken (syntax, undeclared hole, bad rule)
    ├── MachineError               3   the machine lacks something: compiler, GPU, permission, disk space
    │   ├── NotEnoughMemory        3   a problem does not fit in the memory of the GPU, or of the host
    │   └── StoreError             3   the database cannot be opened, read or written
    ├── NothingFound               4   the search ended without a correct kernel
    └── CandidateError             -   one candidate failed; becomes a trial, never stops a search
        ├── Infeasible                 a rule of the space says no
        ├── Unrenderable               the template fails at this point
        ├── Uncompilable               nvcc or ptxas says no
        ├── Unlaunchable               the driver says no
        ├── Red                        wrong, racy, out of bounds
        ├── Unproven                   nothing wrong was seen, but too little of the gate's plan ran
        ├── Hung                       no answer in time
        └── Crashed                    the process or its CUDA context died

Anything else that is raised is a bug of evo (exit 1, with its traceback).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar

_PASSWORDS = (
    re.compile(r"://[^\s:/@]*:(?P<it>[^\s]+)@"),
    re.compile(r"^[^\s:/@]+:(?!//)(?P<it>[^\s]+)@"),
    re.compile(r"\b\w*(?:pass|pwd|secret|token)\w*=(?P<it>[^&\s'\"]+)", re.IGNORECASE),
)


def passwords_of(text: str) -> frozenset[str]:
    """What may be passwords in a URL, or in a text that has one: as they stand there, and decoded."""
    from urllib.parse import unquote, unquote_plus

    found = {match["it"] for pattern in _PASSWORDS for match in pattern.finditer(text)}
    return frozenset(found | {unquote(word) for word in found} | {unquote_plus(word) for word in found})


def without_passwords(text: str, known: Collection[str] = ()) -> str:
    """`text` with *** for each `known` password, and for what stands where a URL has one."""
    for word in sorted({*known, *passwords_of(text)}, key=len, reverse=True):
        alone = r"(?<!\w){}(?!\w)" if len(word) < 4 else "{}"  # a short one is a part of other words
        text = re.sub(alone.format(re.escape(word)), "***", text)
    return text


_KINDS = {
    "NoneType": "None", "str": "a text", "bytes": "bytes", "bool": "a truth value", "int": "a whole number",
    "float": "a number", "list": "a list", "tuple": "a tuple", "dict": "a dict", "set": "a set",
    "ndarray": "a NumPy array", "Tensor": "a torch tensor", "function": "a function", "type": "a class",
}  # fmt: skip
"""What a person calls the types that stand where they should not."""


def kind_of(value: object) -> str:
    """What `value` is, as a message says it: "a text", "a NumPy array"."""
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return _KINDS.get(name, f"{article} {name}")


class EvoError(Exception):
    """Base of every error that evo raises on purpose; `hint` says what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # where Python itself shows the error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.hint)


class UsageError(EvoError):
    """The request is wrong: a malformed value or an impossible combination."""

    exit_code = 2


class UnknownName(UsageError):
    """There is no task, template, study, strategy or trial of that name."""

    @classmethod
    def among(cls, kind: str, name: str, known: list[str]) -> UnknownName:
        """The error for `name`, with the `known` names of its `kind` (nearest first) as the hint."""
        import difflib

        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        listed = ", ".join(sorted(known)) or "none yet"
        hint = f"did you mean {near[0]}? " if near else ""
        return cls(f"unknown {kind}: {name}", f"{hint}known: {listed}")


class BadTemplate(UsageError):
    """A template or a task file is broken."""


class MachineError(EvoError):
    """The machine lacks something: a compiler, a GPU, a permission, disk space."""

    exit_code = 3


class NotEnoughMemory(MachineError):
    """A problem does not fit in memory. `number` is that of the candidate that met it, as the pool that
    evaluates knows it: others of the pool go on. None where it was no candidate."""

    number: int | None = None


class StoreError(MachineError):
    """The database cannot be opened, read or written."""


class NothingFound(EvoError):
    """The search ended without a single correct kernel."""

    exit_code = 4


class CandidateError(EvoError):
    """One candidate failed. `outcome` names the trial's outcome; `reason` is a short, countable phrase
    ("race", "out of bounds", "row error"); `where` says where (file line, thread, element), if known."""

    exit_code = 4
    outcome: ClassVar[str]

    def __init__(self, reason: str, detail: str = "", where: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.detail, self.where)


class Infeasible(CandidateError):
    """A rule of the space says no."""

    outcome = "INFEASIBLE"


class Unrenderable(CandidateError):
    """The template fails at this point: its text, a rule, or a function of its Python file."""

    outcome = "UNRENDERABLE"

    @classmethod
    def of(cls, error: BadTemplate) -> Unrenderable:
        """What a template raised, by its file and line; numbers, which vary by point, are not counted by."""
        found = re.match(r"(.+?:\d+): (.*)", error.message, re.DOTALL)
        where, what = (found[1], found[2]) if found else ("", error.message)
        place = re.split(r"[/\\]", where)[-1]
        counted = re.sub(r"\d+", "N", what.partition("\n")[0])
        return cls(": ".join(filter(None, (place, counted)))[:100], what, where)


class Uncompilable(CandidateError):
    """nvcc, NVRTC or ptxas says no."""

    outcome = "UNCOMPILABLE"


class Unlaunchable(CandidateError):
    """The driver (or the emulated machine) refuses to load or launch the kernel."""

    outcome = "UNLAUNCHABLE"


class Red(CandidateError):
    """The kernel ran and is wrong, racy, or touched what it must not. `errors` (evo.trial.CaseError) holds
    what the gate had measured until then, the failed case last."""

    outcome = "RED"

    def __init__(self, reason: str, detail: str = "", where: str = "", errors: tuple[Any, ...] = ()) -> None:
        super().__init__(reason, detail, where)
        self.errors = errors

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.detail, self.where, self.errors)


class Unproven(CandidateError):
    """Nothing wrong was seen, but of some class less than half of the cases ran. `errors`
    (evo.trial.CaseError) holds what was measured, `extent` (evo.trial.Extent) what ran."""

    outcome = "UNPROVEN"

    def __init__(
        self, reason: str, detail: str = "", where: str = "", errors: tuple[Any, ...] = (), extent: Any = None
    ) -> None:
        super().__init__(reason, detail, where)
        self.errors = errors
        self.extent = extent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.detail, self.where, self.errors, self.extent)


class Hung(CandidateError):
    """No answer before the deadline: an endless loop or a deadlock."""

    outcome = "HUNG"


class Crashed(CandidateError):
    """The process that ran the kernel, or its CUDA context, died."""

    outcome = "CRASHED"
