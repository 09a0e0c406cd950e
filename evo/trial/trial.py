"""The values that travel between the stages: frozen, picklable, JSON-able, without behaviour of their own."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Literal

from evo.dtype import ScalarType
from evo.trial.times import Timing

Value = int | float | str | bool
"""What one hole of a template may hold."""

Point = Mapping[str, Value]
"""One filling of all holes: parameter name -> value. Treated as frozen."""


def canonical_json(value: object) -> str:
    """`value` (an object: its fields) as JSON, keys sorted, no spaces: equal values give equal text."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=vars)


def digest_of(*parts: object) -> str:
    """A content hash (32 hex digits of SHA-256) of strings, bytes or JSON-able values."""
    h = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else canonical_json(part).encode()
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()[:32]


class Outcome(StrEnum):
    """How a candidate's journey ended. TIMED and GREEN are the good ends (GREEN: correct, but not timed).
    UNPROVEN: nothing wrong was seen, but of some class less than half of the gate's cases ran."""

    TIMED = "TIMED"
    GREEN = "GREEN"
    RED = "RED"
    UNPROVEN = "UNPROVEN"
    INFEASIBLE = "INFEASIBLE"
    UNRENDERABLE = "UNRENDERABLE"
    UNCOMPILABLE = "UNCOMPILABLE"
    UNLAUNCHABLE = "UNLAUNCHABLE"
    HUNG = "HUNG"
    CRASHED = "CRASHED"

    @property
    def correct(self) -> bool:
        """Whether the gate said GREEN."""
        return self in (Outcome.TIMED, Outcome.GREEN)


@dataclass(frozen=True)
class Problem:
    """One instance of a task: `sizes` and `flags` by the names that the task declares, and the storage type
    `dtype` ("fp16", a name of evo.dtype)."""

    task: str
    sizes: Mapping[str, int]
    dtype: str
    flags: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.sizes[name] if name in self.sizes else self.flags[name]

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> str:
        """Canonical text, e.g. `attention B=1 H=8 L=512 D=64 causal=0 fp16`: the identity in the database."""
        named = [
            f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in {**self.sizes, **self.flags}.items()
        ]
        return " ".join([self.task, *named, self.dtype])

    @property
    def shape(self) -> str:
        """The sizes as `--shape` takes them: "1,8,512,64"."""
        return ",".join(str(size) for size in self.sizes.values())

    def replace(self, **changed: Value) -> Problem:
        """The same problem with some sizes or flags changed."""
        sizes = {k: int(changed.get(k, v)) for k, v in self.sizes.items()}
        flags = {k: changed.get(k, v) for k, v in self.flags.items()}
        return Problem(self.task, sizes, str(changed.get("dtype", self.dtype)), flags)


@dataclass(frozen=True)
class BufferArg:
    """A pointer to one of the task's buffers or to a workspace, by name."""

    buffer: str
    kind: Literal["buffer"] = "buffer"


