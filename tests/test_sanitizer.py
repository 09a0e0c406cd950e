"""What a run of compute-sanitizer says of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from evo.cache import default_folder
from evo.confirm.sanitizing import MOST_BYTES, sanitized
from evo.errors import Crashed, MachineError, Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gate.sanitizer import Clean, read_verdict
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import load_template
from evo.trial import LaunchConfig, Problem

SAID = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at flash_mma+0x3f0 in candidate.cu:706
=========     by thread (31,0,0) in block (1,0,0)
========= Address 0x7f03e2a00400 is out of bounds
========= ERROR SUMMARY: 3 errors
"""


def test_a_sanitizers_complaint_is_red() -> None:
    with pytest.raises(Red, match="3 errors") as caught:
        read_verdict("memcheck", SAID, 0)
    assert caught.value.reason == "memcheck: Invalid __global__ read"
    assert caught.value.where.startswith("flash_mma+0x3f0")


def test_a_sanitizer_that_gives_no_verdict_is_no_pass() -> None:
    with pytest.raises(MachineError, match="gave no verdict") as caught:
        read_verdict("memcheck", "========= Device not supported\n", 0)
    assert "Device not supported" in caught.value.hint
    with pytest.raises(Crashed):
        read_verdict("synccheck", "Traceback\n========= ERROR SUMMARY: 0 errors\n", 1)
    read_verdict("initcheck", "========= ERROR SUMMARY: 0 errors\n", 0)


# ------------------------------------------------------------------------------------ which launch it watches

TASK, GPU = load_task("rmsnorm"), target("sm_89")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    spec = EvaluatorSpec("rmsnorm", "emulator", GPU, Limits.of(GPU), default_folder())
    try:
        made = spec.build()
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield made
    made.close()


@pytest.mark.nvcc
@pytest.mark.parametrize(("shape", "watched"), [("2048,4096", 2048), ("32768,4096", 3)])
def test_a_large_problem_is_watched_on_a_small_one(
    shape: str, watched: int, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffers would be a file of gigabytes; the code and the columns are the same."""
    asked: list[tuple[Problem, LaunchConfig]] = []

    def watch(_binary: Any, launch: LaunchConfig, _task: Any, problem: Problem, **_: Any) -> tuple[Clean]:
        asked.append((problem, launch))
        return (Clean("memcheck", 1.0),)

    monkeypatch.setattr("evo.confirm.sanitizing.sanitize", watch)
    problem = TASK.problem(shape, "bf16")
    template = load_template(TASK, "row_registers")
    candidate = template.candidate(template.space.default_for(problem, evaluator.spec.limits), problem)
    with evaluator.spec.compiler() as compiler:
        binary = compiler.compile(candidate.source, candidate.entry, GPU.arch)
    green: Any = SimpleNamespace(
        kernel=SimpleNamespace(binary=binary), launch=candidate.launch, problem=problem
    )
    said = sanitized(evaluator, candidate, green)
    ((seen, launch),) = asked
    assert (seen["rows"], seen["columns"]) == (watched, 4096)
    assert TASK.nbytes(seen) <= MOST_BYTES
    assert launch.ctas == watched
    assert said == "clean: memcheck" + ("" if seen.key == problem.key else f" (at {seen.key})")
