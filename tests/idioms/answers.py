"""What each idiom computes of 1024 words x (uint64, each below 2^31): words (mod 2^32) or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

Words = Any
"""An array of uint64."""
M = np.uint64(0xFFFFFFFF)
AT = np.arange(1024)
LANE, T, BLOCK = AT % 32, AT % 128, AT // 128
U = np.uint64


def u(a: Any) -> Words:
    """Whole numbers mod 2^64."""
    return np.asarray(a).astype(np.int64).astype(np.uint64)


def s32(a: Words) -> Any:
    """The signed value of words."""
    return (a & M).astype(np.uint32).astype(np.int32).astype(np.int64)


def each(f: Callable[[int], int]) -> Callable[[Words], Words]:
    """An idiom in which every thread has to do with its own word only, in whole numbers of Python."""
    return lambda x: np.array([f(int(v)) & 0xFFFFFFFF for v in x], np.uint64)


def per(size: int, x: Any, f: Callable[[Any], Any]) -> Any:
    """For all threads of a group the same: what `f` says of its words, (groups, size) -> (groups,)."""
    return np.repeat(np.asarray(f(x.reshape(-1, size))).astype(np.uint64), size)


def popc(v: int) -> int:
    return (v & 0xFFFFFFFF).bit_count()


def same_lanes(x: Words) -> Words:
    key = (x & U(7)).reshape(32, 32)
    return (u(key[:, :, None] == key[:, None, :]) << u(np.arange(32))).sum(-1).reshape(-1)


def coalesced(x: Words) -> Words:
    chosen = (x % U(3) == 0).reshape(32, 32)
    rank = chosen.cumsum(1) - 1
    return u(np.where(chosen, chosen.sum(1)[:, None] * 100 + rank, 0).reshape(-1))


def shuffle_part(x: Words) -> Words:
    down = np.where(LANE % 8 < 7, x[np.minimum(AT + 1, 1023)], x)
    return np.where(LANE < 16, down, x[AT // 32 * 32 + 20])


def redux(x: Words) -> Words:
    v = x & U(0xFFFF)
    total, least, most = (per(32, v, partial(f.reduce, axis=1)) for f in (np.add, np.minimum, np.maximum))
    bits = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    every, some, odd = (per(32, v, partial(f.reduce, axis=1)) for f in bits)
    return total + least + most + (every ^ some ^ odd)


def transposed(x: Words) -> Words:
    g = x.reshape(32, 32)
    at = (np.arange(32)[:, None] + np.arange(32)[None]) % 32  # row `lane`, column r -> word of the row
    # mine[r][lane] = g[(lane + r) % 32]; lane reads mine[lane][r]
    return (g[:, at] * u(np.arange(32) + 1)).sum(-1).reshape(-1)


def loops(v: int) -> int:
    return sum(k if k & 1 else 2 * k for k in range(1, (v & 15) + 1))


def halves(x: Words) -> Words:
    v = (x & U(1023)).reshape(8, 128)
    counted = np.stack(
        [
            v.sum(1), -v.sum(1), np.minimum.reduce(np.c_[v], 1), v.max(1), np.bitwise_and.reduce(v, 1),
            np.bitwise_or.reduce(v, 1), np.bitwise_xor.reduce(v, 1), np.full(8, 128 % 100, np.uint64),
        ], 1,
    )  # fmt: skip
    return counted[BLOCK, T % 8].astype(np.uint64) & M


def scopes(x: Words) -> Words:
    v = (x & U(1023)).reshape(8, 128)
    total, zero = v.sum(1), np.zeros(8, np.uint64)
    both = np.bitwise_xor.reduce(v, 1)
    found = np.stack([total, v.max(1), np.bitwise_or.reduce(v, 1), total, total, total, both, zero], 1)
    return found[BLOCK, T % 8]


def carved(x: Words) -> Words:
    other = x[BLOCK * 128 + (T ^ 77)]
    return (other & U(255)) + other + (other >> U(8) & U(255))


def product(x: Words) -> Words:
    g = x.reshape(8, 128)
    a = np.concatenate([g & U(7)] * 2, 1).reshape(8, 16, 16)
    b = (g >> U(4) & U(7)).reshape(8, 8, 16)
    return np.einsum("bik,bjk->bij", a, b).reshape(-1)


def hints(x: Words) -> Words:
    four = x.reshape(-1, 4)
    return np.repeat(four.sum(1) + (four[:, 0] ^ four[:, 3]), 4) + U(4) * x


def votes(x: Words) -> Words:
    odd = per(32, x, lambda g: ((g & U(1)) << u(np.arange(32))).sum(1))
    return odd ^ per(32, x, lambda g: (g == 7).any(1) * 2) ^ U(8) ^ M


def stages(x: Words) -> Words:
    total = np.zeros(1024, np.uint64)
    for stage in range(8):
        total = (total * U(3) + x[stage * 128 + (T ^ 1)]) & M
    return total + u(BLOCK)


def ring(x: Words) -> Words:
    total = np.zeros(1024, np.uint64)
    for step in range(6):
        total = (total * U(5) + x[(BLOCK * 128 + step * 17 + (T + 1) % 32) % 1024]) & M
    return np.where(T < 32, U(1), total)


def pairs(x: Words) -> Words:
    return np.where(BLOCK % 2, x[np.maximum(AT - 128, 0)] + U(9), x)


def div(a: int, b: int) -> int:
    """As C divides: towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divisions(v: int) -> int:
    a, b, c = v - (1 << 30), (v >> 7 & 1023) - 511 or 3, (v >> 3 & 255) + 1
    return div(a, b) ^ (a - b * div(a, b)) ^ v // c ^ v % c ^ v // 7