@dataclass(frozen=True)
class ScalarArg:
    """A number passed by value."""

    value: int | float | bool
    type: ScalarType
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True)
class TensorMapArg:
    """A TMA tensor map (`const __grid_constant__ CUtensorMap`) over a buffer.

    `shape` and `box` are in elements, innermost first; `strides` in bytes, of dimensions 1.. (the
    innermost is dense); `swizzle` in bytes (0, 32, 64, 128). Elements outside `shape` read as zero.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    kind: Literal["tensor_map"] = "tensor_map"


Argument = BufferArg | ScalarArg | TensorMapArg


@dataclass(frozen=True)
class Constant:
    """A buffer that is copied, before each launch, into a `__constant__` variable of the module."""

    variable: str
    buffer: str


@dataclass(frozen=True)
class Workspace:
    """Global scratch memory that a launch needs besides the task's buffers. Its content before the launch
    is undefined (the gate poisons it), except where `zeroed`: zero before the first launch, and the kernel
    must leave it zero again (counters of a last-block reduction)."""

    name: str
    nbytes: int
    zeroed: bool = False


@dataclass(frozen=True)
class LaunchConfig:
    """Everything a device needs to launch an entry point, free of addresses, so that it can be stored."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    args: tuple[Argument, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    workspaces: tuple[Workspace, ...] = ()
    cooperative: bool = False
    """Whether all CTAs must be resident at once, and may wait for each other by `grid.sync()`."""
    constants: tuple[Constant, ...] = ()

    @property
    def threads(self) -> int:
        """Threads a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def to_json(self) -> str:
        return self._json

    @cached_property
    def _json(self) -> str:
        # left out where they say nothing: so texts are what they were before there were such fields
        later = ("cooperative", "constants")
        return canonical_json({k: v for k, v in vars(self).items() if v or k not in later})

    @classmethod
    def from_json(cls, text: str) -> LaunchConfig:
        raw = json.loads(text)
        kinds = {"buffer": BufferArg, "scalar": ScalarArg, "tensor_map": TensorMapArg}
        for arg in raw["args"]:
            for name in ("shape", "strides", "box"):
                if name in arg:
                    arg[name] = tuple(arg[name])
        return cls(
            grid=tuple(raw["grid"]),
            block=tuple(raw["block"]),
            smem_bytes=raw["smem_bytes"],
            args=tuple(kinds[a["kind"]](**a) for a in raw["args"]),
            cluster=tuple(raw["cluster"]),
            workspaces=tuple(Workspace(**w) for w in raw["workspaces"]),
            cooperative=raw.get("cooperative", False),
            constants=tuple(Constant(**c) for c in raw.get("constants", ())),
        )


@dataclass(frozen=True)
class Candidate:
    """Task + problem + template + point + rendered source + launch configuration.

    `source` is self-contained CUDA C++ with one `extern "C"` entry point named `entry`. `digest` identifies
    the candidate: equal digests are the same program launched in the same way.
    """

    problem: Problem
    template: str
    point: Point
    source: str
    entry: str
    launch: LaunchConfig

    @cached_property
    def digest(self) -> str:
        return digest_of(self.source, self.entry, self.launch.to_json(), self.problem.key)

    @cached_property
    def program(self) -> str:
        """Equal for candidates that are the same program, whatever its provenance says, launched alike on the
        same problem."""
        return digest_of(body_of(self.source), self.entry, self.launch.to_json(), self.problem.key)


@lru_cache(maxsize=8)
def body_of(source: str) -> str:
    """A rendered source without its provenance: equal bodies are the same program. Of the same source the
    same object, whose hash is known."""
    return source.partition("\n\n")[2]


def without_provenance(source: str) -> str:
    """A rendered source with the lines of its provenance empty: equal ones have the same lines, and compile
    to the same code. A source that has no provenance stays as it is."""
    return _PROVENANCE.sub("\n\n\n\n", source)


def line_of(source: str, file: str, number: int) -> int:
    """Which line of a rendered source, from 1, compilers call line `number` of `file` (candidate.cu, or what
    a `#line` says); 0 where they call none so."""
    found, at, name = 0, 0, "candidate.cu"
    for line, text in enumerate(source.splitlines(), 1):
        at += 1
        if (at, name) == (number, file):
            found = line
        if directive := _LINE.match(text):
            at, name = int(directive[1]) - 1, directive[2]
    return found


_LINE = re.compile(r'#line (\d+) "([^"]+)"$')
_PROVENANCE = re.compile(r"\A// evo [^\n]*\n// problem [^\n]*\n// point [^\n]*\n\n")


@dataclass(frozen=True)
class Resources:
    """What ptxas says of a kernel. `spill_bytes` counts stores + loads; bytes are a thread's or a CTA's."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    """A compiled candidate. `machine_code` is a hash of the entry point's instructions alone: equal for two
    points whose difference changes nothing. `compiler` names tool and version ("nvrtc 13.0.88"). `state`: the
    module-level variables that the kernel may write. `reads`: the clocks and places that it reads ("%smid").
    `cubin` or `ptx` is empty where it was not asked for."""

    cubin: bytes
    ptx: str
    entry: str
    arch: str
    compiler: str
    resources: Resources
    machine_code: str
    seconds: float
    state: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseError:
    """What the gate measured on one case: a problem, an input family and its seed, and the errors found."""

    problem: str
    family: str
    seed: int
    row_error: float
    limit: float

    @property
    def part_of_limit(self) -> float:
        """The error as a part of its limit; integers may have none, and their limit is 0."""
        if self.limit:
            return self.row_error / self.limit
        return math.inf if self.row_error else 0.0


@dataclass(frozen=True)
class Extent:
    """How much of the gate's plan ran. `cases`: by class, how many cases ran and how many were planned;
    `own_share`: the largest part (0 to 1) of the study's own problem that a case ran on; `left_out`: what did
    not run, and why."""

    cases: Mapping[str, tuple[int, int]]
    own_share: float
    left_out: tuple[str, ...] = ()

    @property
    def run(self) -> int:
        """Cases that ran."""
        return sum(run for run, _ in self.cases.values())

    @property
    def planned(self) -> int:
        """Cases that were planned."""
        return sum(planned for _, planned in self.cases.values())

    @property
    def missed(self) -> tuple[str, ...]:
        """Classes of which less than half of the cases ran."""
        return tuple(name for name, (run, planned) in self.cases.items() if 2 * run < planned)


@dataclass(frozen=True)
class Trial:
    """One candidate and how its journey ended. A time that was not measured is None, never 0, -1 or NaN.

    `reason` is a short phrase by which failures are counted; `detail` and `where` are for a person.
    `estimate_us` is the emulator's model of the time on `estimate_gpu`; it is no measurement.
    `evaluations`: how often it was evaluated, each time with other inputs; where the last one was RED, those
    before were GREEN. `counters` are numbers of a run. `extent`: how much of the gate's plan ran; None where
    that is not known. `reads`: the clocks and places ("%smid") that the kernel reads although its template
    does not declare them: such a kernel is ranked with a mark, and makes no champion.
    `gpu` is the id of the GPU that evaluated it first, "" where that is not known. Where a study is searched
    on several, its times were divided by `divisor`, so that they are those of the study's first GPU.
    `seconds` says where the time went: in the evaluator by stage (compile, load, gate, timing; idle: how long
    it had nothing to do before); elsewhere (strategy: the proposal; ahead: compiled before it came there).

    The store fills in the last five, which are no part of a comparison: the `study`, the `number` in it, when
    it was recorded (`created`), its `id` over all studies, and `same_as`: the number of the trial whose
    machine code, launch and hence result it shares (it did not run by itself).
    """

    candidate: Candidate
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    where: str = ""
    resources: Resources | None = None
    machine_code: str = ""
    compiler: str = ""
    errors: tuple[CaseError, ...] = ()
    timing: Timing | None = None
    estimate_us: float | None = None
    estimate_gpu: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    evaluations: int = 1
    extent: Extent | None = None
    reads: tuple[str, ...] = ()
    device: str = ""
    gpu: str = ""
    divisor: float = 1.0
    versions: Mapping[str, str] = field(default_factory=dict)
    study: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)
    same_as: int | None = field(default=None, compare=False)
    created: str = field(default="", compare=False)
    id: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """`study/number`."""
        return f"{self.study}/{self.number}"

    @property
    def score_us(self) -> float | None:
        """What a search minimises: the measured median, on the emulator the estimate; None unless correct."""
        if not self.outcome.correct:
            return None
        return self.timing.median_us if self.timing else self.estimate_us
