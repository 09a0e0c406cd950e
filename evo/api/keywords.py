"""Arguments of public functions that there are not: said with the nearest name that there is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from evo.errors import UnknownName

P = ParamSpec("P")
R = TypeVar("R")


def keywords_of(name: str, more: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function, called `name` by a person, that raises UnknownName for a keyword that is none of its
    parameters and none of `more`."""

    def checked(function: Callable[P, R]) -> Callable[P, R]:
        plain = inspect.Parameter.VAR_KEYWORD
        own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not plain]
        known = [*own, *sorted(set(more) - set(own))]

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            for keyword in kwargs:
                if keyword not in known:
                    raise UnknownName.among(f"argument of {name}", keyword, known)
            return function(*args, **kwargs)

        return called

    return checked
