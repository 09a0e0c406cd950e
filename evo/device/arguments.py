"""The bytes of a kernel's arguments."""

from __future__ import annotations

from evo.dtype import dtype_named
from evo.errors import Unlaunchable
from evo.trial import ScalarArg


def scalar_bytes(arg: ScalarArg) -> bytes:
    """A number as the kernel gets it; Unlaunchable if it does not fit its type."""
    try:
        return dtype_named(arg.type).pack(arg.value)
    except ValueError as error:
        raise Unlaunchable("arguments", str(error)) from error
