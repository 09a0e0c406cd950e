"""The search loop: propose, evaluate, store, report, within a budget of time."""

from evo.search.dead_parameters import DeadParameter, dead_parameters
from evo.search.loop import GRACE_S, SearchResult, Workers, search
from evo.search.progress import Progress, Usage
from evo.search.spaces import SearchSpace, search_spaces

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
