"""Clocks and places: a kernel that reads them undeclared is marked, and makes no champion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command import Evo
from trials import study, timed

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler, places_read
from evo.confirm.champions import promote
from evo.errors import MachineError, Red, UsageError
from evo.evaluate.program import Program
from evo.gpu import Limits, target
from evo.store import Store
from evo.task import load_task
from evo.trial import Binary, Resources

SOURCE = """
extern "C" __global__ void k(unsigned long long* o) {
  unsigned a, b, c;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(a));
  asm volatile("{ .reg .u32 t; mov .u32 t,%%globaltimer_lo; mov.u32 %0, t; }" : "=r"(b));
  asm volatile("mov.u32 %0, %%gridid;" : "=r"(c));
  o[0] = clock64() + a + b + c + threadIdx.x + gridDim.x;
}
"""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(none.message)
    with found:
        yield found


@pytest.mark.nvcc
def test_clocks_and_places_are_found_in_what_is_compiled(compiler: Compiler) -> None:
    binary = compiler.compile(SOURCE, "k", "sm_90a")
    assert binary.reads == ("%clock", "%globaltimer", "%gridid", "%smid")
    assert compiler.compile(SOURCE, "k", "sm_90a").reads == binary.reads, "from the cache too"


@pytest.mark.parametrize(
    ("ptx", "found"),
    [
        ("mov.u32 %r1, %clock_hi;", ("%clock",)),
        ("mov.u64 %rd1,%pm3_64;", ("%pm",)),
        ("mov.b32 %r1, %envreg31; mov.u32 %r2, %total_smem_size;", ("%envreg", "%total_smem_size")),
        ("mov.u32 %r1, %warpid; mov.u32 %r2, %nsmid;", ("%nsmid", "%warpid")),
        ("mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mov.u32 %r3, %lanemask_lt;", ()),
        ("mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %nctaid.x; // not %smid", ()),
        ("mov.u32 %clocks, %smids;", ()),
    ],
)
def test_what_a_launch_fixes_is_no_place(ptx: str, found: tuple[str, ...]) -> None:
    assert places_read(ptx) == found


def test_a_finalist_that_reads_undeclared_places_is_refused(tmp_path: Path) -> None:
    """As its template declares, or does not declare, what it reads."""
    gpu = target("sm_90a")
    for declared in ((), ("%smid",)):
        folder = tmp_path / f"declared{len(declared)}"
        (folder / "row_sum").mkdir(parents=True)
        for path in (Path(__file__).parent / "toys/row_sum").iterdir():
            text = path.read_text() if path.is_file() else ""
            more = f"READS = {declared}\n" if path.name == "warp.py" else ""
            (folder / "row_sum" / path.name).write_text(text + more)
        program = Program(load_task("row_sum", (folder,)), (folder,), gpu, Limits.of(gpu))
        template = program.template("warp")
        assert template.reads == declared
        made = template.candidate(template.space.default, program.task.example)
        binary = Binary(b"", "", "k", "sm_90a", "none", Resources(1, 0, 0, 0), "", 0.0, reads=("%smid",))
        assert program.undeclared(made, replace(binary, reads=())) == ()
        program.refuse_undeclared(made, replace(binary, reads=declared))
        if not declared:
            assert program.undeclared(made, binary) == ("%smid",)
            with pytest.raises(Red, match="%smid"):
                program.refuse_undeclared(made, binary)


def test_the_mark_is_kept_shown_and_keeps_a_trial_from_being_a_champion(evo: Evo, tmp_path: Path) -> None:
    marked = replace(timed(1), reads=("%clock", "%smid"))
    with Store(tmp_path / "runs" / "evo.db") as store:
        made = store.create(study())
        store.add(made, 1, marked)
        kept = store.trial(f"{made.name}/1")
    assert kept.reads == ("%clock", "%smid")
    assert "reads %clock %smid" in evo("leaderboard").out
    assert "reads %clock %smid: it makes no champion" in evo("show", f"{made.name}/1").out
    with pytest.raises(UsageError, match="reads %clock %smid"):
        promote(kept, made, None, "sm_90a", tmp_path)
