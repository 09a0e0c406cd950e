"""The feasible points of one space for many problems: what does not depend on the problem is asked once.

The leading rules of a space that never look at the problem leave out most of its points. What is left is kept
here, and each problem is asked of the other rules alone. The result is that of `Space.feasible`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NoReturn, cast

import numpy as np

from evo.gpu import Limits
from evo.space.parameters import Columns, Indices
from evo.space.rules import Rule
from evo.space.space import CHUNK_POINTS, MOST_ENUMERATED, FeasibleSet, Space
from evo.trial import Problem


@dataclass(frozen=True)
class Narrowing:
    """A space within given limits."""

    space: Space
    limits: Limits

    def feasible(self, problem: Problem) -> FeasibleSet:
        """What `Space.feasible` gives."""
        if self.space.size > MOST_ENUMERATED:
            return self.space.feasible(self.limits, problem)
        rows, leading = self._left
        counts = [(one.why(self.limits, problem), refused) for one, refused in leading]
        rest = replace(self.space, rules=self.space.rules[len(leading) :])
        chunks = [
            partial(rows.__getitem__, slice(begin, begin + CHUNK_POINTS))
            for begin in range(0, max(1, len(rows)), CHUNK_POINTS)
        ]
        found = FeasibleSet.of(rest, self.limits, problem, chunks, exact=True)
        rejected = dict.fromkeys((one.why(self.limits, problem) for one in self.space.rules), 0)
        for why, refused in [*counts, *found.rejected.items()]:
            rejected[why] += refused
        return replace(found, space=self.space, rejected=rejected, asked=self.space.size)

    @cached_property
    def _left(self) -> tuple[Indices, list[tuple[Rule, int]]]:
        """The points that the leading rules allow, and how many each of these rules refuses."""
        leading = len(self.space.rules)
        while True:
            kept, refused = [], [0] * leading
            for begin in range(0, self.space.size, CHUNK_POINTS):
                rows = self.space.unranked(begin, min(begin + CHUNK_POINTS, self.space.size))
                for number, one in enumerate(self.space.rules[:leading]):
                    mask = self._asked(one, rows)
                    if mask is None:
                        leading = number
                        break
                    refused[number] += len(rows) - int(mask.sum())
                    rows = rows[mask]
                kept.append(rows)
                if leading < len(refused):
                    break  # once more, with fewer rules
            else:
                return np.concatenate(kept), list(zip(self.space.rules[:leading], refused, strict=True))

    def _asked(self, one: Rule, rows: Indices) -> Any:
        """The rule's mask; None where it looks at the problem, or raises."""
        try:
            return one.mask(Columns(self.space.parameters, rows), self.limits, cast(Problem, _Unseen()))
        except _Looked:
            return None
        except Exception:  # noqa: BLE001 - with a problem it is told what is wrong
            return None


class _Looked(BaseException):
    """A rule looked at the problem."""


class _Unseen:
    """A problem that must not be looked at."""

    def _look(self, *_: object) -> NoReturn:
        raise _Looked

    __getattr__ = __getitem__ = __eq__ = __hash__ = __iter__ = __bool__ = __contains__ = _look
