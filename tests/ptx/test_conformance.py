"""Every supported instruction gives what a GPU gave, or what PTX defines."""

from __future__ import annotations

import pytest

from evo.errors import Unlaunchable
from ptx.catalogue import programs, recorded, wanted
from ptx.programs import Program, disagreements, row_matches
from ptx.running import answer, h200

UNCOVERED: dict[str, str] = {
    "redux .sync .min|max ?abs ?NaN .f32": "sm_100a only; programs are recorded on sm_90a",
    "trap": "ends the launch: see test_emulator.py",
    "brkpt": "stops in a debugger",
}
"""Rows of the instruction table without a conformance program, and why."""

DIFFERENT: dict[str, str] = {
    "div.rp.ftz.f32": "an H200 flushes a result that is tiny before it is rounded up; the emulator rounds first",
}
"""Instructions whose last bit is known to differ from the GPU's, and how."""


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.name)
def test_results_are_those_of_the_gpu(program: Program) -> None:
    got = answer(program)
    digest, raw = recorded().get(program.name, ("", b""))
    reference = raw if digest == program.digest else None
    wrong = []
    for part in program.slices:
        if part.label in DIFFERENT:
            continue
        expected = wanted(part, reference)
        lanes = [] if expected is None else disagreements(part, got, expected)
        wrong += [f"{part.label}: {len(lanes)} lanes differ, first {lanes[:4]}"] if lanes else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("schedule", h200().schedules[1:])
@pytest.mark.parametrize("program", [p for p in programs() if p.launch.threads != 128 or "wgmma" in p.name],
                         ids=lambda p: p.name)  # fmt: skip
def test_results_do_not_depend_on_the_schedule(program: Program, schedule: str) -> None:
    assert answer(program, schedule) == answer(program)


def test_recording_answers_for_these_programs() -> None:
    if not recorded():
        pytest.skip("nothing recorded yet: run emulator/conformance of benchmarks/run.py on a Hopper GPU")
    stale = [p.name for p in programs() if recorded().get(p.name, ("",))[0] != p.digest]
    assert not stale, (
        f"changed since they were recorded: {stale}; run emulator/conformance of benchmarks/run.py again"
    )


def test_recorded_answers_are_the_exact_ones() -> None:
    """The oracle and the GPU judge each other: no exact expectation may contradict the recording."""
    if not recorded():
        pytest.skip("nothing recorded yet")
    wrong = []
    for program in programs():
        digest, raw = recorded().get(program.name, ("", b""))
        for part in program.slices if digest == program.digest else ():
            if part.label in DIFFERENT:
                continue
            if part.expected is not None and disagreements(part, raw, part.expected):
                wrong.append(f"{program.name}: {part.label}")
    assert not wrong


def test_every_row_of_the_table_is_covered() -> None:
    opcodes = frozenset().union(*(p.opcodes for p in programs()))
    rows = {row.pattern for row in h200().interpreter.table}
    bare = {row for row in rows if not any(row_matches(row, opcode) for opcode in opcodes)}
    assert bare - set(UNCOVERED) == set(), "rows without a conformance program"
    assert set(UNCOVERED) <= bare, "rows that are covered, or gone, but still excused"


def test_every_opcode_of_the_programs_is_in_the_table() -> None:
    table = [row.pattern for row in h200().interpreter.table]
    unknown = set()
    for program in programs():
        try:
            answer(program)
        except Unlaunchable as error:
            unknown.add(f"{program.name}: {error.detail}")
        unknown |= {o for o in program.opcodes if not any(row_matches(row, o) for row in table)}
    assert not unknown
