"""The search loop: propose, evaluate, store, report, within a budget of time."""

from evo.loop.dead_parameters import DeadParameter, dead_parameters
from evo.loop.loop import SearchResult, Workers, search
from evo.loop.progress import Progress, Usage
from evo.loop.spaces import SearchSpace, search_spaces
from evo.loop.stopping import GRACE_S, Turn

__all__ = [
    "GRACE_S",
    "DeadParameter",
    "Progress",
    "SearchResult",
    "SearchSpace",
    "Turn",
    "Usage",
    "Workers",
    "dead_parameters",
    "search",
    "search_spaces",
]
