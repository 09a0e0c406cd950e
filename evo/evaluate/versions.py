"""The versions of what a trial depends on."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from evo.device import Device
from evo.version import __version__


def versions_of(device: Device, packages: Sequence[str] = ()) -> dict[str, str]:
    """What a trial, or a time beside it, depends on besides its candidate: names and versions. `packages`:
    more distributions, if they are installed."""
    found = {"evo": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if device.driver_version:
        found["driver"] = device.driver_version
    return found
