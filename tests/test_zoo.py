"""The zoo: every planted kernel is refused, for the reason it should be, and honest ones are not."""

from __future__ import annotations

import re
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
from evo.selftest.zoo_run import try_baselines, try_finalist, try_planted
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
CHEATS = Zoo.of(TASK)
ZOO = CHEATS.planted()
COSTLY = (
    *("honest_bulk_output", "honest_static_tables", "honest_sums_scaled_up", "math_maximum_misses_a_key"),
    *("memory_input_cleared_when_done", "own_equal_keys", "own_growing_from_the_third_head"),
    *("own_third_head", "pair_factor_twice", "pair_maximum_overlooks_late", "far_offsets_in_an_int"),
)
"""Kernels that take more than two seconds, where a cheaper one is refused for the same reason, or passes."""

ARITHMETIC = (
    *(
        "math_causal_wide",
        "math_head_zero",
        "math_last_key_dropped",
        "math_one_element",
        "math_one_key_wrong",
    ),
    *("math_padding_unmasked", "math_scale_quarter_percent", "math_tail_tile_dropped", "math_weights_in_fp8"),
)


def representatives() -> set[str]:
    """One planted kernel for each kind of mistake and each way of being refused: the first cheap one of those
    that share the first word of their names and what is expected; of the arithmetic ones more, for most of
    them show as an error of rows. And the honest kernel on one problem; another one is a finalist below."""
    groups: dict[tuple[object, ...], str] = {}
    for one in ZOO:
        if (
            one.name not in COSTLY
            and "2^31" not in one.says
            and (one.needs or not one.honest or one.name == "slow_honest")
        ):
            groups.setdefault((one.name.split("_")[0], one.expected, one.needs, one.thorough), one.name)
    return {*groups.values(), *ARITHMETIC, "honest bf16 D=64 causal"}


QUICK = representatives()
TRIED = [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow) for one in ZOO]


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    return emulated("sm_89")


def emulated(arch: str) -> EmulatorDevice:
    try:
        return EmulatorDevice(target(arch))
    except MachineError as none:
        pytest.skip(f"{none.message}")


@pytest.mark.nvcc
@pytest.mark.parametrize("planted", TRIED)
def test_the_gate_sees_through_it(planted: Planted, compiler: Compiler, emulator: EmulatorDevice) -> None:
    device = emulator if planted.runs_on("sm_89") else emulated("sm_90a")
    found = try_planted(planted, device, compiler, TASK, seed=3)
    assert found.right, f"{found.outcome} {found.reason} {found.where}"
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}; expected {set(planted.expected)}"


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, *range(4, 13)])
@pytest.mark.parametrize("name", [p.name for p in ZOO if p.name.startswith(("own_", "pair_"))])
def test_what_few_inputs_show_is_refused_at_any_seed(
    name: str, seed: int, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    found = try_planted(CHEATS.read(name), emulator, compiler, TASK, seed)
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}"


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name",
    [
        "race_no_barrier_before_refill_in_step",
        pytest.param("race_no_barrier_after_wait_in_step", marks=pytest.mark.slow),
    ],
)
def test_a_race_that_a_gpu_need_not_show_is_refused_as_a_finalist(
    name: str, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    planted = CHEATS.read(name)
    found = try_finalist(planted, emulator, compiler, TASK, seed=3)
    assert (found.outcome, found.stage) == ("RED", "finalists")
    assert found.reason in ("emulator: race", "emulator: uninitialised read")
    assert found.reasoned


@pytest.mark.nvcc
def test_an_honest_kernel_is_an_honest_finalist(compiler: Compiler, emulator: EmulatorDevice) -> None:
    found = try_finalist(next(p for p in ZOO if p.honest and not p.needs), emulator, compiler, TASK, seed=3)
    assert (found.outcome, found.reasoned) == ("GREEN", True)


def test_the_librarys_own_kernels_are_not_refused() -> None:
    findings = list(try_baselines(CHEATS, "cpu", seed=5))
    assert {f.outcome for f in findings} == {"GREEN"}, [f for f in findings if f.outcome != "GREEN"]
    assert len(findings) >= 16


def test_the_zoo_is_as_large_as_promised_and_every_file_says_what_is_wrong() -> None:
    cheats = [p for p in ZOO if not p.honest]
    assert len(cheats) >= 80
    assert len({p.says for p in cheats}) == len(cheats)
    for planted in cheats:
        assert not re.search(r"^\s*#\s*include\s*\"", planted.source, re.MULTILINE)
    assert sum(not p.emulator_only for p in cheats) >= 80  # and on a GPU too


def test_a_cheat_without_its_comments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.cu").write_text("int x;\n")
    with pytest.raises(BadTemplate, match=r"x\.cu:1: "):
        Zoo.of(TASK, named=tmp_path).planted()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("// instead of: no such text\n// there is: other\n", "0 times: no such text"),
        ("// instead of: block_size_x\n// there is: 32\n", "times: block_size_x"),
        ("// instead of number 99: block_size_x\n// there is: 32\n", "times: block_size_x"),
    ],
)
def test_a_cheat_that_alters_a_template_says_which_text(tmp_path: Path, edit: str, said: str) -> None:
    (tmp_path / "x.cu").write_text(f"// Wrong\n// expect: race\n{edit}")
    examples = (Path(__file__).parents[1] / "examples",)
    zoo = Zoo.of(load_task("saxpy", examples), examples, named=tmp_path)
    with pytest.raises(BadTemplate, match=said):
        zoo.read("x")
    (tmp_path / "x.cu").write_text("// Wrong\n// expect: race\n// instead of: k < n\n// there is: k < 0\n")
    assert "k < 0" in zoo.read("x").source


def test_a_cheat_beside_a_zoo_includes_what_templates_can_include(tmp_path: Path) -> None:
    said = '// Wrong\n// expect: race\n#include "include/parts.cuh"\n#include "memory/last_cta.cuh"\n'
    (tmp_path / "x.cu").write_text(said)
    zoo = Zoo.of(load_task("rmsnorm"), named=tmp_path)
    source = zoo.read("x").source
    assert source.count("bool arrives_last(u32* ticket") == 1
    (tmp_path / "x.cu").write_text(f'{said}#include "no/such.cuh"\n')
    with pytest.raises(BadTemplate, match=r'x\.cu:5: there is no include "no/such.cuh"'):
        zoo.read("x")


def test_a_cheat_of_a_template_may_be_a_source_of_its_own(tmp_path: Path) -> None:
    text = "// Wrong\n// expect: race\n// point: vector=2\n"
    (tmp_path / "x.cu").write_text(text + "__global__ void saxpy(const float* x, float* y, int n) {}\n")
    examples = (Path(__file__).parents[1] / "examples",)
    found = Zoo.of(load_task("saxpy", examples), examples, named=tmp_path).read("x")
    assert "#define vector 2\n" in found.source
    assert found.launch(found.problem).block == (128, 1, 1)
