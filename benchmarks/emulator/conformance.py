"""What a GPU answers to every PTX conformance program: test data for the emulator.

    python benchmarks/run.py emulator/conformance --answers tests/ptx/recorded.xz

Needs a Hopper GPU (the programs hold sm_90a instructions); takes seconds. A slice that disagrees with its
exact expectation is a fault of the expectation or of this GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
import torch
from ptx.catalogue import programs, save
from ptx.programs import Program, disagreements

from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.errors import CandidateError
from evo.trial import Binary, Resources

PROTOCOL = "each program once, compiled by the driver; its whole output"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answers", type=Path, required=True, metavar="FILE.xz", help="to be written")
    parser.add_argument("--only", default="", help="programs whose name contains this")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    device = CudaDevice(0)
    answers: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    unexpected: dict[str, list[str]] = {}
    for program in (one for one in programs() if asked.only in one.name):
        try:
            raw = answer(program, device)
        except CandidateError as error:
            failed[program.name] = str(error)
            if not device.usable:  # the programs after this one are not recorded
                break
            continue
        answers[program.name] = raw
        if wrong := disagreeing(program, raw):
            unexpected[program.name] = wrong
    asked.answers.parent.mkdir(parents=True, exist_ok=True)
    save(asked.answers, device.name, answers)
    size = asked.answers.stat().st_size
    yield {"programs": len(answers), "failed": failed, "unexpected": unexpected, "bytes": size}
    if failed:
        raise SystemExit(1)


def disagreeing(program: Program, raw: bytes) -> list[str]:
    """The slices that are not as expected, and which lanes."""
    wrong = []
    for part in program.slices:
        lanes = disagreements(part, raw, np.asarray(part.expected)) if part.expected is not None else []
        if len(lanes):
            wrong.append(f"{part.label} ({len(lanes)} lanes, first {lanes[0]})")
    return wrong


def answer(program: Program, device: CudaDevice) -> bytes:
    """Run `program` once; its whole output. The driver compiles its PTX."""
    text = program.ptx.encode() + b"\0"
    binary = Binary(text, program.ptx, "k", device.gpu.arch, "driver", Resources(0, 0, 0, 0), "", 0.0)
    content = np.frombuffer(program.input.ljust(256, b"\0"), np.uint8).copy()
    held = {
        "in": torch.from_numpy(content).to(device.torch_device),
        "out": torch.zeros(max(256, program.out_nbytes), dtype=torch.uint8, device=device.torch_device),
    }
    regions = {n: Region(n, t.data_ptr(), t.numel(), writable=n == "out") for n, t in held.items()}
    device.load(binary, program.launch).launch(program.launch, regions)
    return bytes(held["out"].cpu().numpy().tobytes()[: program.out_nbytes])
