"""Calls of a task's kernel that the fallback served before: the next one of such a form is not read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from evo.api.arguments import Call
from evo.trial import Value

Served = TypeVar("Served")
"""What is remembered of a form: the decision."""


class FallenCalls(Generic[Served]):
    """At most so many forms of calls that no champion serves, whatever their strides and addresses; each with
    what its call was read as. For many threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._forms: dict[object, tuple[tuple[str, ...], dict[str, Value], str, Served]] = {}

    def add(self, call: Call, tensors: tuple[Any, ...], named: Mapping[str, Any], served: Served) -> None:
        """From now on calls like this one, which was given `tensors` by place and flags by name, are known.
        Calls with sizes, outputs or tensors by name are left out."""
        if (
            call.outputs
            or call.sizes
            or len(tensors) != len(call.read)
            or not named.keys() <= call.flags.keys()
        ):
            return
        while len(self._forms) >= self._most:
            self._forms.pop(next(iter(self._forms)), None)
        self._forms[_form(tensors, named)] = (*call.read,), dict(call.flags), call.place, served

    def find(self, tensors: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Call, Served] | None:
        """The call, and the decision; None for a form that is not known."""
        if not self._forms:
            return None
        try:
            known = self._forms.get(_form(tensors, named))
        except (AttributeError, TypeError):  # no tensor; no flag
            return None
        if known is None:
            return None
        names, flags, place, served = known
        return Call(dict(zip(names, tensors, strict=True)), {}, flags, {}, place), served


def _form(tensors: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[object, ...]:
    """Equal for calls of one form."""
    return (*[(x.shape, x.dtype, x.device, x.layout) for x in tensors], *named.items())
