"""The launch of a product whose CTAs may share K and join through scratch memory (join.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evo.trial import Argument, BufferArg, LaunchConfig, Workspace


def workspaces(slots: int, tile: Any, tiles: int) -> tuple[Workspace, ...]:
    """Sums of fp32 for `slots` parts of tiles of `tile` elements, and a ticket for each of `tiles`."""
    return Workspace("partials", slots * int(tile) * 4), Workspace("tickets", 4 * tiles, zeroed=True)


def launch(
    grid: Sequence[Any],
    threads: Any,
    smem_bytes: Any,
    buffers: Sequence[Argument],
    spaces: Sequence[Workspace],
    scalars: Sequence[Argument],
) -> LaunchConfig:
    """The launch of a kernel that takes buffers, workspaces, and numbers in this order."""
    x, y, z = (int(side) for side in grid)
    return LaunchConfig(
        grid=(x, y, z),
        block=(int(threads), 1, 1),
        smem_bytes=int(smem_bytes),
        args=(*buffers, *(BufferArg(space.name) for space in spaces), *scalars),
        workspaces=tuple(spaces),
    )


def split(
    grid: Sequence[Any],
    threads: Any,
    smem_bytes: Any,
    tile: Any,
    buffers: Sequence[Argument],
    scalars: Sequence[Argument],
) -> LaunchConfig:
    """The same of a grid of tiles across, shares of K, and tiles down: with several shares they join."""
    x, y, z = (int(side) for side in grid)
    spaces = workspaces(x * y * z, tile, x * z) if y > 1 else ()
    return launch(grid, threads, smem_bytes, buffers, spaces, scalars)
