"""Order through memory after PTX's memory model: fences, scopes, atomics, proxies and clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from ptx.running import aligned, h200, regions_of

from evo.cache import Cache, default_folder
from evo.compile import find_compiler
from evo.device.emulator import EmulatorKernel
from evo.errors import CandidateError, MachineError
from evo.trial import Binary, BufferArg, LaunchConfig

SOURCE = (Path(__file__).parent / "ordering.cu").read_text()
MACROS = "KERNEL|CLUSTER|LAST|BARRIER|CHAIN|WARPS|PUT|GET|COUNT|OUT|BACK|PASS"
NAMES = [name for name in re.findall(rf"^(?:{MACROS})\((\w+)", SOURCE, re.MULTILINE) if name != "name"]
HONEST = [name for name in NAMES if not name.startswith("wrong_")]
WRONG = [name for name in NAMES if name.startswith("wrong_")]
ARGUMENTS = tuple(BufferArg(name) for name in ("in", "count", "part", "out"))
NUMBERS = (np.arange(512) * 7 % 31).astype(np.float32)
ROWS = NUMBERS.reshape(8, 64)

FAULTS = {
    "missing fence": r"wrong_bulk_(out_unfenced|out_other_space|back|back_block_fence|back_other_space|pass|"
    r"pass_other_space)",
    "wrong result": r"wrong_(last_volatile_count|last_relaxed_count|shared_volatile_count)",
}
"""Why a wrong kernel is refused, where it is not a race."""


def expected(name: str) -> npt.NDArray[np.float32]:
    """What the honest kernels write, and how much of it."""
    if name.startswith("last"):
        return ROWS.sum(0)
    if name.startswith(("barrier", "bulk_pass")):
        return np.roll(ROWS, -1, axis=0)
    if name == "chain_packed":
        return ROWS[:, 0].cumsum()
    if name.startswith(("chain", "turns")):
        return ROWS.cumsum(0)
    if name == "lock":
        return ROWS[:, :1].sum(0)
    if name.startswith("block_atomics"):
        return ROWS.sum(1) + 64 + 63
    if name.startswith("warps"):
        return 2 * ROWS[:, :32]
    if name.startswith("cluster_count"):
        return np.full(8, 128, np.float32)
    if name.startswith("cluster"):
        return ROWS.reshape(4, 2, 64)[:, ::-1].reshape(8, 64)
    if name == "wrong_shared_volatile_count":
        return np.full(8, 2, np.float32)
    return ROWS


@pytest.fixture(scope="module")
def compiled() -> Iterator[Binary]:
    """All kernels, compiled at once."""
    try:
        compiler = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(none.message)
    with compiler:
        yield compiler.compile(SOURCE, HONEST[0], "sm_90a")


def outcome(compiled: Binary, name: str, schedule: str) -> str:
    """ "GREEN", the reason why it is refused, or "wrong result"."""
    kernel = EmulatorKernel(h200(), replace(compiled, entry=name))
    out = aligned(2048, 0xA5).view(np.float32)
    arrays = {"in": aligned(2048).view(np.float32), "count": aligned(256), "part": aligned(2048), "out": out}
    arrays["in"][:] = NUMBERS
    cluster = 2 if "cluster" in name else 1
    launch = LaunchConfig((8, 1, 1), (64, 1, 1), 0, ARGUMENTS, cluster=(cluster, 1, 1))
    regions = {
        **regions_of({"in": arrays["in"], "out": out}, writable=("out",)),
        **regions_of({"count": arrays["count"]}, writable=("count",), initialised=True),
        **regions_of({"part": arrays["part"]}, writable=("part",)),
    }
    try:
        kernel.launch(launch, regions, schedule)
    except CandidateError as error:
        return error.reason
    right = expected(name.replace("wrong_last", "last"))
    return "GREEN" if right.tolist() == written(out, right) else "wrong result"


def written(out: npt.NDArray[np.float32], like: npt.NDArray[np.float32]) -> list[object]:
    """The part of the output that a kernel writes."""
    if like.shape == (8, 32):
        return out.reshape(8, 64)[:, :32].tolist()
    return out[: like.size].reshape(like.shape).tolist()


@pytest.mark.nvcc
@pytest.mark.parametrize("schedule", [*h200().schedules, "seeded:8"])
@pytest.mark.parametrize("name", HONEST)
def test_a_usual_way_to_hand_over_is_green(compiled: Binary, name: str, schedule: str) -> None:
    assert outcome(compiled, name, schedule) == "GREEN"


@pytest.mark.nvcc
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_way_to_hand_over_is_refused(compiled: Binary, name: str) -> None:
    reasons = [reason for reason, names in FAULTS.items() if re.fullmatch(names, name)] or ["race"]
    found = {outcome(compiled, name, schedule) for schedule in h200().schedules} - {"GREEN"}
    assert found & {*reasons}
    assert found <= {*reasons, "race", "uninitialised read"}
