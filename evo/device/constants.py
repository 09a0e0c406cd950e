"""Where a launch writes its constants: `__constant__` variables of the loaded module, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from evo.device.protocol import Region
from evo.errors import Unlaunchable
from evo.trial import Constant, LaunchConfig

Find = Callable[[str], tuple[int, int] | None]
"""Address and bytes of a variable of a module; None where it has none of that name."""


@dataclass(frozen=True)
class Place:
    """A variable of a loaded module: on `cuda` a device pointer, on `emulator` one of the host."""

    address: int
    nbytes: int


class ConstantMemory:
    """The variables of one loaded module, each looked for once. No other module shares them."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._found: dict[str, Place | None] = {}

    def places(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> Iterator[tuple[Place, Region]]:
        """Where each constant of `launch` goes, and what is copied there; the rest of the variable is zero.
        A variable that is not there may be missing where the kernel has the buffer as an argument, too: a
        point that reads this one need not declare the other. Else Unlaunchable, as for one that is too
        small."""
        arguments = {getattr(arg, "buffer", None) for arg in launch.args}
        for constant in launch.constants:
            place, region = self._place(constant), regions[constant.buffer]
            if place is not None:
                yield self._with_room(constant, place, region), region
            elif constant.buffer not in arguments:
                said = f"the module has no variable {constant.variable} for {constant.buffer}"
                hint = f"declare __constant__ {constant.variable} outside of namespaces and without static"
                raise Unlaunchable("no such constant", f"{said}; {hint}")

    def _place(self, constant: Constant) -> Place | None:
        name = constant.variable
        if name not in self._found:
            found = self._find(name)
            self._found[name] = Place(*found) if found else None
        return self._found[name]

    def _with_room(self, constant: Constant, place: Place, region: Region) -> Place:
        if region.nbytes > place.nbytes:
            said = f"__constant__ {constant.variable} has {place.nbytes} bytes, {constant.buffer} has"
            raise Unlaunchable("constant too small", f"{said} {region.nbytes}")
        return place
