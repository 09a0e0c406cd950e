"""O = softmax(scale · Q Kᵀ [causal]) V with scale = 1/√D.

Q, K, V, O: (B, H, L, D), contiguous, fp16 or bf16, fp32 accumulation expected. Causal: query i sees the
keys 0..i. A row is one query of one head: D elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import Baseline, BufferSpec, Families, Flag, Pieces, Relation, Task, Tolerance, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_baselines = load_module(Path(__file__).with_name("baselines.py"))
_call = load_module(Path(__file__).with_name("call.py"))
_families = load_module(Path(__file__).with_name("families.py"))
_recorded = load_module(Path(__file__).with_name("recorded.py"))
_lengths = load_module(Path(__file__).with_name("lengths.py"))
_problems = load_module(Path(__file__).with_name("problems.py"))
_spike = load_module(Path(__file__).with_name("spike.py"))
_timing = load_module(Path(__file__).with_name("timing_inputs.py"))

REFERENCE_BYTES = 1 << 28
"""Scores that the fp64 reference holds at once, bytes."""
JUDGED_WHOLE_FLOP = 1e10
"""Up to so much work all rows are compared; references of all rows of (1, 16, 16384, 128) are 200 times as
much, in fp64 and again in fp32."""
LEAST_EXPONENT = -87.0
"""On a CPU the honest computation takes no exponential below that of this, 1.6e-38: one that is denormal or
zero in fp32 takes twenty times as long. A result moves by less than 1e-35 of V. What a mask hides is 0."""


class Queries(Pieces):
    """Pieces are queries, of all heads. Keys and values belong to all of them, and with the part goes which
    queries they are: `rows`, (n,)."""

    def parts(self, tensors: Mapping[str, Tensor], which: Tensor) -> dict[str, Tensor]:
        return super().parts(tensors, which) | ({"rows": which} if "q" in tensors else {})


QUERIES = Queries("L", {"q": 2, "o": 2})


class Attention(Task):
    name = "attention"
    problems: Mapping[str, tuple[Problem, ...]] = _problems.PROBLEMS
    sizes = ("B", "H", "L", "D")
    dtypes = ("fp16", "bf16")
    flags: Mapping[str, Flag] = {"causal": Flag(meaning="A query sees no later keys.")}
    families = Families(
        plain="normal",
        sharp="peaky",
        even="offset_v",
        lone="spike",
        large="large",
        tiny="tiny",
        growing="ascending",
        masked="large_logits",  # a padding key, whose score is 0, outweighs keys with scores of -80
        others=("ascending", "large_logits", "equal_keys", "huge_end", "outgrown"),
    )
    tolerance = Tolerance(row_factor=1.6)  # weights that are cut off instead of rounded are at 1.75
    ranges: Mapping[str, Mapping[str, tuple[float, float]]] = _families.RANGES
    timing_inputs: Mapping[str, str] = _timing.TIMING_INPUTS
    captures = _recorded.CAPTURES
    baseline_groups: Mapping[str, tuple[str, ...]] = {"SDPA": tuple(_baselines.BACKENDS)}
    packages = _baselines.DISTRIBUTIONS

    def validate(self, problem: Problem) -> None:
        if problem["D"] not in _call.HEAD_DIMS:
            hint = f"B,H,L,D as in 1,8,512,64, with D one of {', '.join(map(str, _call.HEAD_DIMS))}"
            raise UsageError(f"unsupported head dimension: {problem['D']}", hint)

    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        shape = tuple(problem.sizes.values())
        inputs = tuple(BufferSpec(name, shape, problem.dtype, "in") for name in "qkv")
        return (*inputs, BufferSpec("o", shape, problem.dtype, "out"))

    def flop(self, problem: Problem) -> int:
        """Two products of 2·D a visible (query, key) pair; causal masks count what is visible."""
        length = problem["L"]
        pairs = length * (length + 1) // 2 if problem["causal"] else length * length
        return int(4 * problem["B"] * problem["H"] * problem["D"] * pairs)

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """The families, and what each is for:

        normal        N(0, 1): the plain case
        peaky         scores of deviation 4: a few keys carry a row, so a lost key or a wrong scale shows
        ascending     scores grow along the keys, and the running maximum moves in every tile: to 96, where an
                      older maximum overflows, even in fp32; or slowly, and what came before still counts; of
                      a third of the queries they fall. Over three consecutive seeds each query does all three
        large_logits  scores near ±80, all of them far above 0 in some rows: exp without the maximum overflows
        offset_v      V around 4: outputs whose mean is not 0 show scale and normalisation errors
        equal_keys    all keys alike: every weight is exactly 1/n, the output the mean of the visible values
        huge_end      one key outweighs all the others, by little or by much: the last one, which decides the
                      row, or in every second head the first: what comes later still counts
        outgrown      one key of a row outgrows the others by 2^7 or nearly 2^16: the most that a maximum
                      which is not raised at once may leave to the storage type of the weights
        large         V up to 60000 (bf16: 1e30), of one sign in a column: sums in fp16 overflow, and results
                      that were clamped show. Every second query has a key of its own, and their product is
                      beyond 65504
        tiny          V around 2^-12 (bf16: 2^-40): results below the normal numbers of fp16 show what is
                      flushed to 0
        spike         each query has a key of its own, anywhere, whose score is 100 above all others: a
                      maximum that overlooks one key overflows, even in fp32. In each head it is another,
                      so that all heads of a problem together have many pairs of row and key. Causal:
                      for every second query it is the first hidden key, and a maximum that counts it
                      leaves nothing of the others.
                      All scores of every fourth query are below -LOWEST: no maximum may begin there

        In each family there are queries in which a padding key shows, whose score is 0: no length depends on
        luck for that.
        """
        import torch

        shape = tuple(problem.sizes.values())
        rng = torch.Generator(device=torch_device).manual_seed(seed)
        # in place, and all three at once: on a GPU each operation takes the host 8 µs
        drawn = torch.randn((3, *shape), generator=rng, device=torch_device)
        q, k, v = drawn.unbind()
        fixed = _families.constants(problem["L"], problem["D"], torch_device)
        if family == "offset_v":
            v.add_(4)
        elif family == "tiny":
            v.mul_(_families.TINY[dtype_named(problem.dtype).name])
        elif family == "equal_keys":
            k[:, :, 1:] = k[:, :, :1]
        elif family == "huge_end":
            _families.huge_end(q, k, fixed.u, fixed.far, seed)
        elif family == "spike":
            _spike.spike(problem, seed, q, k, fixed)
        elif family == "large":
            _families.large(problem, seed, q, k, v, fixed.away)
        elif family in _families.SHAPED:
            _families.SHAPED[family](q, k, fixed, seed)
        elif family not in ("normal", "outgrown"):
            raise UsageError(f"unknown input family: {family}", f"one of {', '.join(self.families.names)}")
        if family in ("peaky", "offset_v", "equal_keys", "huge_end", "tiny"):
            _families.show_padding(q, k, fixed.u, fixed.away)
        q, k, v = drawn.to(dtype_named(problem.dtype).torch).unbind()
        if family == "outgrown":
            _families.outgrown(problem, seed, q, k, v)
        return {"q": q, "k": k, "v": v}

    def measures(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, float]:
        found: dict[str, float] = _families.measures(problem, inputs)
        return found

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        found: dict[str, Tensor] = _timing.tensors(problem, name, seed, torch_device)
        return found

    def reference(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"o": _attention(problem, inputs, "float64")}

    def honest(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """fp32 scores and sums, P rounded to the storage type before the second product (as the Tensor Cores
        take it), P not yet normalised, one rounding at the end: what every flash kernel does, in one tile.

        P is relative to a point up to 1 (as a power of two) below the row's maximum, another for each row: in
        kernels that rescale lazily the largest weight is no exact 1 either, and its rounding shows in rows
        that one key carries (1.2 units of rounding instead of 0.75, measured on peaky inputs)."""
        return {"o": _attention(problem, inputs, "float32").to(dtype_named(problem.dtype).torch)}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:
        """ones           a mean of ones is one
        heads apart    what one head holds does not move a bit of another's output
        key order      (not causal) keys and values may come in any order
        causality      the last key and value are seen by the last query only: no other row moves by a bit
        hidden values  (causal) no later value moves a row by a bit, not even the largest of its type: its
                       weight is 0
        """
        found = [
            Relation("ones", lambda x: {**x, "v": x["v"] * 0 + 1}, lambda o: {"o": o["o"] * 0 + 1}),
            Relation("heads apart", _other_last_head, _all_but_last_head, exact=True),
        ]
        if problem["causal"]:
            found.append(Relation("causality", _other_last_key, _all_but_last_row, exact=True))
            found.append(Relation("hidden values", _largest_later_values, _first_half, exact=True))
        else:
            found.append(Relation("key order", _reversed_keys, dict))
        return tuple(found)

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        import torch

        found: dict[str, Baseline] = _baselines.quick(bool(problem["causal"]))
        small = problem.replace(B=1, H=1, L=min(problem["L"], 128))
        tensors = self.inputs(small, "normal", 0, torch_device)
        with torch.no_grad():
            found = {name: run for name, run in found.items() if _baselines.runs(run, tensors)}
        return found | (_baselines.patient(problem) if patient else {})

    def pieces(self, problem: Problem) -> Pieces | None:
        return QUERIES if self.flop(problem) > JUDGED_WHOLE_FLOP else None

    def share(self, problem: Problem, part: float) -> Problem:
        """Fewer heads: each is a problem of its own."""
        heads = problem["B"] * problem["H"]
        kept = max(1, min(heads, round(part * heads)))
        return problem if kept == heads else problem.replace(B=1, H=kept)

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _lengths.around_tiles(problem, tiles)
        return found

    def piece_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _lengths.many_heads(problem, tiles)
        return found

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _lengths.every_length(problem, tiles, far)
        return found

    def some_ragged(
        self, problem: Problem, tiles: Sequence[int], count: int, seed: int, deep: bool
    ) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _lengths.some_lengths(problem, tiles, count, seed, deep)
        return found


def _other_last_head(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    changed = {name: t.clone() for name, t in inputs.items()}
    for name, factor in (("q", -1), ("k", 2), ("v", -3)):
        changed[name][-1, -1] *= factor
    return changed


def _all_but_last_head(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    o = outputs["o"].clone()
    o[-1, -1] = math.nan
    return {"o": o}


def _other_last_key(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    changed = {name: t.clone() for name, t in inputs.items()}
    changed["k"][:, :, -1] *= -4
    changed["v"][:, :, -1] *= -100
    return changed


def _all_but_last_row(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _rows_before(outputs, -1)


def _rows_before(outputs: Mapping[str, Tensor], end: int) -> dict[str, Tensor]:
    o = outputs["o"].clone()
    o[:, :, end:] = math.nan
    return {"o": o}


def _half(length: int) -> int:
    """Not quite half of the keys: the next one lies in a tile that rows before it see."""
    return max(1, length // 2 - 3)


def _largest_later_values(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    import torch

    values = inputs["v"].clone()
    values[:, :, _half(values.shape[2]) :] = torch.finfo(values.dtype).max
    return {**inputs, "v": values}


def _first_half(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _rows_before(outputs, _half(outputs["o"].shape[2]))


def _reversed_keys(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {**inputs, "k": inputs["k"].flip(2), "v": inputs["v"].flip(2)}


def _attention(problem: Problem, inputs: Mapping[str, Tensor], precision: str) -> Tensor:
    """(B, H, L, D) in `precision`, computed over blocks of query rows so that the scores stay small. Of some
    queries alone, (B, H, n, D), if `inputs` says by `rows` which they are.

    In float64 this is the reference. In float32 P is rounded to the storage type on its way."""
    import torch

    kind, rounded = getattr(torch, precision), precision == "float32"
    q, k, v = (inputs[name].to(kind) for name in "qkv")
    length, heads, count = k.shape[2], problem["B"] * problem["H"], q.shape[2]
    queries = inputs.get("rows")
    rows = max(1, REFERENCE_BYTES // (8 * heads * length))
    blocks = []
    for top in range(0, count, rows):
        block = slice(top, min(top + rows, count))
        scores = (q[:, :, block] @ k.transpose(-1, -2)).mul_(1 / math.sqrt(problem["D"]))
        if problem["causal"]:
            keys = torch.arange(length, device=q.device)
            own = keys[block] if queries is None else queries[block]
            hidden = keys > own[:, None]
            scores.masked_fill_(hidden, -math.inf)
        highest = scores.amax(-1, keepdim=True)
        if rounded:
            below = _families.below(length, str(q.device))
            highest -= below[block] if queries is None else below[queries[block]]
        scores.sub_(highest)
        if rounded and not scores.is_cuda:
            scores.clamp_min_(LEAST_EXPONENT)
            if problem["causal"]:
                scores.masked_fill_(hidden, -math.inf)
        weights = scores.exp_()
        total = weights.sum(-1, keepdim=True)
        if rounded:
            weights = weights.to(dtype_named(problem.dtype).torch).float()
        blocks.append((weights @ v).div_(total))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 2)


TASK = Attention()
