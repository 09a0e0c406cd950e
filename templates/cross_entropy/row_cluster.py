"""Cross-entropy with a row in the shared memory of a cluster."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module

_call = load_module(Path(__file__).with_name("call.py"))
_cluster = load_module(Path(__file__).parents[1] / "include" / "row" / "cluster.py")

TEMPLATE = _cluster.Cluster(_call.operation, passes=True, writes=False)
