"""A Python script, read and not run: what its calls are given, as far as its text says it."""

from evo.importers.script.expressions import Expressions, simpler, substituted
from evo.importers.script.script import Call, Script, body_of, expression_of, file_beside
from evo.importers.script.values import Array, Function, Number, Text, Unknown, plain, unknown_part

__all__ = [
    "Array",
    "Call",
    "Expressions",
    "Function",
    "Number",
    "Script",
    "Text",
    "Unknown",
    "body_of",
    "expression_of",
    "file_beside",
    "plain",
    "simpler",
    "substituted",
    "unknown_part",
]
