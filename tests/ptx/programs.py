"""What a conformance program is, and the builder for lane-wise instructions.

A program is one PTX module with the entry `k(in, out)`. Operands come from `in`, every instruction under test
stores its result in its own slice of `out`. The same program runs on a GPU (benchmarks/emulator/conformance.py) and on
the emulator; where no recording exists, slices with an exact `expected` are still judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache as once
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from evo.trial import Argument, BufferArg, LaunchConfig, TensorMapArg, digest_of
from ptx.operands import LANES, TYPES, pool, unsigned

Exact = tuple[npt.NDArray[np.unsignedinteger], frozenset[int]]
"""Exact answers, and the lanes in which PTX defines none."""

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class Slice:
    """Results of one instruction: `count` values of type `kind` at byte `offset` of `out`.

    `ulps`: 0 demands equal bits (any NaN equals any NaN), n > 0 allows n units in the last place, `absolute` and
    `relative` are for instructions whose documented error is of that kind. `exact` gives the exact answers, if
    they are known; it takes long, and is asked only where nothing is recorded.
    """

    label: str
    kind: str
    offset: int
    count: int
    ulps: float = 0
    absolute: float = 0
    relative: float = 0
    exact: Callable[[], Exact] | None = field(default=None, compare=False)

    @cached_property
    def answers(self) -> Exact | None:
        return self.exact() if self.exact else None

    @property
    def expected(self) -> npt.NDArray[np.unsignedinteger] | None:
        """The exact answers, if they are known."""
        return self.answers[0] if self.answers else None


@dataclass(frozen=True)
class Program:
    """One module, its launch, its input and what its output means."""

    name: str
    ptx: str
    launch: LaunchConfig
    input: bytes
    out_nbytes: int
    slices: tuple[Slice, ...]

    @property
    def digest(self) -> str:
        """A recording answers for exactly this program."""
        return digest_of(self.ptx, self.launch.to_json(), self.input, self.out_nbytes)

    @property
    def opcodes(self) -> frozenset[str]:
        return frozenset(opcodes_of(self.ptx))


def opcodes_of(ptx: str) -> list[str]:
    """The opcodes, with all their suffixes, in a PTX text."""
    text = re.sub(r"//[^\n]*", "", ptx)
    text = re.sub(r"\{[^{};:]*\}", "", text)  # lists of registers
    found = []
    for statement in re.split(r"[;{}]", text):
        bare = re.sub(r"^\s*(?:[$\w]+\s*:(?!:)\s*)+", "", statement)
        match = re.match(r"\s*(?:@!?[%\w]+\s+)?([a-z][\w]*(?:(?:\.|::)[\w]+)*)", bare)
        if match:
            found.append(match[1])
    return found


def row_matches(pattern: str, opcode: str) -> bool:
    """Whether `opcode` ("fma.rn.f32") is of a table row ("fma .rn|rz ?ftz .f32")."""
    return _expression(pattern).fullmatch(opcode) is not None


@once
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_word(word) for word in pattern.split()))


def _word(word: str) -> str:
    optional = word.startswith("?")
    choices = [c.strip(".") for c in word.lstrip("?").split("|")]
    body = "|".join(re.escape(c) for c in choices)
    return rf"(?:\.?(?:{body})){'?' if optional else ''}"


Expected = Callable[..., int | None]


@dataclass(frozen=True)
class Op:
    """A lane-wise instruction: `text` is an opcode, or a template with {d} {a} {b} {c}; `to` the type of {d} ("pred"
    stores 0 or 1), `of` those of the sources. `exact` maps the sources' bits to the result's bits."""

    text: str
    to: str
    of: tuple[str, ...]
    exact: Expected | None = None
    ulps: float = 0
    absolute: float = 0
    relative: float = 0
    label: str = ""


def lanewise(name: str, ops: Sequence[Op]) -> Program:
    """A program that runs every op over all lanes of the operand pools."""
    inputs: dict[tuple[str, int], int] = {}
    raw = b""
    body, slices, out = [], [], 0
    for op in ops:
        for slot, kind in enumerate(op.of):
            if (kind, slot) not in inputs:
                raw += b"\0" * (-len(raw) % 16)
                inputs[kind, slot] = len(raw)
                raw += pool(kind, slot).tobytes()
        result = "u32" if op.to == "pred" else op.to
        nbytes = TYPES[result][2]
        body.append(_scope(op, [inputs[k, s] for s, k in enumerate(op.of)], out))
        label = op.label or (op.text if "{" not in op.text else op.text.split("{")[0].strip())
        exact = partial(_exact_lanes, op, nbytes) if op.exact else None
        slices.append(Slice(label, result, out, LANES, op.ulps, op.absolute, op.relative, exact))
        out += LANES * nbytes
        out += -out % 16
    ptx = entry(
        "\n".join(
            [
                ".reg .b32 %c, %t, %n; .reg .b64 %i, %in, %out;",
                "ld.param.u64 %in, [in]; ld.param.u64 %out, [out];",
                "cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;",
                "mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;",
                "mad.lo.u32 %t, %c, %n, %t; cvt.u64.u32 %i, %t;",
                *body,
            ]
        )
    )
    launch = LaunchConfig((LANES // 128, 1, 1), (128, 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    return Program(name, ptx, launch, raw, out, tuple(slices))


def _exact_lanes(op: Op, nbytes: int) -> Exact:
    assert op.exact
    mask = (1 << 8 * nbytes) - 1
    lanes = zip(*[pool(kind, slot).tolist() for slot, kind in enumerate(op.of)], strict=True)
    answers = [op.exact(*lane) for lane in lanes]
    undefined = frozenset(i for i, x in enumerate(answers) if x is None)
    return np.array([(x or 0) & mask for x in answers], dtype=unsigned(nbytes)), undefined


def _closed(expected: npt.NDArray[np.unsignedinteger] | None) -> Callable[[], Exact] | None:
    """Answers for all lanes that are known already."""
    return None if expected is None else lambda: (expected, frozenset())


def entry(
    body: str, params: str = ".param .u64 in, .param .u64 out", before: str = "", attributes: str = ""
) -> str:
    """A module with the entry `k` around `body`."""
    return f"{HEADER}{before}.visible .entry k({params}) {attributes}\n{{\n{body}\nret;\n}}\n"


def _scope(op: Op, sources: Sequence[int], out: int) -> str:
    names = "abcdefgh"[: len(sources)].replace("d", "")
    result = "u32" if op.to == "pred" else op.to
    register, store, nbytes = TYPES[result]
    lines = ["{", f"{'.reg .pred p_d; ' if op.to == 'pred' else ''}.reg {register} r_d; .reg .b64 at;"]
    for letter, kind, offset in zip(names, op.of, sources, strict=True):
        reg, load, size = TYPES[kind]
        lines.append(
            f".reg {reg} r_{letter}; mad.lo.u64 at, %i, {size}, %in; ld.global{load} r_{letter}, [at+{offset}];"
        )
    destination = "p_d" if op.to == "pred" else "r_d"
    text = op.text if "{" in op.text else op.text + " " + ", ".join(f"{{{n}}}" for n in "d" + names) + ";"
    lines.append(text.format(d=destination, **{n: f"r_{n}" for n in names}))
    if op.to == "pred":
        lines.append("selp.u32 r_d, 1, 0, p_d;")
    lines.append(f"mad.lo.u64 at, %i, {nbytes}, %out; st.global{store} [at+{out}], r_d;")
    return "\n".join([*lines, "}"])


def disagreements(part: Slice, got: bytes, wanted: npt.NDArray[np.unsignedinteger]) -> list[int]:
    """Lanes whose result is outside of what `part` allows, `got` being the program's whole output. Where
    `wanted` is `part.expected`, lanes that PTX leaves open are not judged."""
    nbytes = TYPES[part.kind][2]
    mine = np.frombuffer(got, unsigned(nbytes), part.count, part.offset)
    exact = mine == wanted
    if part.kind in ("f32", "f64", "f16", "bf16", "tf32"):
        x, y = as_float(part.kind, mine), as_float(part.kind, wanted)
        exact |= np.isnan(x) & np.isnan(y)
        if part.ulps or part.absolute or part.relative:
            with np.errstate(all="ignore"):
                difference = np.abs(x.astype(np.longdouble) - y.astype(np.longdouble))
                size = np.abs(y.astype(np.longdouble))
                allowed = np.maximum(part.absolute, part.relative * size)
                allowed = np.maximum(allowed, part.ulps * _ulp(part.kind, y))
                exact |= np.isfinite(x) & np.isfinite(y) & (difference <= allowed)
    elif part.kind in ("f16x2", "bf16x2"):
        half = part.kind.removesuffix("x2")
        x, y = as_float(half, mine.view(np.uint16)), as_float(half, wanted.view(np.uint16))
        with np.errstate(all="ignore"):
            same = (mine.view(np.uint16) == wanted.view(np.uint16)) | (np.isnan(x) & np.isnan(y))
            same |= np.abs(x - y) <= part.ulps * _ulp(half, y)
        exact = same.reshape(-1, 2).all(axis=1)
    judged_by_answers = "answers" in part.__dict__ and wanted is part.expected
    skipped = part.answers[1] if judged_by_answers and part.answers else frozenset()
    return [int(i) for i in np.flatnonzero(~exact) if int(i) not in skipped]


def as_float(kind: str, bits: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.floating]:
    """Bit patterns of a scalar float type as numbers."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view({"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64}[kind])


