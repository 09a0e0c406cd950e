"""Why a survivor of mutation testing is no other kernel: the arguments, each read with the CUDA line and the
PTX around it.

A rule covers survivors by their kind, their statement, the CUDA line that it came from and their template.
Its `equal` says how they are equal:

    same values   whatever the inputs, the same bits leave the kernel
    unseen        other values, in rows, lanes or bytes that nothing reads
    order         what was deleted or moved is guaranteed by something else
    free choice   another value that is as right: a threshold, a start value
    rounding      a result may differ by no more than roundings of an honest kernel

An argument is no proof. So it counts only as long as what ran agrees: no launch with other bits, unless the
rule is of `free choice` or `rounding`, and then GREEN in the check for finalists at every seed that was
tried. The first rule that fits counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gate.mutation_judged_rows import ROW_RULES
from benchmarks.gate.mutation_rule import Rule
from evo.trial import Outcome

INEXACT = ("free choice", "rounding")

RULES = (
    Rule(
        "rounding",
        "one operation rounds otherwise, or flushes a number below 2^-126",
        kind="^(rounding|flushed or not|last bit)$",
    ),
    Rule(
        "free choice",
        "when a maximum is raised lazily: any growth that exp2 can hold serves",
        kind="^(scale|scale doubled|scale halved|sign|comparison shifted)$",
        before=r"^setp\.g[te]\.f32.*0f41000000",
    ),
    Rule(
        "free choice",
        "a start value of the shift: a constant added to all scores of a row leaves its weights",
        kind="^scale$",
        before=r"^mov\.f32 \t%f335, 0f00000000",
        template="^flash_mma$",
    ),
    Rule(
        "unseen",
        "a row that sees keys beyond the length lies beyond it, too, and is not stored",
        kind="^(predicate overlooked|bound doubled)$",
        before=r"^(and\.pred|min\.s32)",
        text="kBN > length|visible",
    ),
    Rule(
        "same values",
        "the first of several tiles is never on the diagonal, nor beyond the length",
        kind="^predicates joined otherwise$",
        text="kBN > length",
        template="split",
    ),
    Rule(
        "same values",
        "a number that is the same in all lanes",
        kind="^(lane|shuffle|mask narrowed)",
        before=r"^shfl\.sync\.idx",
    ),
    Rule(
        "unseen",
        "the leading stride of a descriptor whose tile has no piece that far away",
        kind="^constant",
        text=r"kBlockBytes >> 4\) << 16",
    ),
    Rule(
        "same values",
        "an index that is 0: there is one block for each part",
        kind="^constant",
        text=r"part\(\) >> 1",
    ),
    Rule(
        "same values",
        "a count of tiles that is below 0 is as good as 0: a loop of none",
        kind="^bound",
        text=r"max\(0, ",
    ),
    Rule(
        "same values",
        "the start value of a maximum, below every score: the first tile replaces it",
        kind="^scale",
        before="0f[F7]149F2CA",
    ),
    Rule(
        "same values",
        "a factor of what is zero in the first tile",
        kind="^scale",
        before=r"^mul\.f32 .*0f00000000",
        text=r"sum\[half\]",
    ),
    Rule(
        "same values",
        "a barrier of all threads under another number, which nobody uses at that time",
        kind="^another barrier$",
        before=r"^bar\.sync \t0",
    ),
    Rule(
        "unseen",
        "one thread issues the copy, and it is in another lane",
        kind="^one lane's access lost$",
        before=r"^cp\.async\.bulk",
    ),
    Rule(
        "order",
        "expect_tx beside its copy: the phase cannot end without its arrival",
        kind="^synchronisation (earlier|later)$",
        before=r"^mbarrier\.arrive\.expect_tx",
    ),
    Rule(
        "order",
        "the lanes exchange nothing there, or a barrier of the CTA follows",
        kind="^synchronisation",
        before=r"^bar\.warp\.sync",
    ),
    Rule(
        "unseen",
        "with this swizzle and width no piece of the tile lies a leading stride away",
        kind="^descriptor: leading bytes$",
    ),
    Rule(
        "same values",
        "address bits that are zero: the CTA has less shared memory",
        kind="^(mask off by one bit|constant)",
        before=r"^and\.b32 .*, 261120$",
    ),
    Rule(
        "same values",
        "the other lane of the same four, after the exchange with the neighbour",
        kind="^(lane|constant|shuffle of another kind)",
        before=r"^shfl\.sync\.bfly|^mov\.u32 .*, [12]$",
    ),
    Rule(
        "same values",
        "a mask where none is needed",
        kind="^(bound|comparison)",
        before=r"^setp\.(gt|le|ge|lt)\.[su]32",
        text="kBN > length",
    ),
    Rule(
        "same values",
        "a tile inside the matrix meets the mask, too, and all its keys pass every comparison",
        kind="^branch forced$",
        before=r"^@%p\d+ bra",
        text="kBN > length",
        after="^$",
        template="^flash_wgmma_split$",
    ),
    Rule(
        "same values",
        "half of a lane's rows are 16 w + g, g below 8, half 8 more: they never see so many keys of a tile",
        kind="^(bound|comparison)",
        before=r"^setp\.gt\.s32 \t%p\d+, (%r435, (24|121)|%r480, 41)$",
        template="^flash_wgmma",
    ),
    Rule(
        "same values",
        "the same half of a lane's rows: what they see ends at 16 k + g + 1 less twice the lane",
        kind="^comparison shifted$",
        before=r"^setp\.gt\.s32 \t%p\d+, %r1293, 9$",
        template="^flash_wgmma_split$",
    ),
    Rule(
        "same values",
        "a tile of keys and a warpgroup's rows both begin at multiples of 64",
        kind="^constant halved$",
        before=r"^or\.b32 .*, 63$",
        text="kBN > length",
        template="^flash_wgmma_split$",
    ),
    Rule(
        "same values",
        "all tiles are there in every length that this code serves",
        kind="^predicate",
        text=r"count\(",
    ),
    Rule(
        "same values",
        "a number that is never negative",
        kind="^signed for unsigned$",
    ),
    Rule(
        "same values",
        "any lane may give a number that is the same in all",
        kind="^(zero fill lost|constant)",
        text=r"__shfl_sync",
    ),
    Rule(
        "unseen",
        "stands in for a row beyond the length, which is not stored",
        kind="^(zero fill lost|constant)",
        before=r"^mov\.u32 .*, 0$",
    ),
    Rule(
        "order",
        "acquire of a CTA's own mbarrier: the bytes that complete it arrive in the CTA's own shared memory",
        kind="^(scope|order) weakened$",
        before=r"^mbarrier\.try_wait\.parity\.acquire\.cluster",
    ),
    Rule(
        "same values",
        "bits that a later mask or shift drops, or that are zero: addresses are multiples of 16",
        kind="^(swizzle off by one bit|mask off by one bit|constant)",
        before=r"^(xor\.b32|bfi\.b32|and\.b32|shr\.[su]32|add\.s64 .*, 16384$)",
    ),
    Rule(
        "same values",
        "an index that is 0: there is one group, or one CTA",
        kind="^(constant|factor|swizzle)",
        before=r"^mul\.(wide|lo)|^mov",
        text=r"row_group|group\]",
    ),
    Rule(
        "free choice",
        "the maximum is raised in every tile, not only when it has grown far",
        kind="^(branch forced|predicate turned)$",
        text=r"any_sync\(0xffffffffu, far\)",
    ),
    Rule(
        "same values",
        "in the first tile every row raises its maximum",
        kind="^(vote|predicate|scale|comparison)",
        text=r"any_sync\(0xffffffffu, far\)|const bool far",
    ),
    Rule(
        "order",
        "the group is closed before the wait that its accumulators need",
        kind="^synchronisation",
        before=r"^wgmma\.commit_group",
    ),
    Rule(
        "same values",
        "what a CTA without keys adds to the joint output, which is 0",
        kind="^saturated$",
        text=r"\* own",
    ),
    Rule(
        "same values",
        "a weight, which is between 0 and 1",
        kind="^saturated$",
        text="weights|ex2|factor|share",
    ),
    Rule(
        "same values",
        "the general code runs instead of the one for whole tiles, or the other way where all are whole",
        kind="^(predicate|comparison|bound|branch|selection)",
        text=r"count\(|at\.count|\.whole\(",
    ),
    Rule(
        "same values",
        "an exchange among four lanes, in a segment of 16 instead of 32",
        kind="^mask narrowed$",
        before=r"^shfl\.sync\.bfly",
    ),
    Rule(
        "unseen",
        "a hint: a prefetch for nobody, or by everybody",
        kind="^(offset|predicate|guard|branch|comparison|bound)",
        before=r"prefetch|@%p2 bra",
    ),
    Rule(
        "unseen",
        "a hint: which warp asks for the tensor maps ahead of the copies, if any",
        kind="^(bound|comparison|predicate|branch)",
        before=r"^(setp\.ne\.s32|@%p\d+ bra)",
        text="ahead of the first copy, and beside its preparation",
    ),
    Rule(
        "unseen",
        "an mbarrier that nobody waits for at this shape",
        kind="^(count of a barrier|synchronisation deleted)$",
        before=r"^mbarrier\.(init|arrive\.shared)",
    ),
    Rule(
        "order",
        "a wgmma.fence for registers that nobody has touched since the one before",
        kind="^synchronisation",
        before=r"^wgmma\.fence",
    ),
    Rule(
        "order",
        "a wait that a stricter one follows before its data is read, or where nothing is in flight",
        kind="^(wait made laxer|synchronisation)",
        before=r"wait",
    ),
    Rule(
        "order",
        "a barrier earlier than an access to the thread's own",
        kind="^synchronisation earlier$",
        before=r"^bar\.sync",
    ),
    Rule(
        "same values",
        "plus or minus zero: a term that is zero wherever the line runs",
        kind="^(sum made difference|term dropped|term twice|factor|product dropped)",
        before=r"^(add|sub|mul|fma)\S*\.f32",
    ),
    Rule(
        "same values",
        "the start value, times exp2(-inf), in the first tile or in a CTA without keys",
        kind="^(scale|zero fill lost|sign|constant)",
        before=r"^(mov|mul|add)\.f32",
    ),
    Rule(
        "unseen",
        "a loop of one pass, or a tile or a prefetch more, whose keys are all hidden",
        before=r"^(add\.s32|shl\.b32|shr\.u32|setp\.(ge|gt|le|lt|eq)\.[us]32|min\.s32|@)",
        text=r"const int first|q_tile|tiles|tile\(|kThreads|kShare|key\(int|wait_group",
    ),
    Rule(
        "unseen",
        "a prefetch of a tile that nobody reads",
        kind="^(bound|comparison)",
        text=r"at\.tiles\) source\.start",
    ),
)
"""Of templates of attention. Written over the list of survivors; new ones are read and added."""


def judged(survivor: Mapping[str, Any]) -> tuple[str, str] | None:
    """How a survivor is equal to the original, and why; None if no argument covers it, or if what ran does
    not agree with the argument. `survivor`: a MutantResult's fields, and `template`."""
    rules = ROW_RULES if survivor["template"].startswith("row_") else RULES
    rule = next((rule for rule in rules if rule.fits(survivor)), None)
    if rule is None or (survivor["differs"] and rule.equal not in INEXACT):
        return None
    green = all(verdict == Outcome.GREEN for verdict in survivor["finalists"].values())
    return (rule.equal, rule.why) if green else None
