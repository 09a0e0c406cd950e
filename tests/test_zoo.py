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
from evo.selftest.mutation import mutants, sample
from evo.selftest.zoo import Planted, Zoo
from evo.selftest.zoo_run import try_baselines, try_finalist, try_planted
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
CHEATS = Zoo.of(TASK)
ZOO = CHEATS.planted()


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
    try:
        return EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")


@pytest.mark.nvcc
@pytest.mark.parametrize("planted", ZOO, ids=[p.name for p in ZOO])
def test_the_gate_sees_through_it(planted: Planted, compiler: Compiler, emulator: EmulatorDevice) -> None:
    found = try_planted(planted, emulator, compiler, TASK, seed=3)
    assert found.right, f"{found.outcome} {found.reason} {found.where}"
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}; expected {set(planted.expected)}"


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", ["race_no_barrier_after_wait_in_step", "race_no_barrier_before_refill_in_step"]
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
    found = try_finalist(next(p for p in ZOO if p.honest), emulator, compiler, TASK, seed=3)
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


PTX = """.version 9.0
.target sm_80
.visible .entry k(.param .u64 p)
{
\tld.param.u64 \t%rd1, [p];
\tsetp.lt.s32 \t%p1, %r1, %r2;
\t@%p1 bra \t$L__1;
\tbar.sync \t0;
\tcp.async.wait_group \t1;
\tadd.s32 \t%r3, %r1, 16;
\tmul.f32 \t%f1, %f2, 0f3F800000;
\tsub.f32 \t%f3, %f1, %f2;
\tmax.f32 \t%f4, %f3, %f2;
\tst.global.u32 \t[%rd1+4], %r3;
\tfma.rn.f32 \t%f5, %f1, %f2, %f3;
\tshfl.sync.bfly.b32 \t%r4|%p2, %r3, 1, 31, -1;
\tldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, %r8}, [%r9];
\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f3, %f4};
$L__1:
\tret;
}
"""


def test_mutants_change_one_statement_each() -> None:
    found = list(mutants(PTX))
    kinds = {m.kind for m in found}
    assert kinds >= {
        "synchronisation deleted", "wait made laxer", "store dropped", "predicate turned",
        "comparison shifted", "constant", "offset", "scale", "operands swapped", "maximum made minimum",
        "product dropped", "synchronisation later", "term dropped", "shuffle dropped", "not transposed",
    }  # fmt: skip
    original = PTX.splitlines()
    for mutant in found:
        changed = mutant.of(PTX).splitlines()
        assert len(changed) == len(original)
        differ = [i for i, (a, b) in enumerate(zip(original, changed, strict=True), 1) if a != b]
        assert differ == sorted(number for number, _ in mutant.changes)
        assert mutant.line in differ
        assert len(differ) == 1 + mutant.kind.startswith(("synchronisation later", "synchronisation earlier"))
    after = {m.kind: m.after for m in found}
    assert after["wait made laxer"].split() == ["cp.async.wait_group", "2"]
    assert after["synchronisation deleted"] == ""
    assert after["term dropped"].split() == ["mul.rn.f32", "%f5,", "%f1,", "%f2"]
    assert after["shuffle dropped"].split() == ["mov.b32", "%r4,", "%r3"]
    assert after["comparison shifted"].startswith("setp.le.s32")
    assert after["predicate turned"].startswith("@!%p1 bra")
    assert after["scale"].endswith("0f3F7AE148")


def test_only_executed_statements_are_mutated_and_rare_kinds_are_sampled() -> None:
    assert {m.line for m in mutants(PTX, executed={8, 12})} == {8, 12}
    found = list(mutants(PTX))
    few = sample(found, 16, seed=1)
    assert len(few) == 16
    assert len({m.kind for m in few}) == len({m.kind for m in found})
