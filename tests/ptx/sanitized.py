"""Run every conformance program, under every schedule, on an interpreter built with sanitizers.

A process of its own: the address sanitizer's runtime must be there before Python starts (see test_sanitizers.py).
Exits with 0 when all is well; a sanitizer ends the process otherwise.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from evo.device.emulator import EmulatorDevice, built_interpreter
from evo.device.emulator.interpreter import Interpreter
from evo.errors import CandidateError
from evo.gpu import KNOWN_GPUS
from ptx.catalogue import programs
from ptx.fuzz import attempt, mutant, seeds
from ptx.running import answer

FLAGS = ("-O0", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def main(seconds: float) -> int:
    library = Interpreter(built_interpreter(extra_flags=FLAGS))
    device = EmulatorDevice(KNOWN_GPUS["H200"], interpreter=library)
    for program in programs():
        for schedule in device.schedules:
            try:
                answer(program, schedule, device)
            except CandidateError as error:
                print(f"{program.name} {schedule}: {error}", file=sys.stderr)
    start, begin, number = seeds(), time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        attempt(library, *mutant(number, start))
        number += 1
    print(f"{len(programs())} programs, {number} mutants")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20))
