"""Cooperative launches: all CTAs are resident at once, and may wait for each other by `grid.sync()`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from ptx.running import aligned, h200, regions_of

from evo.cache import Cache, default_folder
from evo.compile import find_compiler, undeclared
from evo.device.emulator import EmulatorKernel
from evo.errors import CandidateError, MachineError, Unlaunchable
from evo.gpu import target
from evo.space import Filling
from evo.task import load_task
from evo.template import template
from evo.trial import Binary, BufferArg, LaunchConfig

SOURCE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#define KERNEL(name) extern "C" __global__ void name(unsigned* w, unsigned* o)
#define I (blockIdx.x * 64 + threadIdx.x)
KERNEL(honest) {
  w[I] = I;
  cg::this_grid().sync();
  o[I] = w[511 - I];
}
KERNEL(skips) {  // one CTA goes its own way
  w[I] = I;
  if (blockIdx.x != 3) cg::this_grid().sync();
  o[I] = I;
}
KERNEL(leaves) {  // nobody waits, and one CTA does not even arrive
  if (blockIdx.x != 3) cg::this_grid().barrier_arrive();
  o[I] = I;
}
KERNEL(early) {  // reads before the others have come
  w[I] = I;
  o[I] = w[511 - I];
  cg::this_grid().sync();
}
KERNEL(own_part) {  // a barrier of its CTA where the grid's is needed
  w[I] = I;
  cg::this_thread_block().sync();
  o[I] = w[511 - I];
  cg::this_grid().sync();
}
KERNEL(overwrites) {  // the second use of the workspace needs a barrier of its own
  w[I] = I;
  cg::this_grid().sync();
  o[I] = w[511 - I];
  w[I] = 0;
}
KERNEL(counts_launches) {  // keeps a number of its own in the barrier
  unsigned high, low;
  asm volatile("mov.u32 %0, %%envreg1; mov.u32 %1, %%envreg2;" : "=r"(high), "=r"(low));
  unsigned* barrier = (unsigned*)((unsigned long long)high << 32 | low) + 1;
  if (I == 0) w[0] = atomicAdd(barrier, 1);
  o[I] = I;
}
KERNEL(looks_beside) {  // what lies beside the barrier is the driver's
  unsigned high, low;
  asm volatile("mov.u32 %0, %%envreg1; mov.u32 %1, %%envreg2;" : "=r"(high), "=r"(low));
  o[I] = *(unsigned*)((unsigned long long)high << 32 | low);
}
"""
WRONG = {
    "skips": "deadlock",
    "leaves": "barrier misuse",
    "early": "race",
    "own_part": "race",
    "overwrites": "race",
    "counts_launches": "barrier misuse",
    "looks_beside": "out of bounds",
}
LAUNCH = LaunchConfig((8, 1, 1), (64, 1, 1), 0, (BufferArg("w"), BufferArg("o")), cooperative=True)


@pytest.fixture(scope="module")
def compiled() -> Iterator[Binary]:
    try:
        compiler = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(none.message)
    with compiler:
        yield compiler.compile(SOURCE, "honest", "sm_90a")


def outputs(binary: Binary, launch: LaunchConfig, schedules: tuple[str, ...]) -> list[list[int]]:
    kernel = EmulatorKernel(h200(), binary)
    found = []
    for schedule in schedules:
        w, o = aligned(2048, 0xA5), aligned(2048, 0xA5)
        kernel.launch(launch, regions_of({"w": w, "o": o}, ("w", "o"), initialised=True), schedule)
        found.append(o.view(np.uint32).tolist())
    return found


@pytest.mark.nvcc
def test_all_ctas_meet_under_every_schedule_and_again(compiled: Binary) -> None:
    schedules = (*h200().schedules, "eager")
    assert outputs(compiled, LAUNCH, schedules) == [list(range(511, -1, -1))] * len(schedules)


@pytest.mark.nvcc
@pytest.mark.parametrize("entry", WRONG)
def test_a_grid_that_does_not_meet_is_refused(compiled: Binary, entry: str) -> None:
    found = set()
    for schedule in h200().schedules:
        try:
            outputs(replace(compiled, entry=entry), LAUNCH, (schedule,))
        except CandidateError as error:
            found.add(error.reason)
    assert found == {WRONG[entry]}


@pytest.mark.nvcc
def test_a_usual_launch_of_a_kernel_that_syncs_says_what_it_lacks(compiled: Binary) -> None:
    with pytest.raises(CandidateError, match="needs a cooperative launch"):
        outputs(compiled, replace(LAUNCH, cooperative=False), ("eager",))


@pytest.mark.nvcc
def test_a_grid_that_the_gpu_does_not_hold_at_once_is_refused(compiled: Binary) -> None:
    device = h200()
    most = device.gpu.sms * device.gpu.ctas_resident(64, compiled.resources.registers, 0)
    device.load(compiled, replace(LAUNCH, grid=(most, 1, 1)))
    device.load(compiled, replace(LAUNCH, grid=(most + 1, 1, 1), cooperative=False))
    with pytest.raises(Unlaunchable, match=f"{most + 1} CTAs, H200 holds {most} at once"):
        device.load(compiled, replace(LAUNCH, grid=(most + 1, 1, 1)))


@pytest.mark.nvcc
def test_the_address_of_the_barrier_is_no_place_where_the_launch_declares_it(compiled: Binary) -> None:
    assert compiled.reads == ("%envreg",)
    assert undeclared(compiled.reads, (), LAUNCH) == ()
    assert undeclared(compiled.reads, (), replace(LAUNCH, cooperative=False)) == ("%envreg",)
    assert undeclared(("%smid", "%clock"), ("%smid",), LAUNCH) == ("%clock",)


def test_launches_are_kept_as_texts_and_usual_ones_say_nothing_of_it() -> None:
    assert LaunchConfig.from_json(LAUNCH.to_json()) == LAUNCH
    usual = replace(LAUNCH, cooperative=False)
    assert "cooperative" not in usual.to_json()
    assert LaunchConfig.from_json(usual.to_json()) == usual
    assert usual.to_json() != LAUNCH.to_json()


def test_a_short_template_may_ask_for_it() -> None:
    made = template({"block_size_x": [64]}, grid=8, args=[], cooperative=True)
    task = load_task("attention")
    names = made.names(task, "k", ())
    launch = names.launch(Filling({"block_size_x": 64}), task.example, target("sm_90a"))
    assert launch.cooperative