def divisions_64(v: int) -> int:
    a, b = v * 0x123456789, v * 77 + 1
    c = -(a >> 3)
    return a // b ^ a % b ^ div(c, b) ^ (a * b >> 64) ^ (c - 1000003 * div(c, 1000003))


def bit_counts(v: int) -> int:
    v |= 1
    turned = int(f"{v:032b}"[::-1], 2)
    return (
        popc(v) + 64 * (32 - v.bit_length()) + 4096 + (turned >> 20) + popc(v)
        + (64 - v.bit_length()) * 3 + ((v >> 5 & 31) ^ (v << 3 & 0xFFFFFFFF))
    )  # fmt: skip


def permuted(a: int, b: int, selector: int) -> int:
    both = (a & 0xFFFFFFFF) | (b & 0xFFFFFFFF) << 32
    return sum((both >> 8 * (selector >> 4 * n & 7) & 255) << 8 * n for n in range(4))


def lanes_of(v: int, bits: int, signed: bool) -> list[int]:
    found = [v >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [one - (1 << bits) if signed and one >> bits - 1 else one for one in found]


def dots(v: int) -> int:
    first = sum(a * b for a, b in zip(lanes_of(v, 8, True), lanes_of(0x01FF0203, 8, True), strict=True)) + 5
    second = sum(a * b for a, b in zip(lanes_of(v, 8, False), (4, 3, 2, 1), strict=True)) + 1
    low = lanes_of(v, 16, True)
    return first + second + low[0] * 0x34 + low[1] * 0x12 + 2


def joined(values: list[int], bits: int) -> int:
    return sum((one & (1 << bits) - 1) << bits * n for n, one in enumerate(values))


def bytes_at_once(v: int) -> int:
    eight = lanes_of(v, 8, False)

    def of(f: Callable[[int, int], int], other: int) -> int:
        return joined([f(a, b) for a, b in zip(eight, lanes_of(other, 8, False), strict=True)], 8)

    above = of(lambda a, b: 255 * (a > b), 0x20202020)
    return of(lambda a, b: a + b, 0x01F00210) ^ above


def local_array(v: int) -> int:
    at, total = v & 15, 0
    for _ in range(40):
        total += v >> at & 255
        at = at + (v >> at) & 15
    return total


def swapped(v: int) -> int:
    return (v << 16 | v >> 16) & 0xFFFFFFFF


def depth(v: int, n: int) -> int:
    return v + depth(v * 5 + n, n - 1) * 3 if n else v


def switched(v: int) -> int:
    cases = [v * 3 + 1, v ^ 0x55, popc(v), v - 17, v >> 3, ~v, v * v, v << 5, 4]
    return cases[v % 9]


def tables(v: int) -> int:
    more = (11, 13, 17, 19)[v >> 4 & 3] + (4, 5)[v & 1]
    return (1, 10, 100, 1000)[v & 3] + (2, 3, 5, 7)[v >> 2 & 3] + more


def small_types(v: int) -> int:
    c, s = lanes_of(v, 8, True)[0], lanes_of(v >> 3, 16, True)[0]
    return c * s + (v >> 16 & 255) + lanes_of(s >> 9 & 255, 8, True)[0]


def conversions(x: Words) -> Words:
    a = np.float32(x.astype(np.float32) * np.float32(1e-4)).astype(np.float64) - 50000.0
    # the compiler fuses the product and the difference
    a = (x.astype(np.float32).astype(np.float64) * float(np.float32(1e-4)) - 50000.0).astype(np.float32)
    wide = a.astype(np.float64)
    kept = u(np.rint(wide)) ^ u(np.floor(wide)) ^ u(np.clip(np.trunc(wide), 0, 2**32 - 1))
    with np.errstate(over="ignore"):
        half = u((a / np.float32(64)).astype(np.float16).view(np.uint16))
    return kept ^ half ^ u(a.view(np.uint32)) ^ u(np.rint(wide * 1e3))


def carries(v: int) -> int:
    a, b = v << 1 & 0xFFFFFFFF, ~v & 0xFFFFFFFF
    total = a + b
    wide = v * 0xFEDCBA98
    products = (v * v >> 32) ^ (
        lanes_of(v, 32, False)[0] & 0xFFFFFF if v & 0x800000 == 0 else (v & 0xFFFFFF) - (1 << 24)
    ) * 3
    return total ^ (a + (total >> 32)) ^ (wide >> 32) ^ products ^ (abs(5 - (v >> 1)) + 1)


def groups_in_a_block(x: Words) -> Words:
    found = []
    for warp in (x & U(1023)).reshape(-1, 32).astype(np.int64):
        odd = [lane for lane in range(32) if warp[lane] & 1]
        for lane in range(32):
            first, t = lane // 16 * 16, lane % 16
            v = warp[first : first + 16]
            same = [k for k in range(16) if v[k] % 3 == v[t] % 3]
            words = v.sum() + 3 * v.max() + 5 * v[:t].sum() + 7 * np.bitwise_xor.reduce(v[: t + 1])
            if v[t] & 1:
                words += len(odd) * 11 + odd.index(lane) * 13 + np.bitwise_xor.reduce(warp[odd])
            found.append(words + len(same) * 17 + v[same[0]] + (v == 7).any() + v[t ^ 5])
    return np.array(found, np.uint64)


WORDS: Mapping[str, Callable[[Words], Words]] = {
    "shuffle_reduction": lambda x: per(32, x & U(1023), lambda g: g.sum(1)),
    "shuffle_scan": lambda x: (x & U(1023)).reshape(32, 32).cumsum(1).reshape(-1),
    "shuffle_64": lambda x: M + u(LANE) + x * U(0),
    "shuffle_part": shuffle_part,
    "block_reduction": lambda x: per(128, x & U(1023), lambda g: g.sum(1)),
    "block_scan": lambda x: (x & U(1023)).reshape(8, 128).cumsum(1).reshape(-1),
    "block_votes": lambda x: per(128, x & U(1), lambda g: g.sum(1) + U(1000) + U(2000) * g.max(1)),
    "cooperative_tile": lambda x: per(8, x & U(1023), lambda g: g.sum(1)) + u(T % 8 + T // 8),
    "cooperative_coalesced": coalesced,
    "votes": votes,
    "matches": lambda x: same_lanes(x) ^ U(1),
    "redux": redux,
    "elect": lambda x: x * U(0) + U(1),
    "syncwarp_transpose": transposed,
    "divergent_loops": lambda x: each(loops)(x)[AT ^ 1],
    "named_barriers": lambda x: np.where(T < 64, x, x[np.maximum(AT - 64, 0)] + U(1)),
    "volatile_flag": lambda x: np.where(T < 32, x, x[BLOCK * 128 + LANE] * U(3)),
    "shared_atomics": halves,
    "atomic_scopes": scopes,
    "atomic_compare_and_swap": lambda x: per(128, x & U(0xFFFF), lambda g: g.max(1) * U(2) + U(5)),
    "carved_shared_memory": carved,
    "ldmatrix_mma": product,
    "stmatrix": lambda x: x,
    "prefetch_and_hints": hints,
    "sleep_and_dependents": lambda x: x + U(1),
    "setmaxnreg": lambda x: x ^ U(5),
    "divisions": each(divisions),
    "divisions_64": each(divisions_64),
    "bit_counts": each(bit_counts),
    "byte_permutes": each(lambda v: permuted(v, ~v, 0x3715) ^ permuted(v, 7, v & 0x7777)),
    "funnel_shifts": each(
        lambda v: (((~v & 0xFFFFFFFF) << 32 | v) << (v & 31) >> 32) ^ ((99 << 32 | v) >> 7) ^ 1
    ),
    "dot_products_of_bytes": each(dots),
    "bytes_at_once": each(bytes_at_once),
    "local_array": each(local_array),
    "function_pointers": each(lambda v: (v * 3, swapped(v), ~v)[v % 3] + swapped(5)),
    "recursion": each(lambda v: depth(v & 255, v % 11)),
    "virtual_functions": each(lambda v: v & 1023 if v & 1 else (v & 1023) ** 2),
    "switch_table": each(switched),
    "tables": each(tables),
    "assertions": lambda x: x + U(2),
    "vectors": lambda x: x.reshape(-1, 2).sum(1)[AT // 4 * 2 + AT % 2],
    "small_types": each(small_types),
    "conversions": conversions,
    "carries": each(carries),
    "async_copies": stages,
    "async_copies_on_a_barrier": lambda x: x[BLOCK * 128 + 127 - T],
    "producer_and_consumers": ring,
    "bulk_load": lambda x: x[BLOCK * 128 + (T ^ 9)],
    "cluster_reads_its_neighbour": lambda x: x[AT ^ 128] + U(3),
    "cluster_stores_asynchronously": lambda x: x[AT ^ 128] ^ U(12),
    "last_block_reduction": lambda x: u(np.full(1024, int((x & U(1023)).sum()))) + u(BLOCK),
    "chained_blocks": lambda x: x + u(3 * BLOCK),
    "acquire_and_release": pairs,
    "grid_sync": lambda x: x[1023 - AT] + U(9),
    "grid_arrives_and_waits": lambda x: x * U(3) + (x & U(255))[(AT + 128) % 1024],
    "grid_reduction": lambda x: u(np.full(1024, int((x & U(1023)).sum()))) + AT.astype(np.uint64),
    "grid_without_sync": lambda x: x ^ u(BLOCK),
    "groups_in_a_block": groups_in_a_block,
    "group_copies": lambda x: x[BLOCK * 128 + 127 - T],
    "cluster_reduces": lambda x: per(256, x, lambda g: (g & U(255)).sum(1)) + u(AT % 256),
    "bulk_store": lambda x: x * U(5) + U(1),
    "bulk_store_by_warps": lambda x: x + U(1),
    "bulk_adds": lambda x: (x & U(255)) + U(1),
    "swap_adds_doubles": lambda x: per(128, x, lambda g: (g & U(255)).sum(1)),
    "swap_max_of_floats": lambda x: u(np.full(1024, int((x & U(65535)).max()))) + u(AT),
    "reductions_without_result": lambda x: per(128, x, lambda g: (g & U(15)).sum(1) + (g & U(255)).max(1)),
}
"""An idiom -> the words that it computes."""


def sines(x: Words) -> Any:
    big = (x & U(0xFFFFF)).astype(np.float64)
    small = (x.astype(np.float32) * np.float32(1e-3)).astype(np.float64)
    turns = (x % U(7)).astype(np.float64) / 4
    return (
        2
        + np.sin(big)
        + np.cos(big)
        + np.sin(small)
        + np.cos((x & U(255)).astype(np.float64))
        + np.sin(np.pi * turns)
    )


def rotary(x: Words) -> Any:
    power = np.float32(10000.0) ** (-(T % 32 // 2).astype(np.float32) / np.float32(16))
    angle = ((AT // 32).astype(np.float32) * power.astype(np.float32)).astype(np.float64)
    a, b = (x & U(255)).astype(np.float64), (x & U(255)).astype(np.float64)[AT ^ 1]
    return 500 + a * np.cos(angle) + np.where(AT & 1, b, -b) * np.sin(angle)


def powers(x: Words) -> Any:
    a = 1 + (x & U(63)).astype(np.float64)
    erf = np.vectorize(__import__("math").erf)(a / 64)
    sums = a ** float(np.float32(1.7)) + np.exp(a / 32) + np.log(a) + erf + np.tanh(a / 8) + a**-0.5
    return sums + np.cbrt(a) + np.exp2(a / 16) + np.log1p(a) + np.arctan2(a, 3)


def atomic_floats(x: Words) -> Any:
    seven = per(128, x & U(7), lambda g: g.sum(1)) * U(2)
    rest = per(128, x, lambda g: (g & U(3)).sum(1) + U(256) + (g & U(1)).sum(1))
    return np.where(T & 1, seven, rest).astype(np.float64)


def half2(x: Words) -> Any:
    a, b = (x & U(15)).astype(np.float64), (x >> U(4) & U(15)).astype(np.float64)
    return a * 3 + a + 9 + 64 * np.maximum(b * -2 + b + 4, b) + 4


def bf162(x: Words) -> Any:
    a, b = (x & U(15)).astype(np.float64), (x >> U(4) & U(7)).astype(np.float64)
    return a * 3 + a - 3 + 64 * np.minimum(b * -2 + b + 2, -2) + (a > b)


def doubles(x: Words) -> Any:
    a = 1 + (x & U(1023)).astype(np.float64)
    b = a * a + 0.5
    return np.sqrt(b) + np.floor(b / a) + np.rint(a / 3) + np.sin(a) + 2 + a**0.25 + np.exp(-a / 512)


FLOATS: Mapping[str, Callable[[Words], Any]] = {
    "sines": sines,
    "rotary": rotary,
    "powers": powers,
    "doubles": doubles,
    "atomic_floats": atomic_floats,
    "half2_arithmetic": half2,
    "bf162_arithmetic": bf162,
}
"""An idiom -> the numbers that it computes."""
