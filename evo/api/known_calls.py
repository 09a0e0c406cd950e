"""Calls of a task's kernel that were served before: the next one goes straight to its launch.

The compiled table (evo/launch) is built and loaded when a champion serves for the first time on a GPU. Where
that is not possible, every call is read by Python, which the log says once with what it costs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.arguments import Call
from evo.device import Kernel
from evo.dtype import dtype_named
from evo.errors import MachineError
from evo.launch import Loaded, Output, Table, plan_of, table_of
from evo.launch.scratch import makers
from evo.task import BufferSpec
from evo.trial import LaunchConfig

if TYPE_CHECKING:
    from torch import Tensor

COST_US = 16
"""What reading the arguments of a call takes without the table, which the launch adds to (benchmark
leaving/host_cost)."""
_log = logging.getLogger("evo.kernel")


class KnownCalls:
    """A table of calls with these `names` of arguments, built into `cache`. For many threads."""

    def __init__(self, names: Sequence[str], cache: Path) -> None:
        self._names, self._cache = tuple(names), cache
        self._lock = threading.Lock()
        self._table: Table = None
        self._tried = False
        self.call: Callable[..., Any] = _unknown
        """Takes a call as `add` does; launches it and gives what it gives if it is known, else None."""

    def __len__(self) -> int:
        return int(self._table.size()) if self._table else 0

    def add(
        self,
        kernel: Kernel,
        launch: LaunchConfig,
        specs: Sequence[BufferSpec],
        call: Call,
        given: tuple[tuple[Any, ...], Any, dict[str, Any]],
    ) -> None:
        """From now on calls like this one are known: it was `given` as arguments by place, `out=`, and others
        by name. Some are left to Python: one tensor that is given twice, sizes by name, and several outputs
        in `out=`."""
        if kernel.handles is None or call.sizes or not self._opened():
            return
        tensors, out, named = given
        places = _places(call, (*tensors, out, *named.values()))
        if places is None:
            return
        made = [spec for spec in specs if spec.role == "out"]
        sources = {**places, **{spec.name: -1 - at for at, spec in enumerate(made)}}
        said = json.loads(launch.to_json())
        plan = plan_of(
            said,
            Loaded(kernel, *kernel.handles),
            sources,
            [_output(spec, places, call) for spec in made],
            [(spec.name, sources[spec.name]) for spec in specs if spec.written],
            makers(said["workspaces"], call.place),
        )
        with self._lock:
            self._table.add(plan, *given)

    def _opened(self) -> bool:
        """Whether there is a table; the first time it is made."""
        with self._lock:
            if not self._tried:
                self._tried = True
                self._open()
            return self._table is not None

    def _open(self) -> None:
        from evo.compile import build_table_library
        from evo.launch.fast import driver_addresses

        try:
            table = table_of(build_table_library(self._cache), self._names)
            table.drive(*driver_addresses())
        except (MachineError, ImportError, OSError, RuntimeError) as error:
            _log.warning("a call costs the host at least %d µs more: %s", COST_US, error)
            return
        self._table, self.call = table, table.call


def _unknown(*_: Any) -> None:
    """Before a champion has served."""


def _places(call: Call, values: Sequence[Any]) -> dict[str, int] | None:
    """Which of `values` each tensor of the call is; None where that cannot be told."""
    at = {id(value): place for place, value in enumerate(values)}
    tensors: dict[str, Tensor] = {**call.read, **call.outputs}
    places = {name: at[id(tensor)] for name, tensor in tensors.items() if id(tensor) in at}
    return places if len(set(places.values())) == len(tensors) else None


def _output(spec: BufferSpec, places: dict[str, int], call: Call) -> Output:
    empty = {"size": spec.shape, "dtype": dtype_named(spec.dtype).torch, "device": call.place}
    return Output(places[spec.name] if spec.name in call.outputs else -1, empty)
