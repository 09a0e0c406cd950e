"""Launches of loaded kernels from torch, with nothing of evo: `evo.kernel` uses it, and exported folders have
a copy of its files.

    fast       the compiled table of known calls
    plans      what the table is told of a launch
    packaged   an exported folder's kernels as one call
    reading    its arguments
    operators  its operators for torch.compile
    traced     how torch.compile calls them at little cost
    dispatch   which kernel serves a problem
    driver     NVIDIA's driver, by ctypes
    scratch    memory for workspaces
    contract   small cases with their answers
"""

from evo.launch.fast import HERE, SOURCES, Loaded, Table, table_of
from evo.launch.plans import Output, plan_of

__all__ = ["HERE", "SOURCES", "Loaded", "Output", "Table", "plan_of", "table_of"]
