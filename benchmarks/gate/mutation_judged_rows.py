"""Why a survivor of mutation testing is no other row kernel; mutation_judged.py says what counts."""

from __future__ import annotations

from benchmarks.gate.mutation_rule import Rule

UNROLLED = r"^for \(int i = 0; i < kAhead|^for \(; done"
"""The line that takes chunks of a row several at once, and the rest one by one."""
ROW_RULES = (
    Rule(
        "free choice",
        "when a second pass takes the squares: it is as right wherever the first one is",
        kind="^(scale|sign|last bit|operands swapped|branch|comparison|predicate)",
        before=r"^(mul\.f32 .*0f41000000|setp\.ltu\.f32|@%p\d+ bra)",
        text=r"kMostCancels|good \? rsqrtf",
    ),
    Rule(
        "same values",
        "whatever is not above 0 asks for the second pass",
        kind="^(scale|zero fill lost)$",
        before=r"^mov\.f32 .*0f00000000",
        text="kMostCancels",
    ),
    Rule(
        "rounding",
        "one operation rounds otherwise, or flushes a number below 2^-126",
        kind="^(rounding|flushed or not|last bit)$",
    ),
    Rule(
        "free choice",
        "the code for any row serves whole chunks, too; and no row is longer than what the threads hold",
        kind="^(comparison|predicate|bound|mask off by one bit|constant|branch)",
        text=r"columns % kVector == 0|kRoom;$|Rows::serves",
    ),
    Rule(
        "rounding",
        "the elements of a chunk in another order, all of which a sum or a maximum takes",
        kind="^vector reordered$",
        before=r"^ld\.(global|shared)\.v4",
        text=r"return \*from",
    ),
    Rule(
        "rounding",
        "lanes exchange in other pairs, which reach all lanes, too: the terms of a sum in another order",
        kind="^(lane|constant)$",
        text="__shfl_xor_sync",
    ),
    Rule(
        "rounding",
        "one of a thread's elements is up to half a unit of its type off in a sum",
        kind="^(constant|mask)",
        before=r"^and\.b32 .*, -65536$",
        after=r", -(65535|32768)$",
        text="high\\(u32 pair\\)",
    ),
    Rule(
        "unseen",
        "only what the first lanes of a warp have of a sum is read; or another lane has the same number",
        kind="^(shuffle of another kind|mask narrowed)$",
        before=r"^shfl\.sync\.bfly",
    ),
    Rule(
        "same values",
        "all lanes of a warp have the sum: any of them may tell it",
        text=r"^if \(lane == 0\) turn\[warp\]",
    ),
    Rule(
        "same values",
        "a number that is the same in all lanes",
        kind="^vote of another kind$",
        text="__all_sync",
    ),
    Rule(
        "same values",
        "a barrier of all threads under another number, which nobody uses",
        kind="^another barrier$",
        before=r"^bar\.sync \t0",
    ),
    Rule(
        "same values",
        "each CTA of two tells both, in either order",
        kind="^another CTA$",
        before=r"^mapa",
    ),
    Rule(
        "unseen",
        "that lane has no access there: it is the first thread's, or one of the first lanes'",
        kind="^one lane's access lost$",
        text=r"^loss\[row\]|kBytes <= 4|st\.shared::cluster|^return \*from",
    ),
    Rule(
        "same values",
        "a number that is never negative, or the same bits",
        kind="^signed for unsigned$",
    ),
    Rule(
        "unseen",
        "the upper half of a word, of which the lower one is stored",
        kind="^(fragment repeated|scale|zero fill lost|sign)",
        text=r"cvt\.rn\.bf16x2",
    ),
    Rule(
        "same values",
        "a row of -inf alone is NaN either way; elsewhere a row's maximum is finite",
        kind="^selection forced$",
        before=r"^selp\.f32 .*0f00000000",
        text=UNROLLED,
    ),
    Rule(
        "same values",
        "how many chunks are taken at once: the rest is taken one by one, in the same order",
        kind="^(maximum|bound|comparison|predicate|branch|constant|mask|operands)",
        before=r"^(max\.s32|setp|xor\.pred|and\.pred|or\.pred|not\.pred|@|bfi|and\.b32|add\.s32)",
        text=UNROLLED,
    ),
    Rule(
        "same values",
        "a loop of one pass: the threads take a CTA's part of a row at once",
        kind="^(maximum|bound|comparison|predicate|branch|constant|mask|scale|zero fill|offset|operands)",
        text=r"^for \(int column = begin|visit_piece\(stage",
    ),
    Rule(
        "same values",
        "there are as many CTAs, or clusters, as rows: none has a row beyond the last",
        kind="^(predicate|comparison|bound|branch)",
        text=r"row >= rows|row < rows",
    ),
    Rule(
        "same values",
        "columns, and where a thread begins, are multiples of a chunk",
        kind="^(bound off by one|comparison shifted|constant)$",
        text=r"first \+ more\(i\) < columns|const int count = max\(0",
    ),
    Rule(
        "same values",
        "bits of an address that are zero",
        kind="^mask off by one bit$",
        before=r"^and\.b64",
        text=r"lane % kStates",
    ),
    Rule(
        "same values",
        "a logarithm's code for what a sum of weights is not: 0, below 2^-126 or infinite",
        kind="^(scale|bound|term dropped|comparison|selection|sign|last bit|branch|predicate)",
        text=r"logf\(state",
    ),
)
"""Written over the list of survivors; new ones are read and added."""
