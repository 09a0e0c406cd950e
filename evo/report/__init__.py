"""What a person or a script sees: tables, words and pages. Renders what it is given and decides nothing."""

from evo.report.baselines import Groups, best_baseline, compared_with, fastest_of, group_key, group_record
from evo.report.tables import STYLES, Column, Facts, Form, Record, Table, as_json
from evo.report.words import (
    an_estimate,
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
    three_digits,
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
    "compared_with",
    "count",
    "dollars",
    "duration",
    "estimates",
    "fastest_of",
    "group_key",
    "group_record",
    "interval_text",
    "kernels_text",
    "microseconds",
    "plain",
    "point_text",
    "ratio_text",
    "score_text",
    "three_digits",
]
