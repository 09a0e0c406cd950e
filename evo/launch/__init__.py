"""Launches of loaded kernels from torch, with nothing of evo: `evo.kernel` uses it, and exported folders have
a copy of its files.

    fast     the compiled table of known calls, and where it comes from
    plans    what the table is told of a launch
"""

from evo.launch.fast import SOURCES, Loaded, Table, table_of
from evo.launch.plans import Output, plan_of

__all__ = ["SOURCES", "Loaded", "Output", "Table", "plan_of", "table_of"]
