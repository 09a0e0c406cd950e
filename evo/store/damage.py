"""Rows that are not as evo wrote them: another program, a disk or a person changed them."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import NoResultFound
from zstandard import ZstdError

from evo.errors import StoreError

_NUMBER = (int, float)
_KINDS: Mapping[str, Any] = {
    "int": int,
    "int | None": (int, type(None)),
    "float": _NUMBER,
    "float | None": (*_NUMBER, type(None)),
    "str": str,
    "str | None": (str, type(None)),
    "bool": (bool, int),
    "Point": Mapping,
    "Mapping[str, Value]": Mapping,
    "Mapping[str, int]": Mapping,
    "Mapping[str, float]": Mapping,
    "Mapping[str, str]": Mapping,
    "tuple[str, ...]": tuple,
    "tuple[int, int, int]": tuple,
}
"""Annotations of the fields of records -> what a value must be; others are not looked at."""
_PARTS: Mapping[str, Any] = {
    "Point": (*_NUMBER, str),
    "Mapping[str, Value]": (*_NUMBER, str),
    "Mapping[str, int]": int,
    "Mapping[str, float]": (*_NUMBER, type(None)),
    "Mapping[str, str]": str,
    "tuple[str, ...]": str,
    "tuple[int, int, int]": int,
}
"""Annotations -> what each of the values in it must be."""


_RAISED = (
    *(TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError),
    *(zlib.error, ZstdError, NoResultFound),
)
"""What reading a value of another type or content makes Python and the libraries raise."""


class NoJson:
    """What stands in a column of JSON and is none."""


def from_json(text: Any) -> Any:
    """The value of a JSON text, or NoJson: which row has it is known where the row is read."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return NoJson()


def require_types(record: Any) -> None:
    """TypeError unless the fields of a record have values of their types, and numbers are finite."""
    for name, kind in type(record).__annotations__.items():
        value = getattr(record, name)
        parts = list(value.values() if isinstance(value, Mapping) else value) if kind in _PARTS else []
        odd = [part for part in parts if not isinstance(part, _PARTS[kind])]
        if not isinstance(value, _KINDS.get(kind, object)) or odd:
            raise TypeError(f"{name} is of another type: {type(odd[0] if odd else value).__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise TypeError(f"{name} is {value}")


@contextmanager
def reading(what: str, database: str, leave_out: Callable[[str], None] | None = None) -> Iterator[None]:
    """Turns what a damaged row makes Python raise into a StoreError that names it. Where it is left out, that
    is told instead."""
    try:
        yield
    except _RAISED as error:
        message = f"{what} is damaged in {database}: {type(error).__name__}: {error}"
        if leave_out is None:
            hint = "restore the database from a copy, or delete this row"
            raise StoreError(message, hint) from error
        leave_out(f"left out: {message}")
