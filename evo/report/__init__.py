"""What a person or a script sees: tables, words and pages. Renders what it is given and decides nothing."""

from evo.report.baselines import Groups, best_baseline, fastest_of, group_key, group_record
from evo.report.tables import STYLES, Column, Facts, Form, Record, Table, as_json
from evo.report.terminal import for_terminal
from evo.report.times import counted_text, on_text, spread_text
from evo.report.words import (
    an_estimate,
    cases_text,
    count,
    dollars,
    duration,
    estimates,
    interval_text,
    kernels_text,
    microseconds,
    plain,
    point_text,
    ratio_text,
    score_text,
    share_text,
    three_digits,
    trust_text,
)

__all__ = [
    "STYLES",
    "Column",
    "Facts",
    "Form",
    "Groups",
    "Record",
    "Table",
    "an_estimate",
    "as_json",
    "best_baseline",
    "cases_text",
    "count",
    "counted_text",
    "dollars",
    "duration",
    "estimates",
    "fastest_of",
    "for_terminal",
    "group_key",
    "group_record",
    "interval_text",
    "kernels_text",
    "microseconds",
    "on_text",
    "plain",
    "point_text",
    "ratio_text",
    "score_text",
    "share_text",
    "spread_text",
    "three_digits",
    "trust_text",
]