def _ulp(kind: str, y: npt.NDArray[np.floating]) -> npt.NDArray[np.longdouble]:
    mantissa, lowest = {
        "f16": (10, -24),
        "bf16": (7, -133),
        "f32": (23, -149),
        "tf32": (10, -136),
        "f64": (52, -1074),
    }[kind]
    _, exponent = np.frexp(np.abs(y.astype(np.longdouble)))
    unit: npt.NDArray[np.longdouble] = np.ldexp(np.longdouble(1), np.maximum(exponent - 1 - mantissa, lowest))
    return unit


def launch_of(
    ctas: int, threads: int, smem: int = 0, cluster: int = 1, maps: Sequence[TensorMapArg] = ()
) -> LaunchConfig:
    """A one-dimensional launch of `k(in, out, maps…)`."""
    args: tuple[Argument, ...] = (BufferArg("in"), BufferArg("out"), *maps)
    return LaunchConfig((ctas, 1, 1), (threads, 1, 1), smem, args, (cluster, 1, 1))


class Writer:
    """A hand-written program, statement by statement: `put` stores a register of every thread as one slice.

    Ready to use: %t (thread in the CTA), %c (CTA), %g (thread in the grid), %in and %out as global addresses, and
    scratch registers %r0.. (b32), %d0.. (b64), %h0.. (b16), %f0.. (f32), %e0.. (f64), %p0.. (pred).
    """

    def __init__(
        self, name: str, launch: LaunchConfig, raw: bytes = b"", before: str = "", params: str = ""
    ) -> None:
        self.name, self.launch, self.raw, self.before, self.params = name, launch, raw, before, params
        self.threads = launch.threads * launch.grid[0]
        self.body: list[str] = []
        self.slices: list[Slice] = []
        self.nbytes = 0

    def run(self, text: str) -> None:
        self.body.append(text)

    def put(
        self,
        label: str,
        register: str,
        kind: str = "b32",
        exact: Callable[[int], int] | Sequence[int] | None = None,
    ) -> None:
        """Store `register` of every thread; `exact` maps the thread's number in the grid to its bits,
        or lists them."""
        _, store, nbytes = TYPES[kind]
        mask = (1 << 8 * nbytes) - 1
        expected = None
        if exact is not None:
            values = [exact(i) for i in range(self.threads)] if callable(exact) else exact
            expected = np.array([value & mask for value in values], dtype=unsigned(nbytes))
        self.body.append(
            f"mad.wide.u32 %at, %g, {nbytes}, %out; st.global{store} [%at+{self.nbytes}], {register};"
        )
        self.slices.append(Slice(label, kind, self.nbytes, self.threads, exact=_closed(expected)))
        self.nbytes += -(-self.threads * nbytes // 16) * 16

    def reserve(self, label: str, kind: str, count: int, exact: Sequence[int] | None = None) -> int:
        """A slice that the program fills by itself; its offset in `out`."""
        nbytes = TYPES[kind][2]
        expected = None if exact is None else np.array(exact, dtype=unsigned(nbytes))
        offset = self.nbytes
        self.slices.append(Slice(label, kind, offset, count, exact=_closed(expected)))
        self.nbytes += -(-count * nbytes // 16) * 16
        return offset

    def program(self) -> Program:
        registers = (
            ".reg .b32 %t, %c, %g, %r<64>; .reg .b64 %in, %out, %at, %d<32>; .reg .b16 %h<16>; "
            ".reg .f32 %f<16>; .reg .f64 %e<8>; .reg .pred %p<8>;"
        )
        start = (
            "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; cvta.to.global.u64 %in, %in; "
            "cvta.to.global.u64 %out, %out;\nmov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %r0, %ntid.x; "
            "mad.lo.u32 %g, %c, %r0, %t;"
        )
        params = ".param .u64 in, .param .u64 out" + self.params
        ptx = entry("\n".join([registers, start, *self.body]), params, self.before)
        return Program(self.name, ptx, self.launch, self.raw, self.nbytes, tuple(self.slices))
