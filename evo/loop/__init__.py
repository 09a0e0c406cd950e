"""The search loop: propose, evaluate, store, report, within a budget of time."""

from evo.loop.dead_parameters import DeadParameter, dead_parameters
from evo.loop.loop import GRACE_S, SearchResult, Workers, search
from evo.loop.progress import Progress, Usage
from evo.loop.spaces import SearchSpace, search_spaces

__all__ = [
    "GRACE_S",
    "DeadParameter",
    "Progress",
    "SearchResult",
    "SearchSpace",
    "Usage",
    "Workers",
    "dead_parameters",
    "search",
    "search_spaces",
]
