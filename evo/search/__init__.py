"""The search loop: ask, evaluate, record, tell, within a budget of time."""

from evo.search.first_points import DeadParameter, dead_parameters
from evo.search.loop import GRACE_S, Ground, Progress, SearchResult, Workers, search, survey

__all__ = [
    "GRACE_S",
    "DeadParameter",
    "Ground",
    "Progress",
    "SearchResult",
    "Workers",
    "dead_parameters",
    "search",
    "survey",
]
