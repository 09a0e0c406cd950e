"""Why a survivor of mutation testing is no other kernel, or which hole let it pass.

The rules were written over the list of survivors in results/mutation.json, each read with its CUDA line, and
those that were not plain from it with the PTX around them. They are arguments, no proofs; what backs them is
that no bit differed. The first rule that fits counts; what none fits is unnamed, and must be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """`kind` and `before` are searched for in the survivor's."""

    name: str
    kind: str
    before: str
    hole: bool = False
    text: str = ""
    """Searched for in the CUDA line that it came from."""


RULES = (
    Rule(
        "a last tile of queries taken for a whole one: only finalists meet such lengths",
        "predicate turned",
        r"^@%p4 bra",
        hole=True,
        text=r"first_query \+ kBM <= length &&",
    ),
    Rule(
        "lanes meet again: they exchange nothing there, or a barrier of the CTA follows",
        "synchronisation",
        r"^bar\.warp\.sync",
    ),
    Rule(
        "the same copies either way: all tiles are there where this is asked",
        "predicate|comparison",
        "",
        text=r"at\.count",
    ),
    Rule(
        "a maximum that overlooks a column in one branch, where no test has a key far above all others",
        "maximum",
        "",
        hole=True,
    ),
    Rule(
        "free to choose: when a maximum is raised lazily",
        "scale|comparison",
        r"^setp\.g[te]\.f32.*0f41000000",
    ),
    Rule(
        "free to choose: a constant added to all scores of a row",
        "scale",
        r"^mov\.f32 \t%f(344|335|498), 0f00000000",
    ),
    Rule(
        "start value: multiplied by exp2(-inf) in the first tile, or of a CTA without keys",
        "scale",
        r"^(mov\.f32|mul\.f32|add\.f32)",
    ),
    Rule("plus or minus zero: a term that is zero wherever the line runs", "sum made|term dropped", ""),
    Rule(
        "what stands in for padding has weight zero, or is a row that is not stored",
        "constant",
        r"^mov\.u32 .*, 0$",
    ),
    Rule(
        "the same in all lanes, or a maximum over the same four",
        "shuffle|constant",
        r"^(shfl|mov\.u32 .*, 2$)",
    ),
    Rule("a hint: a prefetch for nobody, or by everybody", "offset|predicate", r"prefetch|@%p2 bra"),
    Rule(
        "an mbarrier that nobody waits for at this shape", "", r"^mbarrier\.(init|arrive\.shared)|^@%p9 bra"
    ),
    Rule(
        "expect_tx beside its copy: the phase cannot end without its arrival",
        "synchronisation",
        r"^mbarrier\.arrive\.expect_tx",
    ),
    Rule(
        "a wgmma.fence for registers that nobody has touched since the one before",
        "synchronisation",
        r"^wgmma\.fence",
    ),
    Rule(
        "a wait that a stricter one follows before its data is read, or where nothing is in flight",
        "wait",
        "",
    ),
    Rule(
        "a wait earlier, or a barrier over an access to the thread's own",
        "synchronisation earlier",
        r"^(barrier\.cluster\.wait|bar\.sync)",
    ),
    Rule("bits that are zero, or that a later shift drops", "constant", r"^(and\.b32|shr\.|mul\.wide)"),
    Rule("a remainder that is 0 in the branch that takes it", "operands", r"^sub\.s32"),
    Rule(
        "a loop of one pass, or a tile or a prefetch more, whose keys are all hidden",
        "",
        r"^(add\.s32|shl\.b32|shr\.u32|setp\.(ge|gt|le|lt|eq)\.[us]32|@)",
        text=r"const int first|q_tile|tiles|tile\(|kThreads|word;|kShare|Seat|row\.start|key\(int"
        r"|wait_group|^$",
    ),
    Rule(
        "a mask where none is needed, or a threshold that rows and columns of one parity never meet",
        "",
        r"^(setp\.(gt|le|ge|lt)\.[us]32|@)",
    ),
    Rule(
        "elected or not: one lane of the warp does it either way, or a prefetch is done by the others",
        "comparison",
        r"^setp\.eq\.s32 \t%p(5|11),",
    ),
    Rule("bits that are zero, or that a later shift drops", "constant", r"^add\.s64 .*, 16384$"),
    Rule(
        "a mask where none is needed: the first of several tiles is never on the diagonal",
        "constant",
        r"^or\.b32 .*, 63$",
        text=r"kBN > length",
    ),
    Rule(
        "plus or minus zero: the maximum of one number less that number",
        "operands swapped",
        r"^sub\.f32",
        text=r"maxima\[i\] - top",
    ),
)


def name_of(survivor: Mapping[str, Any]) -> tuple[str, bool]:
    """What the survivor is, and whether it is a hole of the gate."""
    for rule in RULES:
        fits = re.search(rule.kind, survivor["kind"]) and re.search(rule.before, survivor["before"])
        if fits and re.search(rule.text, survivor["text"]):
            return rule.name, rule.hole
    return "unnamed", True
