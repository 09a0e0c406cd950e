"""What `evo profile` shows: the verdict, its evidence, and the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from evo.report import Column, Facts, Form, Record, Table, as_json, intensity_text, score_text, several

if TYPE_CHECKING:
    from evo.explain.profiling import Profile, Roofline

BAR = 30
"""Characters of a full bar."""


def profile_text(found: Profile, form: Form, console: Console) -> str:
    """The whole page; JSON has every metric, too."""
    if form == "json":
        return as_json(found.to_record())
    blocks: list[Facts | Table] = [_facts(found)]
    if found.units:
        blocks.append(_units(found))
    if found.stalls:
        blocks.append(_stalls(found))
    if found.conflicts:
        blocks.append(conflicts_table(found))
    return "\n".join(block.render(form, console) for block in blocks)


def roofline_text(roofline: Roofline) -> str:
    """`133 TFLOP/s and 521 GB/s at 256 FLOP a byte: 13 % of the roof (Tensor Cores) …`."""
    place = (
        f"{roofline.tflops:.3g} TFLOP/s and {roofline.gbps:,.0f} GB/s at {intensity_text(roofline.intensity)}"
    )
    roofs = (
        f"{roofline.peak_tflops:,.0f} TFLOP/s, {roofline.peak_gbps:,.0f} GB/s, ridge at {roofline.ridge:.0f}"
    )
    return f"{place}: {100 * roofline.share:.0f} % of the roof, {roofline.bound} ({roofs})"


def _facts(found: Profile) -> Facts:
    n = found.numbers
    time = score_text(found.us, None) if found.kind == "measured" else score_text(None, found.us)
    words = "one launch by itself, seen by ncu" if found.kind == "measured" else "the emulator's estimate"
    if found.fast_us:
        on = f" on {found.fast_on} inputs" if found.fast_on else ""
        words += f"; {score_text(found.fast_us, None)} by FAST{on}, launched in a chain"
    occupancy = f"at most {n['occupancy_limit_percent']:.0f} %"
    if "occupancy_percent" in n:
        occupancy = f"{n['occupancy_percent']:.0f} %, {occupancy}"
    conflicts = ""
    if "bank_conflicts_load" in n:
        conflicts = (
            f"{n['bank_conflicts_load']:,.0f} of loads, {n.get('bank_conflicts_store', 0):,.0f} of stores"
        )
    smem = f"{n['smem_bytes'] / 1024:.1f} KB of shared memory"
    spilled = f"{n['spill_bytes']:.0f} bytes spilled"
    resources = (
        f"{n['registers']:.0f} registers, {spilled}, {smem}, {several(round(n['ctas_an_sm']), 'CTA')} an SM"
    )
    return Facts(
        f"{found.study}/{found.number} · {found.verdict}",
        (
            ("evidence", "; ".join(found.evidence)),
            ("kernel", f"{found.template} · {found.problem}"),
            ("time", f"{time} on {found.gpu}: {words}" if found.us else ""),
            ("roofline", roofline_text(found.roofline) if found.roofline else ""),
            ("resources", resources),
            ("occupancy", occupancy),
            ("conflicts", conflicts),
            ("no counters", found.absent),
            ("report", found.report),
        ),
    )


def _units(found: Profile) -> Table:
    seen = found.kind == "measured"
    columns = (
        Column("unit" if seen else "pipe", lambda r: str(r["name"])),
        Column("of its peak" if seen else "of the longest", lambda r: f"{r['percent']:.0f} %", right=True),
        Column("", _bar),
    )
    title = "How busy each unit was" if seen else f"What the kernel asks of an SM (a model of {found.gpu})"
    return Table(title, columns, tuple({"name": n, "percent": p} for n, p in found.units.items()))


def _stalls(found: Profile) -> Table:
    from evo.explain.counters import STALLS

    columns = (
        Column("waiting", lambda r: f"{r['percent']:.0f} %", right=True),
        Column("", _bar),
        Column("for", lambda r: STALLS.get(str(r["name"]), ""), wide=True),
        Column("stall", lambda r: str(r["name"])),
    )
    records = [{"name": n, "percent": 100 * share} for n, share in found.stalls.items() if share >= 0.01]
    return Table("What warps wait for", columns, tuple(records))


def conflicts_table(found: Profile) -> Table:
    """What the emulator counted; empty where it did not run."""
    columns = (
        Column("wavefronts", lambda r: f"{r['wavefronts']:,}", right=True),
        Column("needed", lambda r: f"{r['ideal']:,}", right=True),
        Column("factor", lambda r: f"{r['wavefronts'] / max(1, r['ideal']):.1f}x", right=True),
        Column("instruction", lambda r: f"{r['count']} × {r['instruction']}"),
        Column("line", lambda r: str(r["line"]), right=True),
        Column("source", lambda r: str(r["code"]), folds=True, wide=True),
    )
    title = "Bank conflicts by instruction, counted by the emulator"
    return Table(title, columns, tuple(vars(c) for c in found.conflicts))


def _bar(record: Record) -> str:
    return "█" * round(min(100.0, float(record["percent"])) / 100 * BAR)
