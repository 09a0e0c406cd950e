"""What a conformance program is, and the builder for lane-wise instructions.

A program is one PTX module with the entry `k(in, out)`. Operands come from `in`, every instruction under test
stores its result in its own slice of `out`. The same program runs on a GPU (benchmarks/emulator/conformance.py) and on
the emulator; where no recording exists, slices with an exact `expected` are still judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evo.trial import Argument, BufferArg, LaunchConfig, TensorMapArg, digest_of

LANES = 512
HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"

# type -> (register type, type of its load and store, bytes)
TYPES = {
    "s8": (".b16", ".s8", 1), "u8": (".b16", ".u8", 1), "s16": (".s16", ".s16", 2), "u16": (".u16", ".u16", 2),
    "b16": (".b16", ".b16", 2), "s32": (".s32", ".s32", 4), "u32": (".u32", ".u32", 4), "b32": (".b32", ".b32", 4),
    "s64": (".s64", ".s64", 8), "u64": (".u64", ".u64", 8), "b64": (".b64", ".b64", 8), "f16": (".b16", ".b16", 2),
    "bf16": (".b16", ".b16", 2), "f16x2": (".b32", ".b32", 4), "bf16x2": (".b32", ".b32", 4),
    "f32": (".f32", ".f32", 4), "f64": (".f64", ".f64", 8), "tf32": (".b32", ".b32", 4), "fp8x2": (".b16", ".b16", 2),
    # the same registers, other pools of operands
    "shift": (".u32", ".u32", 4), "byte": (".u32", ".u32", 4), "s16nz": (".s16", ".s16", 2),
    "u16nz": (".u16", ".u16", 2), "s32nz": (".s32", ".s32", 4), "u32nz": (".u32", ".u32", 4),
    "s64nz": (".s64", ".s64", 8), "u64nz": (".u64", ".u64", 8), "angle": (".f32", ".f32", 4),
    "moderate": (".f32", ".f32", 4),
}  # fmt: skip

FLOAT_EDGES = {
    "f16": [0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0400, 0x0001, 0x83FF, 0x3C01, 0x3800, 0x4248,
            0xC900, 0x6400],
    "bf16": [0, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0x0080, 0x0001, 0x807F, 0x3F81, 0x3F00, 0x4049,
             0xC120, 0x4780],
    "f32": [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 1,
            0x807FFFFF, 0x3F800001, 0x3F000000, 0x4B800001, 0xCF000000, 0x40490FDB],
    "f64": [0, 1 << 63, 0x3FF << 52, 0xBFF << 52, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, (0x7FF << 52) - 1, 1 << 52, 1,
            (1 << 63) | ((1 << 52) - 1), (0x3FF << 52) + 1, 0x3FE << 52, 0x433 << 52, 0xC1E << 52, 0x400921FB54442D18],
}  # fmt: skip


def random_bits(seed: str, count: int) -> npt.NDArray[np.uint64]:
    """The same 64-bit words on every machine and for ever (a raw bit stream, not a distribution)."""
    raw = np.random.PCG64(int(digest_of(seed)[:15], 16)).random_raw(count)
    return np.asarray(raw, dtype=np.uint64)


def unsigned(nbytes: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"u{nbytes}")


def pool(kind: str, slot: int, lanes: int = LANES) -> npt.NDArray[np.unsignedinteger]:
    """Operand values of a type for operand number `slot`: all pairs of 16 edge values meet in the first 256 lanes,
    the others are random."""
    _, _, nbytes = TYPES[kind]
    i = np.arange(lanes)
    pick = [i % 16, (i // 16) % 16, (i * 7 + i // 16) % 16][slot % 3]
    values = random_bits(f"{kind} {slot}", lanes)
    edges = np.array(_edges(kind), dtype=np.uint64)
    values = np.where(i < 256, edges[pick], _shaped(kind, values, i))
    out: npt.NDArray[np.unsignedinteger] = values.astype(unsigned(nbytes))
    if kind.endswith("nz"):
        out[out == 0] = 7
        if kind.startswith("s"):
            out[out == out.dtype.type(2 ** (8 * nbytes) - 1)] = 7  # min / -1 overflows
    return out


def _edges(kind: str) -> list[int]:
    base = kind.removesuffix("nz")
    if base in ("shift", "byte"):
        return [0, 1, 2, 4, 7, 8, 15, 16, 24, 30, 31, 32, 33, 63, 64, 255]
    if base in ("angle", "moderate"):  # within the range for which the approximations promise an error
        few = [0, 0.1, 1, -1, 0.5, -0.5, 2, -2, 3.140625, -3.140625, 1e-3, -1e-3, 1.5, -1.5, 0.75, 2.5]
        return [int(v) for v in np.array([v or 1e-6 for v in few], np.float32).view(np.uint32)]
    if base == "tf32":
        base = "f32"
    if base in ("f16x2", "bf16x2"):
        half = FLOAT_EDGES[base.removesuffix("x2")]
        return [low | half[(n * 5 + 3) % 16] << 16 for n, low in enumerate(half)]
    if base in FLOAT_EDGES:
        return FLOAT_EDGES[base]
    width = 8 * TYPES[kind][2]
    top = 1 << (width - 1)
    ints: list[int] = [0, 1, 2, 3, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA,
           0x0123456789ABCDEF, 0xFF, 1 << (width // 2), (1 << (width // 2)) - 1, 10]  # fmt: skip
    return [v & (2 * top - 1) for v in ints]


def _shaped(kind: str, raw: npt.NDArray[np.uint64], lane: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Random bits as they are in odd lanes; in even lanes, for floats, numbers of ordinary size."""
    unit = (raw >> np.uint64(11)).astype(np.float64) / 2**53 * 2 - 1
    if kind in ("shift", "byte"):
        return raw % np.uint64(80)
    if kind in ("angle", "moderate"):
        size = 3.0 if kind == "angle" else 20.0
        return (unit * size).astype(np.float32).view(np.uint32).astype(np.uint64)
    scale = unit * np.exp2((raw % np.uint64(8)).astype(np.float64) - 2)
    if kind in ("f32", "tf32"):
        tame = scale.astype(np.float32).view(np.uint32).astype(np.uint64)
    elif kind == "f64":
        tame = scale.view(np.uint64)
    elif kind in ("f16", "f16x2"):
        tame = scale.astype(np.float16).view(np.uint16).astype(np.uint64)
    elif kind in ("bf16", "bf16x2"):
        tame = (scale.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    else:
        return raw
    if kind.endswith("x2"):
        tame = tame | np.roll(tame, 3) << np.uint64(16)
    return np.where(lane % 2 == 0, tame, raw)


@dataclass(frozen=True)
class Slice:
    """Results of one instruction: `count` values of type `kind` at byte `offset` of `out`.

    `ulps`: 0 demands equal bits (any NaN equals any NaN), n > 0 allows n units in the last place, `absolute` and
    `relative` are for instructions whose documented error is of that kind. `expected` holds exact answers, if known, except for the lanes in `open`, where PTX defines none.
    """

    label: str
    kind: str
    offset: int
    count: int
    ulps: float = 0
    absolute: float = 0
    relative: float = 0
    expected: npt.NDArray[np.unsignedinteger] | None = field(default=None, compare=False)
    open: frozenset[int] = frozenset()


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
    words = pattern.split()
    regex = "".join(_word(word) for word in words)
    return re.fullmatch(regex, opcode) is not None


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
        expected, undefined = None, frozenset[int]()
        if op.exact:
            lanes = zip(*[pool(k, s).tolist() for s, k in enumerate(op.of)], strict=True)
            mask = (1 << 8 * nbytes) - 1
            answers = [op.exact(*lane) for lane in lanes]
            expected = np.array([(x or 0) & mask for x in answers], dtype=unsigned(nbytes))
            undefined = frozenset(i for i, x in enumerate(answers) if x is None)
        label = op.label or (op.text if "{" not in op.text else op.text.split("{")[0].strip())
        slices.append(
            Slice(label, result, out, LANES, op.ulps, op.absolute, op.relative, expected, undefined)
        )
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
    `wanted` is `part.expected`, open lanes are not judged."""
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
    skipped = part.open if wanted is part.expected else frozenset()
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
        self.slices.append(Slice(label, kind, self.nbytes, self.threads, expected=expected))
        self.nbytes += -(-self.threads * nbytes // 16) * 16

    def reserve(self, label: str, kind: str, count: int, exact: Sequence[int] | None = None) -> int:
        """A slice that the program fills by itself; its offset in `out`."""
        nbytes = TYPES[kind][2]
        expected = None if exact is None else np.array(exact, dtype=unsigned(nbytes))
        offset = self.nbytes
        self.slices.append(Slice(label, kind, offset, count, expected=expected))
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
