"""Champions as tables: all that are kept, and those that were looked at for a problem."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evo.confirm.choice import SET
from evo.report import Column, Record, Table, point_text, ratio_text, score_text

if TYPE_CHECKING:  # a record of one has no need of the store
    from evo.confirm.champions import Champion
    from evo.confirm.choice import Considered
    from evo.trial import Problem


def champions_table(found: Iterable[Champion]) -> Table:
    """All champions, with what was CONFIRMED of each."""
    columns = (
        Column("champion", lambda r: str(r["name"])),
        Column("timed on", lambda r: str(r["gpu"])),
        Column("time", lambda r: score_text(r["median_us"], None), right=True),
        Column("vs best baseline", _versus),
        Column("template", lambda r: str(r["template"])),
        Column("point", lambda r: point_text(r["point"]), folds=True),
    )
    return Table("champions", columns, tuple(_record(one) for one in found), "there are no champions")


def _record(champion: Champion) -> Record:
    warm = champion.warm
    return {
        "name": champion.name,
        "source": str(champion.path),
        "problem": champion.problem.key,
        "arch": champion.arch,
        "gpu": champion.gpu,
        "median_us": champion.median_us,
        "ranking": champion.ranking,
        "speedup": warm.get("speedup"),
        "versus": warm.get("versus") or None,
        "template": str(champion.record["template"]),
        "point": champion.record["point"],
        "trial": f"{champion.record['trial']['study']}/{champion.record['trial']['number']}",
    }


def _versus(record: Record) -> str:
    return f"{ratio_text(record['speedup'], None, None)} {record['versus']}" if record["speedup"] else ""


def considered_table(problem: Problem, gpu: str, considered: Iterable[Considered]) -> Table:
    """Champions in the order of choice: the first one that serves is the one."""
    columns = (
        Column("champion", lambda r: str(r["name"])),
        Column("serves", lambda r: "yes" if r["serves"] else "no"),
        Column("doublings away", lambda r: f"{r['doublings']:.1f}", right=True),
        Column("why", lambda r: str(r["why"]), folds=True),
    )
    records = tuple(
        {
            "name": one.champion.name,
            "source": str(one.champion.path),
            "serves": one.launch is not None,
            "doublings": one.doublings,
            "why": one.why,
            **one.champion.record.get(SET, {}),
        }
        for one in considered
    )
    return Table(f"{problem.key} on {gpu}", columns, records, f"{problem.task} has no champion")
