"""A champion that was promoted, told so that a colleague can review it: what it is, and what it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evo.confirm.champions import Champion

Row = tuple[str, str, str]


def promotion_text(before: Champion | None, after: Champion) -> str:
    """As Markdown: files, before and after, what the gate saw, and the baselines of both confirmations."""
    record = after.record
    gate, confirmed = record["gate"], record["confirmed"]
    rows = [*_rows(before, after)]
    lines = [
        f"# {_which(before, after)} champion: {after.problem.key} on {after.arch}",
        "",
        f"- source: `{after.path}`",
        f"- record: `{after.path.with_suffix('.json')}`",
        f"- trial: {_trial(record)}, {record['template']}, CONFIRMED {confirmed['ended'][:10]} on "
        f"{confirmed['device']}",
        f"- gate: {gate['thorough']}, thorough; {gate['cases']} cases in the search; sanitizer: "
        f"{gate['sanitizer'] or 'not run'}",
        "",
        "| | before | after |",
        "|---|---|---|",
        *(f"| {name} | {old} | {new} |" for name, old, new in rows),
        "",
        "| baseline, warm L2 | before, µs | after, µs |",
        "|---|--:|--:|",
        *(f"| {name} | {old} | {new} |" for name, old, new in _baselines(before, after)),
        "",
        "Baselines took turns with the kernel of their column. Times of two columns are of two processes.",
        "",
    ]
    return "\n".join(lines)


def _which(before: Champion | None, after: Champion) -> str:
    if before is None:
        return "A first"
    faster = before.ranking == after.ranking and (after.median_us or 0) < (before.median_us or 0)
    return "A faster" if faster else "Another"


def _rows(before: Champion | None, after: Champion) -> Iterator[Row]:
    yield "time, warm L2", _time(before, "warm"), _time(after, "warm")
    yield "time, cold L2", _time(before, "cold"), _time(after, "cold")
    yield "against the best baseline", _speedup(before), _speedup(after)
    yield "ranked by", before.ranking if before else "", after.ranking
    for name, read in (
        ("trial", _trial),
        ("template", _template),
        ("launch", _launch),
        ("resources", _resources),
    ):
        yield name, read(before.record) if before else "", read(after.record)
    old: Mapping[str, Any] = before.record["point"] if before else {}
    new: Mapping[str, Any] = after.record["point"]
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield f"`{name}`", str(old.get(name, "")), str(new.get(name, ""))


def _standing(champion: Champion | None, protocol: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = {}
    if champion and champion.confirmed:
        found = champion.record["confirmed"]["standings"].get(protocol) or {}
    return found


def _time(champion: Champion | None, protocol: str) -> str:
    said = _standing(champion, protocol)
    if not said:
        return ""
    interval = said["interval"]
    return f"{said['median_us']:.2f} µs [{interval['low']:.2f}, {interval['high']:.2f}]"


def _speedup(champion: Champion | None) -> str:
    said = _standing(champion, "warm")
    return f"{said['speedup']:.2f}x of {said['versus']}" if said.get("speedup") else ""


def _trial(record: Mapping[str, Any]) -> str:
    return f"{record['trial']['study']}/{record['trial']['number']}"


def _template(record: Mapping[str, Any]) -> str:
    return str(record["template"])


def _launch(record: Mapping[str, Any]) -> str:
    launch = record["launch"]
    grid, block = ("x".join(map(str, launch[name])) for name in ("grid", "block"))
    return f"grid {grid}, block {block}, {launch['smem_bytes']} bytes of shared memory"


def _resources(record: Mapping[str, Any]) -> str:
    said = record.get("resources")
    return f"{said['registers']} registers, {said['spill_bytes']} bytes spilled" if said else ""


def _baselines(before: Champion | None, after: Champion) -> Iterator[Row]:
    columns = [_medians(champion) for champion in (before, after)]
    for name in dict.fromkeys((*columns[0], *columns[1])):
        yield name, columns[0].get(name, ""), columns[1].get(name, "")


def _medians(champion: Champion | None) -> dict[str, str]:
    """Of the baselines, by name."""
    if champion is None or not champion.confirmed:
        return {}
    warm = champion.record["confirmed"]["baselines"].get("warm", {})
    return {name: f"{one['median_us']:.2f}" for name, one in warm.items()}
