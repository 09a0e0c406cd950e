"""A portfolio as tables: its kernels, and for each problem the kernel that serves it and its regret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evo.report import Column, Record, Table, point_text, score_text, several

if TYPE_CHECKING:
    from evo.loop.turns import Found

NO_PORTFOLIO = "so few kernels do not serve all problems: allow more (--portfolio), or give it more time"


def portfolio_tables(found: Found) -> list[Table]:
    """The kernels of the portfolio, and what they lose on each problem."""
    return [_kernels(found), _problems(found)]


def portfolio_record(found: Found) -> Record:
    """The same for a script: `kernels` and `problems`."""
    kernels, problems = portfolio_tables(found)
    return {"kernels": list(kernels.records), "problems": list(problems.records)}


def portfolio_text(found: Found) -> str:
    """What the portfolio loses, in a line; "" where there is none."""
    chosen = found.portfolio
    if chosen is None:
        return ""
    worst = max(chosen.regrets, key=chosen.regrets.__getitem__)
    few = len(chosen.kernels)
    verb, loss = ("serves", "it loses") if few == 1 else ("serve", "they lose")
    served = f"{several(few, 'kernel')} {verb} {several(len(chosen.serves), 'problem')}"
    mean, most = _percent(chosen.mean_regret), _percent(chosen.worst_regret)
    return f"{served}: {loss} {mean} in the mean, {most} at most ({worst})"


def _kernels(found: Found) -> Table:
    serves = list(found.portfolio.serves.values()) if found.portfolio else []
    columns = (
        Column("kernel", lambda r: str(r["kernel"])),
        Column("problems", lambda r: str(r["problems"]), right=True),
        Column("template", lambda r: str(r["template"])),
        Column("point", lambda r: point_text(r["point"]), folds=True),
    )
    records: tuple[Record, ...] = tuple(
        {
            "kernel": number,
            "problems": serves.count(name),
            "template": kernel.template,
            "point": dict(kernel.point),
        }
        for number, (name, kernel) in enumerate(found.kernels.items(), 1)
    )
    return Table("portfolio", columns, records, NO_PORTFOLIO)


def _problems(found: Found) -> Table:
    numbers = {name: number for number, name in enumerate(found.kernels, 1)}
    left_out = found.left_out
    columns = (
        Column("problem", lambda r: str(r["problem"])),
        Column("study", lambda r: str(r["study"])),
        Column("best", lambda r: score_text(r["median_us"], r["estimate_us"]), right=True),
        Column("kernel", lambda r: str(r["kernel"] or ""), right=True),
        Column("regret", lambda r: _percent(r["regret"]), right=True),
        Column("left out", lambda r: _percent(r["left_out_regret"]), right=True),
    )
    records: list[Record] = []
    for member in found.members:
        served = found.portfolio.serves.get(member.name) if found.portfolio else None
        records.append(
            {
                "problem": member.name,
                "study": member.study.name if member.study else "",
                "median_us": None if found.estimated else member.best_us,
                "estimate_us": member.best_us if found.estimated else None,
                "kernel": numbers[served] if served else None,
                "regret": found.portfolio.regrets[member.name] if found.portfolio and served else None,
                "left_out_regret": left_out.get(member.name),
            }
        )
    return Table("problems", columns, tuple(records))


def _percent(regret: float | None) -> str:
    return "" if regret is None else f"{100 * (regret - 1):.1f} %"
