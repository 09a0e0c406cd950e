"""Operand values: of each type, all pairs of its edge cases, and random bits that are the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evo.trial import digest_of

LANES = 512

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
    half_width = 1 << (width // 2)
    ints = [0, 1, 2, 3, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2]
    ints += [0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0x0123456789ABCDEF, 0xFF, half_width, half_width - 1, 10]
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


WORDS = [int(w) & 0xFFFFFFFF for w in random_bits("words", 4096)]
RAW = np.array(WORDS, dtype=np.uint32).tobytes()
"""The same words, as the input of a program."""
