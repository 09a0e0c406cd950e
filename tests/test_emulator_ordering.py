"""Order through memory after PTX's memory model: fences, scopes, atomics, proxies and clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ptx.running import aligned, h200, regions_of

from evo.cache import Cache, default_folder
from evo.compile import find_compiler
from evo.device.emulator import EmulatorKernel
from evo.errors import CandidateError, MachineError
from evo.trial import Binary, BufferArg, LaunchConfig

SOURCE = (Path(__file__).parent / "ordering.cu").read_text()
MACROS = "KERNEL|LANDED|SWAP|CLUSTER|LAST|BARRIER|CHAIN|WARPS|PUT|GET|COUNT|OUT|BACK|PASS"
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


EXPECTED = {
    "last|wrong_last": ROWS.sum(0),
    "barrier|bulk_pass": np.roll(ROWS, -1, axis=0),
    "chain_packed": ROWS[:, 0].cumsum(),
    "chain|turns": ROWS.cumsum(0),
    "lock": ROWS[:, :1].sum(0),
    "block_atomics": ROWS.sum(1) + 64 + 63,
    "warps": 2 * ROWS[:, :32],
    "swap_adds": np.full(64, NUMBERS.sum()),
    "swap_max": np.full(64, NUMBERS.max()),
    "swap_walks": np.zeros(64, np.float32),
    "shared_swap": ROWS.sum(1),
    "cluster_count": np.full(8, 128, np.float32),
    "cluster": ROWS.reshape(4, 2, 64)[:, ::-1].reshape(8, 64),
    "wrong_shared_volatile_count": np.full(8, 2, np.float32),
    "": ROWS,
}
"""What a kernel writes, by how its name begins: the first that fits. Some write the first columns alone."""


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
    numbers, part, count = aligned(2048).view(np.float32), aligned(2048), aligned(256)
    numbers[:] = NUMBERS
    cluster = 2 if "cluster" in name else 1
    launch = LaunchConfig((8, 1, 1), (64, 1, 1), 0, ARGUMENTS, cluster=(cluster, 1, 1))
    regions = {
        **regions_of({"in": numbers, "out": out, "part": part}, writable=("out", "part")),
        **regions_of({"count": count}, writable=("count",), initialised=True),
    }
    try:
        kernel.launch(launch, regions, schedule)
    except CandidateError as error:
        return error.reason
    right = next(value for names, value in EXPECTED.items() if re.match(names, name))
    rows, columns = right.shape if right.ndim == 2 else (1, right.size)
    written = out.reshape(8, 64)[:rows, :columns] if right.ndim == 2 else out[None, :columns]
    return "GREEN" if np.array_equal(written, right.reshape(rows, columns)) else "wrong result"


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
