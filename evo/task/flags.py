"""Choices that belong to a problem."""

from __future__ import annotations

from dataclasses import dataclass

from evo.errors import UsageError
from evo.trial import Value


@dataclass(frozen=True)
class Flag:
    """A choice that belongs to a problem (attention: `causal`). `--NAME` sets one that is true or false,
    `--NAME VALUE` another; so does `--flag NAME=VALUE`. `meaning` is a sentence for a person."""

    default: Value = False
    values: tuple[Value, ...] = (False, True)
    meaning: str = ""

    def parse(self, name: str, value: object) -> Value:
        """The value meant by `value` (itself, or its text: "true", "1"); else UsageError."""
        for known in self.values:
            same_text = isinstance(value, str) and value.lower() in {str(known).lower(), str(_number(known))}
            if same_text or (value == known and not isinstance(value, str)):
                return known
        allowed = ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in self.values)
        raise UsageError(f"flag {name} cannot be {value}", f"one of {allowed}")


def _number(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value
