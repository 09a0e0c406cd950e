"""Record what a GPU answers to every PTX conformance program, as test data for the emulator.

    python benchmarks/record_conformance.py --out recorded.xz      # then: mv recorded.xz tests/ptx/

Needs a Hopper GPU (the programs hold sm_90a instructions) and cuda-bindings; takes seconds. Prints one line a
program: how many slices disagree with their exact expectation, which is a fault of the expectation or of
this GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

import numpy as np
import torch
from ptx.catalogue import programs, save
from ptx.programs import Program, disagreements

from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.errors import CandidateError
from evo.trial import Binary, Resources


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("recorded.xz"), help="file to write")
    parser.add_argument("--only", default="", help="record programs whose name contains this")
    options = parser.parse_args()
    device = CudaDevice(0)
    begin = time.perf_counter()
    answers: dict[str, bytes] = {}
    failed = 0
    for program in programs():
        if options.only not in program.name:
            continue
        try:
            raw = answer(program, device)
        except CandidateError as error:
            failed += 1
            print(f"{program.name}: {error}", flush=True)
            if not device.usable:
                print("the context is lost; the programs after this one are not recorded")
                break
            continue
        answers[program.name] = raw
        wrong = []
        for part in program.slices:
            if part.expected is not None:
                lanes = disagreements(part, raw, np.asarray(part.expected))
                wrong += [f"{part.label} ({len(lanes)} lanes, first {lanes[0]})"] if lanes else []
        print(
            f"{program.name}: {len(program.slices)} slices" + "".join(f"\n  unexpected: {w}" for w in wrong),
            flush=True,
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save(options.out, device.name, answers)
    seconds = time.perf_counter() - begin
    size = options.out.stat().st_size
    print(f"{len(answers)} programs on {device.name} in {seconds:.1f} s, {failed} failed; {size} bytes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
