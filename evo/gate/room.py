"""How much memory of a device a problem takes, in bytes: known before anything is allocated."""

from __future__ import annotations

import math

from evo.gate.judge import PART_ELEMENTS
from evo.task import DRAWN_AT_ONCE, Task
from evo.trial import Problem

JUDGED_BYTES = 160
"""Of an element that is compared part by part, by a task's own `compute` in fp64 and in fp32."""
SHARED_BYTES = 12
"""Of an element that belongs to all of these parts: it is there in fp64 and in fp32."""
WHOLE_BYTES = 40
"""Of one of a problem that is compared whole: its task does that with less, as attention does."""
DRAWN_BYTES = 32
"""Of an element of inputs that are drawn."""


def set_bytes(task: Task, problem: Problem) -> int:
    """All buffers once."""
    return sum(buffer.nbytes for buffer in task.buffers(problem))


def least_bytes(task: Task, problem: Problem) -> int:
    """What no search can do without: the gate's memory, what it should hold, and inputs to time."""
    again = sum(buffer.nbytes for buffer in task.buffers(problem) if buffer.role == "inout")
    return 3 * set_bytes(task, problem) + again


def gate_bytes(task: Task, problem: Problem) -> int:
    """What the gate takes at once on the problem: its memory, what that should hold, fresh inputs on their
    way, and what is compared at once."""
    buffers = task.buffers(problem)
    elements = sum(math.prod(buffer.shape) for buffer in buffers)
    inputs = sum(buffer.nbytes for buffer in buffers if buffer.read)
    pieces = task.pieces(problem)
    compared = WHOLE_BYTES * elements
    if pieces is not None:
        shared = [buffer for buffer in buffers if buffer.read and buffer.name not in pieces.dimensions]
        compared = SHARED_BYTES * sum(math.prod(buffer.shape) for buffer in shared)
        compared += JUDGED_BYTES * min(elements, PART_ELEMENTS)
    held = least_bytes(task, problem) - set_bytes(task, problem)
    return held + inputs + compared + DRAWN_BYTES * min(elements, DRAWN_AT_ONCE)
