"""Made-up studies and trials for the tests of the store: of the size and shape of real ones."""

from __future__ import annotations

import dataclasses

from times import timing

from evo.study import Study
from evo.trial import (
    BufferArg,
    Candidate,
    CaseError,
    Interval,
    LaunchConfig,
    Outcome,
    Problem,
    Resources,
    ScalarArg,
    Trial,
    Value,
    Workspace,
)

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
SOURCE = "// point {}\n" + "".join(
    f"__device__ float f{i}(float x) {{{{ return x * {i}.5f; }}}}\n" for i in range(900)
)


def study(name: str = "mission-1", **changed: object) -> Study:
    plain = Study(name, PROBLEM, "emulator", "L4", ("flash_mma",), 120.0)
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


def candidate(number: int = 0, template: str = "flash_mma", problem: Problem = PROBLEM) -> Candidate:
    launch = LaunchConfig(
        (8, 8, 1),
        (128, 1, 1),
        24576,
        (BufferArg("q"), BufferArg("o"), ScalarArg(0.125, "f32")),
        workspaces=(Workspace("partial", 4096),),
    )
    point: dict[str, Value] = {
        "k_stages": number % 4,
        "bm": 64,
        "swizzle": "xor",
        "persistent": True,
        "at": number,
    }
    return Candidate(problem, template, point, SOURCE.format(number), "attention_kernel", launch)


def timed(number: int = 0, median_us: float = 8.0, **changed: object) -> Trial:
    trial = Trial(
        candidate(number),
        Outcome.TIMED,
        resources=Resources(128, 0, 16, 0, ("C7508: something",)),
        machine_code=f"code {number}",
        compiler="nvrtc 13.0.88",
        errors=(
            CaseError(PROBLEM.key, "normal", 3, 0.001, 0.02),
            CaseError(PROBLEM.key, "peaky", 4, 0.002, 0.02),
        ),
        timing=timing(
            (8.0, 8.25, 7.75),
            median_us,
            Interval(median_us - 0.5, median_us + 0.5),
            {"cudnn": 9.1, "flash": 10.27},
            1.14,
            Interval(1.0, 1.2),
            {"sm_mhz": 1980.0},
        ),
        counters={"global_bytes": 1048576, "ratio": 0.25},
        seconds={"compile": 0.31, "gate": 0.02},
        device="NVIDIA H200",
        versions={"torch": "2.11", "evo": "0.1"},
    )
    return dataclasses.replace(trial, **changed)  # type: ignore[arg-type]


def estimated(number: int, estimate_us: float, gpu: str = "L4") -> Trial:
    return Trial(
        candidate(number),
        Outcome.GREEN,
        estimate_us=estimate_us,
        estimate_gpu=gpu,
        device=f"emulator ({gpu})",
    )


def failed(number: int, outcome: Outcome, reason: str) -> Trial:
    return Trial(candidate(number), outcome, reason, "what happened\0", "flash.cu:12", device="emulator (L4)")
