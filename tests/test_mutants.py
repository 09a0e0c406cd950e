"""Mutation testing: what it counts, on small runs of the real thing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, assemble, find_compiler, machine_code
from evo.device.emulator import EmulatorDevice
from evo.errors import Infeasible, MachineError, Uncompilable
from evo.gpu import target
from evo.report.checks import mutant_line, mutants_summary
from evo.selftest.mutant_results import MutantResult, MutationTarget, record, score
from evo.selftest.mutants import MutationRun, try_mutants
from evo.selftest.mutation import Mutant
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
CACHE = default_folder()
TARGET = MutationTarget("flash_mma", TASK.problem("1,1,128,64"), target("sm_89"), CACHE)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(CACHE))
        EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def run(compiler: Compiler) -> MutationRun:
    if compiler.toolkit.ptxas is None:
        pytest.skip("no ptxas on this machine")
    return MutationRun(TARGET)


def changed(run: MutationRun, text: str, to: str, kind: str = "planted") -> Mutant:
    """The mutant that has `to` instead of `text` on the first line with it that is executed."""
    lines = run.binary.ptx.splitlines()
    number = next(i for i, line in enumerate(lines, 1) if text in line and i in run.places)
    line = lines[number - 1]
    return Mutant(kind, number, text, to, ((number, line.replace(text, to)),))


@pytest.mark.nvcc
def test_a_mutant_without_a_barrier_is_refused_and_its_line_is_known(run: MutationRun) -> None:
    deleted = next(m for m in run.every() if m.kind == "synchronisation deleted")
    tried = run.try_one(deleted)
    assert (tried.fate, tried.outcome, tried.reason) == ("refused", "RED", "race")
    assert "sync" in tried.text
    assert tried.place.split()[0].isdigit()


@pytest.mark.nvcc
def test_what_changes_nothing_is_told_from_a_survivor(run: MutationRun) -> None:
    """Adding +0 and not: another PTX, the same machine code. And PTX that ptxas refuses is no program."""
    alike = changed(run, "mov.u32 \t", "mov.b32 \t")
    assert run.try_one(alike).fate == "unchanged"
    broken = changed(run, "mov.u32 \t", "mov.u32.nonsense \t")
    assert run.try_one(broken).fate == "no program"


@pytest.mark.nvcc
def test_a_survivor_is_compared_bit_for_bit(run: MutationRun) -> None:
    """The running maximum starts a little higher: nothing comes of it, but it is another program."""
    start = next(m for m in run.every() if m.kind == "scale" and "0fF149F2CA" in m.before)
    tried = run.try_one(start)
    assert (tried.fate, tried.outcome, tried.passes, tried.differs) == ("survived", "GREEN", True, 0)
    assert tried.compared > 50


@pytest.mark.nvcc
@pytest.mark.usefixtures("run")
def test_most_of_a_sample_is_refused_and_the_record_adds_up() -> None:
    told: list[MutantResult] = []
    tried = try_mutants(TARGET, 6, 1, told.append)
    found = record(TARGET, tried)
    assert len(told) == len(tried) == 6
    assert found["executed"] + found["unchanged"] + found["no_program"] == 6
    assert found["score"] == score(tried) >= 0.8
    assert found["score_of_different"] >= found["score"]
    assert len(found["survivors"]) == found["executed"] - found["refused"]
    assert sum(found["reasons"].values()) == found["refused"]
    head, *fates, _ = mutants_summary(found).splitlines()
    assert int(head.split()[0]) == sum(int(line.split()[0]) for line in fates) == found["executed"]


ENDLESS = """
from itertools import repeat
from evo.selftest.mutants import Attempt, Workers
from test_mutants import TARGET
if __name__ == "__main__":
    with Workers(2) as workers:
        for _ in workers.each(repeat(Attempt(TARGET, "verify"))):
            print(flush=True)
"""


@pytest.mark.nvcc
@pytest.mark.usefixtures("run")
def test_workers_end_with_the_process_that_is_killed(tmp_path: Path) -> None:
    """They would wait for work for ever, and were left behind by every run that was ended."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    places = f"{Path(__file__).parent}:{Path(__file__).parents[1]}"
    environment = {**os.environ, "PYTHONPATH": places}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment) as killed:
        assert killed.stdout
        assert killed.stdout.readline(), "an attempt has ended, so workers are there"
        children = psutil.Process(killed.pid).children()
        killed.kill()
    assert len(children) >= 2
    assert not psutil.wait_procs(children, timeout=60)[1]


def test_a_survivor_is_told_with_its_place_and_what_is_known_of_it() -> None:
    said = ("sign", 7, "neg.f32 \t%f1, %f2", "mov.f32 \t%f1, %f2", "12 from 34", "x = -y;")
    one = MutantResult(*said, "survived", "GREEN", "", "", 0.1, differs=2, compared=9)
    change, place, known = mutant_line(one.with_verdict(0, "RED row error")).splitlines()
    assert change == "survived  sign, PTX line 7: neg.f32  %f1, %f2 -> mov.f32  %f1, %f2"
    assert place.strip() == "CUDA line 12, called from line 34: x = -y;"
    assert known.strip() == "the check for finalists: RED row error"
    assert "of no CUDA line" in mutant_line(replace(one, place="0", text=""))
    assert "GREEN; other bits in 2 of 9 launches" in mutant_line(one.with_verdict(0, "GREEN"))
    assert "the original's bits in all 9 launches" in mutant_line(replace(one, differs=0))


def test_the_score_counts_only_what_runs_and_differs() -> None:
    one = MutantResult("k", 1, "a", "b", "", "", "refused", "RED", "race", "", 0.1)
    fates = ("refused", "refused", "refused", "survived", "unchanged", "no program")
    tried = [replace(one, fate=fate) for fate in fates]  # type: ignore[arg-type]
    assert score(tried) == 0.75
    assert score([]) == 1.0


def test_a_template_that_does_not_serve_the_problem_has_no_mutants() -> None:
    with pytest.raises(Infeasible):
        MutationRun(replace(TARGET, template="flash_wgmma"))


@pytest.mark.nvcc
def test_ptxas_assembles_and_refuses(compiler: Compiler, run: MutationRun) -> None:
    ptx, ptxas = run.binary.ptx, compiler.toolkit.ptxas
    entry = run.candidate.entry
    twice = {machine_code(assemble(ptx, "sm_89", ptxas), ptx, entry) for _ in range(2)}
    assert len(twice) == 1
    with pytest.raises(Uncompilable):
        assemble(ptx.replace("bar.sync", "bar.nonsense"), "sm_89", ptxas)
    with pytest.raises(MachineError):
        assemble(ptx, "sm_89", None)


@pytest.mark.nvcc
@pytest.mark.usefixtures("run")
def test_a_hopper_kernel_must_wait_until_its_copies_are_there_and_keep_its_operands_legal() -> None:
    """A wait whose answer is ignored, a phase that is neither 0 nor 1, a tile that does not begin where its
    swizzle does."""
    hopper = MutationRun(replace(TARGET, template="flash_wgmma", gpu=target("sm_90a")))
    every = hopper.every()
    waits = [hopper.look(m).reason for m in every if m.kind == "wait not repeated"]
    assert len(waits) > 4
    assert set(waits) <= {"race", "barrier misuse"}
    offset = next(m for m in every if m.kind == "descriptor: base offset")
    wait = next(m for m in every if m.kind == "phase flipped")
    phase = replace(wait, changes=((wait.line, wait.changes[0][1].replace(", 1;", ", 2;")),))
    assert [hopper.look(mutant).reason for mutant in (offset, phase)] == ["bad operand"] * 2
