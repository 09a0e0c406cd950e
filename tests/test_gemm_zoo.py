"""The zoo of the product: every planted kernel is refused, for the reason it should be, and honest ones are
not."""

from __future__ import annotations

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
NAMES = sorted(path.stem for path in ZOO.folder.glob("*.cu"))
QUICK = (
    "wgmma_k_tail_lost", "wgmma_sums_of_the_tile_before", "wgmma_stage_read_early", "wgmma_n_mask",
    "wgmma_split_no_fence", "wgmma_split_ticket_left", "wgmma_no_fence_before_the_store",
    "wgmma_turn_not_awaited", "wgmma_sums_in_half", "wgmma_cluster_leaves", "honest_wgmma_joins_backwards",
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


def planted(name: str) -> Planted:
    return ZOO.read(name)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_the_gate_sees_through_it(name: str, compiler: Compiler, emulator: EmulatorDevice) -> None:
    one = planted(name)
    found = try_planted(one, emulator, compiler, GEMM, seed=3)
    assert found.right, f"{found.outcome} {found.reason} {found.where}"
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}; expected {set(one.expected)}"


def test_every_file_says_what_is_wrong_and_alters_its_template() -> None:
    cheats = [planted(name) for name in NAMES if name.startswith("wgmma_")]
    assert len(cheats) >= 40
    assert len({one.says for one in cheats}) == len(cheats)
    assert {one.entry for one in cheats} == {"gemm_wgmma"}


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
