"""The zoos of the product and of 4-bit weights: every planted kernel is refused, for the reason it should be,
and honest ones are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.emulator import EmulatorDevice
from evo.errors import BadTemplate, MachineError
from evo.gpu import target
from evo.selftest.zoo import Planted, Zoo
from evo.selftest.zoo_run import try_baselines, try_planted
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

GEMM = load_task("gemm")
ZOO = Zoo.of(GEMM)
ZOOS = {"gemm": ZOO, "gemm_w4a16": Zoo.of(load_task("gemm_w4a16"))}
NAMES = [(task, path.stem) for task, zoo in ZOOS.items() for path in sorted(zoo.folder.glob("*.cu"))]
QUICK = (
    "wgmma_k_tail_lost", "wgmma_sums_of_the_tile_before", "wgmma_stage_read_early", "wgmma_n_mask",
    "wgmma_split_no_fence", "wgmma_split_ticket_left", "wgmma_no_fence_before_the_store",
    "wgmma_turn_not_awaited", "wgmma_sums_in_half", "wgmma_cluster_leaves", "wgmma_cluster_leaves_relaxed",
    "honest_wgmma_joins_backwards",
    "mma_k_tail_counts", "mma_n_mask", "mma_stream_remainder_lost", "mma_no_barrier_in_the_loop",
    "mma_stream_slots_shared", "mma_sums_at_least", "scalar_small_elements_of_b", "small_scales_are_zero",
    "skinny_tickets_of_the_first_matrix", "gemv_half_of_the_lanes", "codes_of_twos_complement",
    "scale_of_the_group_before", "group_read_early", "split_without_a_fence", "honest_groups_backwards",
)  # fmt: skip
"""One of each kind; the others, half a second each, are slow tests."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    with found:
        yield found


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        return EmulatorDevice(target("sm_90a"))
    except MachineError as none:
        pytest.skip(f"{none.message}")


def planted(task: str, name: str) -> Planted:
    return ZOOS[task].read(name)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("task", "name"),
    [pytest.param(*one, marks=() if one[1] in QUICK else pytest.mark.slow) for one in NAMES],
)
def test_the_gate_sees_through_it(task: str, name: str, compiler: Compiler, emulator: EmulatorDevice) -> None:
    one = planted(task, name)
    found = try_planted(one, emulator, compiler, ZOOS[task].task, seed=3)
    assert found.right, f"{found.outcome} {found.reason} {found.where}"
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}; expected {set(one.expected)}"


def test_every_file_says_what_is_wrong_and_alters_its_template() -> None:
    cheats = [planted(*one) for one in NAMES if not one[1].startswith("honest_")]
    counts = Counter(one.entry for one in cheats)
    least = {"gemm_wgmma": 40, "gemm_mma": 25, "gemm_skinny": 12, "gemv": 4, "w4a16": 20}
    assert all(counts[entry] >= count for entry, count in least.items()), counts
    for entry in least:
        said = [one.says for one in cheats if one.entry == entry]
        assert len(set(said)) == len(said), entry


def test_a_file_that_alters_no_template_is_refused(tmp_path: Path) -> None:
    said = ("It is for another template", "expect: row error", "template: gemm_none", "instead of: a")
    (tmp_path / "lost.cu").write_text("".join(f"// {line}\n" for line in (*said, "there is: b")))
    with pytest.raises(BadTemplate, match="there is no template gemm_none"):
        Zoo.of(GEMM, named=tmp_path).read("lost")


@pytest.mark.slow  # twenty seconds
def test_the_librarys_own_products_are_not_refused() -> None:
    findings = list(try_baselines(ZOO, "cpu", seed=5))
    assert findings
    assert {f.outcome for f in findings} == {"GREEN"}, [f for f in findings if f.outcome != "GREEN"]
