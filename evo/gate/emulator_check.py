"""What the emulator finds in a finalist of a GPU: every access checked, under every schedule.

A race need not show on a GPU, however often a kernel is launched there: its warps may happen to keep step. No
kernel is CONFIRMED that the emulator refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from evo.errors import CandidateError, MachineError, Red
from evo.gate import Green

UNREADABLE = ("unreadable PTX", "unsupported instruction")
"""Reasons of an emulator that does not know enough to judge."""


def second_opinion(verdict: Callable[[], Green]) -> Green:
    """The `verdict` of the gate on the emulator for a kernel that is GREEN on a GPU.

    Raises Red with the emulator's reason, "emulator: race", whatever it was that ended the kernel there;
    MachineError where the emulator cannot judge it."""
    try:
        return verdict()
    except CandidateError as error:
        if error.reason in UNREADABLE:
            raise MachineError(error.reason, error.detail) from error
        raise Red(f"emulator: {error.reason}", error.detail, error.where) from error
