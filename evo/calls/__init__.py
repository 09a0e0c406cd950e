"""Recorded calls of a user's model: their file, the problems that they are of, and a task that has them.

`evo.capture`, which records them, is in `capture.py`: it imports torch."""

from evo.calls.file import MOST_BYTES, Entry, RecordedCall, read_calls, read_tensors, write_calls
from evo.calls.own import MOST_CALLS, OWN_FAMILY, OwnCalls, chosen_calls, only_problem, with_calls
from evo.calls.problem import dimensions_of, problem_of

__all__ = [
    "MOST_BYTES",
    "MOST_CALLS",
    "OWN_FAMILY",
    "Entry",
    "OwnCalls",
    "RecordedCall",
    "chosen_calls",
    "dimensions_of",
    "only_problem",
    "problem_of",
    "read_calls",
    "read_tensors",
    "with_calls",
    "write_calls",
]
