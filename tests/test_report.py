"""Tables and pages, as they are read: the text itself is compared."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from operator import itemgetter

import pytest
from rich.console import Console
from rows import CONFIRMED, ESTIMATED, MEASURED, POINT, PROBLEM
from times import timing

from evo import report
from evo.gpu import Limits, target
from evo.report import Column, Table
from evo.report.leaderboard import leaderboard_records, leaderboards
from evo.report.overview import failures_table, findings_table, space_record, space_table, studies_table
from evo.report.trial import trial_page, trial_record
from evo.selftest.doctor import Finding
from evo.space import Parameter, Space, rule
from evo.store import Failure
from evo.study import Study
from evo.trial import (
    BufferArg,
    Candidate,
    CaseError,
    Interval,
    LaunchConfig,
    Outcome,
    Resources,
    Trial,
)

STUDY = Study("mission-1", PROBLEM, "cuda:0", "H200", ("flash_mma",), 300.0, spent_s=61.0, status="finished")


GROUPS = {"mission-1": {"SDPA": ("flash", "cudnn")}}


def console(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=False)


def text(table: report.Table, width: int) -> str:
    return table.render("text", console(width))


def test_leaderboard_at_200_columns_has_a_row_a_line_with_everything() -> None:
    (table,) = leaderboards([MEASURED], GROUPS)
    title, heading, row = text(table, 200).splitlines()
    assert (
        title == "attention B=1 H=8 L=512 D=64 causal=0 fp16 · NVIDIA H200 · not CONFIRMED · on normal inputs"
    )
    assert heading.split() == [
        "#",
        "trial",
        "time",
        "95",
        "%",
        "CI",
        "vs",
        "best",
        "baseline",
        "vs",
        "fastest",
        "SDPA",
        "regs",
        "spill",
        "smem",
        "template",
        "point",
    ]
    assert row == (
        "1  mission-1/6  8.53 µs  [8.51, 8.55]  1.07x [1.06, 1.07] cudnn  1.07x cudnn       168      0  "
        "48.0K  flash_mma  "
        "bm=64 bn=128 warps=4 swizzle=xor persistent=1 k_stages=2 v_stages=1"
    )


def test_cases_that_did_not_run_are_counted_and_unproven_kernels_are_marked() -> None:
    whole = replace(MEASURED, cases_run=212, cases_planned=212, classes_missed=0, own_share=1.0)
    (table,) = leaderboards([whole])
    assert "cases" not in text(table, 200)
    part = replace(whole, number=14, cases_run=61)
    unproven = replace(part, number=15, classes_missed=2)
    (table,) = leaderboards([whole, part, unproven])
    heading, *rows = text(table, 200).splitlines()[1:]
    assert "cases" in heading.split()
    shown = "\n".join(rows)
    assert shown.count("212/212") == 1
    assert shown.count("61/212") == 2
    assert shown.count("UNPROVEN") == 1
    assert [r["classes_missed"] for r in leaderboard_records([part, unproven]).records] == [0, 2]


def test_confirmed_rows_have_a_table_of_their_own_and_ties_are_marked() -> None:
    tied = replace(CONFIRMED, number=7, median_us=8.54, verdict="tie", speedup_low=0.99)
    third = replace(CONFIRMED, number=9, median_us=9.5, rank=3)
    one, two = leaderboards([CONFIRMED, tied, third, MEASURED], GROUPS)
    title, heading, *rows = text(one, 200).splitlines()
    assert title.endswith("NVIDIA H200 · CONFIRMED · on normal inputs")
    assert "1.07x cudnn" in rows[0], "the fastest SDPA beside it, whatever the best baseline is"
    assert "99 % CI" in heading
    assert "cold" in heading.split()
    assert [row.split()[0] for row in rows] == ["1=", "1=", "3"]
    assert "1.07x [1.06, 1.07] triton " in rows[0]
    assert "1.07x [0.99, 1.07] triton, a tie" in rows[1]
    assert "9.02 µs" in rows[0]
    assert text(two, 200).splitlines()[0].endswith("not CONFIRMED · on normal inputs")
    assert max(map(len, text(one, 80).splitlines())) <= 80
    (record,) = json.loads(leaderboard_records([CONFIRMED], GROUPS).render("json", console(80)))
    assert (record["kind"], record["rank"], record["best_baseline"]) == ("confirmed", 1, "triton")
    assert record["best_baseline_us"] == pytest.approx(8.531 * 1.0667)


def test_leaderboard_at_80_columns_stays_within_them_and_folds_the_point_alone() -> None:
    (table,) = leaderboards([MEASURED, replace(MEASURED, number=123456, median_us=10.05)])
    lines = text(table, 80).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "regs" not in lines[1]
    whole = [line for line in lines if "µs" in line]
    assert [line.split()[1:4] for line in whole] == [
        ["mission-1/6", "8.53", "µs"],
        ["mission-1/123456", "10.1", "µs"],
    ]
    assert "".join(text(table, 80).split()).count("v_stages=1") == 2


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_no_cell_is_ever_cut(width: int) -> None:
    record = {"a": "head_fastest: 1.028x, 48/56", "b": "537/884", "c": "x" * 25}
    columns = tuple(Column(f"heading_{key}", itemgetter(key), right=key == "b") for key in record)
    table = Table("", columns, (record,))
    lines = text(table, width).splitlines()
    assert max(len(line) for line in lines) <= width
    shown = sorted("".join(lines).replace(" ", ""))
    cells = "".join(f"heading_{key}{cell}" for key, cell in record.items()).replace(" ", "")
    assert shown == sorted(cells)


def test_estimates_have_a_table_of_their_own_that_says_so() -> None:
    measured, estimated = leaderboards([MEASURED, ESTIMATED])
    assert "not measurements" in text(estimated, 200).splitlines()[0]
    assert "estimates for L4" in text(estimated, 200)
    (unknown,) = leaderboards([replace(ESTIMATED, template="yours")])
    assert "guesses for L4" in text(unknown, 200)
    (elsewhere,) = leaderboards([replace(ESTIMATED, problem="rowsum N=8 fp32")])
    assert "guesses for L4" in text(elsewhere, 200)
    assert "~31.4 µs" in text(estimated, 200)
    assert "how well they order kernels was never measured" in text(unknown, 200)
    both = [ESTIMATED, replace(ESTIMATED, template="flash_wgmma_split")]
    (known,) = leaderboards([*both, replace(ESTIMATED, template="yours")])
    assert "flash_wgmma_split 0.74, not known of the others" in text(known, 300)
    assert "time" not in text(estimated, 200).splitlines()[1].split()
    assert "~" not in text(measured, 200)


def test_json_and_csv_say_which_times_are_estimates() -> None:
    table = leaderboard_records([MEASURED, ESTIMATED])
    one, two = json.loads(table.render("json", console(80)))
    assert (one["kind"], one["median_us"], one["best_baseline"], one["best_baseline_us"]) == (
        "measured",
        8.531,
        "cudnn",
        9.1,
    )
    assert (two["kind"], two["median_us"], two["estimate_us"]) == ("estimate", None, 31.4)
    assert one["point"] == POINT
    rows = list(csv.DictReader(io.StringIO(table.render("csv", console(80)))))
    assert rows[0]["median_us"] == "8.531"
    assert rows[1]["median_us"] == ""
    assert json.loads(rows[0]["point"]) == POINT


def test_markdown_is_a_table_whatever_the_cells_hold() -> None:
    odd = replace(MEASURED, point={"mode": "a|b"})
    (table,) = leaderboards([odd])
    lines = table.render("markdown", console(80)).splitlines()
    assert len(lines) == 3
    assert lines[2].replace("\\|", "").count("|") == lines[0].count("|") == lines[1].count("|")


def test_colour_is_written_to_terminals_alone() -> None:
    rows = [Finding("compiler", "works", "nvrtc 13.0.88"), Finding("gpu", "absent", "none", "buy one")]
    table = findings_table(rows)
    assert "\x1b" not in text(table, 80)
    colourful = Console(
        width=80, file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False
    )
    assert "\x1b[32mworks" in table.render("text", colourful)
    plain = Console(width=80, file=io.StringIO(), force_terminal=True, no_color=True)
    assert "\x1b[32m" not in table.render("text", plain)
    assert "→ buy one" in text(table, 80)


def test_studies_without_any_say_how_to_make_one() -> None:
    assert "evo search" in text(studies_table([]), 80)


def test_studies_count_their_trials() -> None:
    table = studies_table([(STUDY, {"TIMED": 5, "GREEN": 1, "RED": 3})])
    heading, row = text(table, 200).splitlines()
    assert heading.split()[:4] == ["study", "status", "trials", "correct"]
    assert row.split()[:4] == ["mission-1", "finished", "9", "6"]
    assert "1 min 01 s  5 min 00 s" in row
    (record,) = json.loads(table.render("json", console(80)))
    assert record["outcomes"] == {"TIMED": 5, "GREEN": 1, "RED": 3}
    assert record["problem"] == PROBLEM.key


def test_failures_are_listed_with_an_example() -> None:
    table = failures_table([Failure("RED", "race", 12, 40)])
    assert text(table, 80).splitlines()[-1].split() == ["RED", "12", "#40", "race"]


def test_a_space_is_told_by_its_rules() -> None:
    @rule("more than {smem} of shared memory a CTA")
    def fits(p, limits, _problem):  # type: ignore[no-untyped-def]
        return p.bm * 1024 <= limits.smem_bytes

    space = Space((Parameter("bm", (16, 32, 64, 128), 32), Parameter("bn", (32, 64), 64)), (fits,))
    feasible = space.feasible(Limits.of(target("sm_89"), 48 * 1024), PROBLEM)
    assert text(space_table("toy", feasible), 80).splitlines() == [
        "toy: 8 points, 4 feasible",
        "rejected  because",
        "       4  more than 48 KB of shared memory a CTA",
    ]
    record = space_record("toy", feasible)
    assert record["rejected"] == {"more than 48 KB of shared memory a CTA": 4}
    assert record["parameters"] == {"bm": [16, 32, 64, 128], "bn": [32, 64]}


def stored(trial: Trial) -> Trial:
    return replace(trial, study="mission-1", number=6, created="2026-01-02T03:04:05+00:00", id=7)


CANDIDATE = Candidate(
    PROBLEM,
    "flash_mma",
    POINT,
    "// source\n",
    "attention",
    LaunchConfig((8, 8, 1), (128, 1, 1), 49152, (BufferArg("q"),), cluster=(2, 1, 1)),
)


def test_page_of_a_timed_trial() -> None:
    trial = Trial(
        CANDIDATE,
        Outcome.TIMED,
        resources=Resources(168, 0, 16, 1024),
        compiler="nvrtc 13.0.88",
        errors=(CaseError("p1", "normal", 3, 1e-4, 1e-3), CaseError("p2", "peaky", 4, 9e-4, 1e-3)),
        timing=timing(
            (8.5, 8.6),
            8.53,
            Interval(8.51, 8.55),
            {"flash": 10.27, "cudnn": 9.1},
            1.067,
            Interval(1.062, 1.071),
        ),
        device="NVIDIA H200",
        versions={"torch": "2.11"},
    )
    page = trial_page(stored(trial), console(100))
    assert page.splitlines()[0] == "trial mission-1/6 · TIMED"
    assert "8.53 µs, 95% CI [8.51, 8.55], on normal inputs, 1.07x [1.06, 1.07] cudnn, warm L2" in page
    assert "on normal  8.53 µs, 95% CI [8.51, 8.55], 1.07x [1.06, 1.07] cudnn, median of 2 samples" in page
    assert "timed on" not in page
    assert "cudnn 9.10 µs, flash 10.3 µs" in page
    nearest = "the nearest to its limit: p2, peaky, seed 4: row error 9.00e-04 of 1.00e-03 allowed"
    assert f"2 comparisons with the reference; {nearest}" in " ".join(page.split())
    assert "168 registers, 0 bytes spilled, 16 bytes of stack, 49.0 KB of shared memory" in page
    assert "grid 8x8, 128 threads a CTA, clusters of 2" in page
    assert "estimate" not in page


def test_page_of_a_failed_trial_says_why_and_where() -> None:
    trial = Trial(
        CANDIDATE, Outcome.RED, "race", "shared memory, 16 bytes at 0x400", "flash.cu:112 thread 33"
    )
    page = trial_page(stored(trial), console(80))
    assert page.splitlines()[0] == "trial mission-1/6 · RED"
    for words in ("race", "16 bytes at 0x400", "flash.cu:112 thread 33"):
        assert words in page
    assert max(len(line) for line in page.splitlines()) <= 80


def test_page_of_a_wrong_kernel_says_what_is_beyond_its_limit() -> None:
    errors = (CaseError("p1", "normal", 3, 1e-4, 1e-3), CaseError("p2", "peaky", 4, 4.86e-7, 3.58e-7))
    page = trial_page(stored(Trial(CANDIDATE, Outcome.RED, "row error", errors=errors)), console(120))
    told = "beyond its limit: p2, peaky, seed 4: row error 4.86e-07 of 3.58e-07 allowed"
    assert f"2 comparisons with the reference; {told}" in " ".join(page.split())


def test_a_leaderboard_counts_static_shared_memory_too() -> None:
    for dynamic, static, said in ((0, 1024, "1.0K"), (49152, 512, "48.5K"), (49152, None, "48.0K")):
        (table,) = leaderboards([replace(MEASURED, smem_bytes=dynamic, static_smem_bytes=static)])
        assert text(table, 200).splitlines()[2].split("  ")[-3].strip() == said


def test_record_of_a_trial_is_json_with_its_source() -> None:
    record = json.loads(
        report.as_json(trial_record(stored(Trial(CANDIDATE, Outcome.GREEN, estimate_us=3.0))))
    )
    assert record["outcome"] == "GREEN"
    assert record["candidate"]["source"] == "// source\n"
    assert record["timing"] is None


def test_a_long_last_column_stands_below_its_rows_where_there_is_no_room_beside_them() -> None:
    columns = (
        report.Column("trial", lambda r: str(r["trial"])),
        report.Column("time", lambda _: "4.04 µs", right=True),
        report.Column("point", lambda _: "row_groups=1 cluster_kv=2 shift=all", folds=True),
    )
    records = ({"trial": "a-study-with-a-long-name/1"}, {"trial": "b/2"})
    table = report.Table("a title that is longer than the terminal is wide: it is wrapped", columns, records)
    lines = table.render("text", Console(width=60, no_color=True)).splitlines()
    assert lines == [
        "a title that is longer than the terminal is wide: it is",
        "wrapped",
        "trial                          time",
        "a-study-with-a-long-name/1  4.04 µs",
        "    row_groups=1 cluster_kv=2 shift=all",
        "b/2                         4.04 µs",
        "    row_groups=1 cluster_kv=2 shift=all",
    ]
    beside = table.render("text", Console(width=100, no_color=True)).splitlines()
    assert beside[1:] == [
        "trial                          time  point",
        "a-study-with-a-long-name/1  4.04 µs  row_groups=1 cluster_kv=2 shift=all",
        "b/2                         4.04 µs  row_groups=1 cluster_kv=2 shift=all",
    ]


def test_a_task_says_which_baselines_belong_together() -> None:
    """A column for each of its groups, and none where it has no group."""
    groups = {"mission-1": {"SDPA": ("flash", "cudnn"), "Other Library": ("absent",)}}
    (table,) = leaderboards([MEASURED], groups)
    heading, row = text(table, 250).splitlines()[1:]
    assert "vs fastest SDPA  vs fastest Other Library" in heading
    assert row.partition("] cudnn")[2].split()[:3] == ["1.07x", "cudnn", "-"]
    (record,) = json.loads(leaderboard_records([MEASURED], groups).render("json", console(80)))
    assert (record["fastest_sdpa"], record["fastest_sdpa_us"]) == ("cudnn", 9.1)
    assert record["sdpa_speedup"] == pytest.approx(9.1 / 8.531)
    assert (record["fastest_other_library"], record["other_library_speedup"]) == (None, None)
    (table,) = leaderboards([MEASURED])
    assert "vs fastest" not in text(table, 250)
    assert not [
        key
        for key in json.loads(leaderboard_records([MEASURED]).render("json", console(80)))[0]
        if key.startswith("fastest")
    ]
