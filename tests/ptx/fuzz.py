"""Mutation fuzzer for the PTX parser and, where a mutant still parses, for the machine.

    python tests/ptx/fuzz.py --seconds 600 [--library libevo_ptx.so] [--keep crashes/]

A child parses and runs mutants of the conformance programs; before each it writes the mutant's number down. When
the child dies or is silent for too long, the parent writes the mutant to a file, starts a new child behind it, and
in the end exits with 1. A mutant is a function of its number alone: `--only 1234` runs that one again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import sys
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from evo.device.emulator import interpreter as abi
from evo.device.emulator import load_interpreter
from evo.trial import LaunchConfig
from ptx.catalogue import programs
from ptx.running import aligned

SILENT_S = 60.0
BUDGET = 20_000
WORDS = (".reg", ".param", ".shared", ".v4", ".f32", ".b64", ".entry", ".loc 1 2 3", "@%p0", "bra", "{", "}", ";", ",",
         "[", "]", "//", "/*", "*/", '"', "0x", "0f7F800000", "0d", "-1", "%tid.x", "%r999999999", "<4294967295>",
         "99999999999999999999", "call", "ret", ".func", ".align 3", ".const", "\0", "\xff", "::", "..",
         "|")  # fmt: skip


def seeds() -> list[tuple[str, LaunchConfig]]:
    """Programs to start from: the smaller ones, whole, and slices of the long ones."""
    found = []
    for program in programs():
        text = program.ptx
        if len(text) > 20_000:  # keep the head and a few scopes, so that a mutation has a chance to matter
            scopes = re.findall(r"^\{\n.*?^\}\n", text, flags=re.M | re.S)
            if scopes:
                text = text[: text.index(scopes[0])] + "".join(scopes[1:9]) + "ret;\n}\n"
        found.append((text, program.launch))
    return found


def mutant(number: int, start: list[tuple[str, LaunchConfig]]) -> tuple[str, LaunchConfig]:
    """The mutant of that number."""
    dice = random.Random(number)
    text, launch = dice.choice(start)
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        lines = text.split("\n")
        i, j = dice.randrange(len(lines)), dice.randrange(len(lines))
        at, to = dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)
        match dice.randrange(10):
            case 0:
                text = "\n".join(lines[:i] + lines[i + 1 :])
            case 1:
                text = "\n".join([*lines[:i], lines[j], *lines[i:]])
            case 2:
                lines[i], lines[j] = lines[j], lines[i]
                text = "\n".join(lines)
            case 3:
                text = text[:at] + dice.choice(WORDS) + text[at:]
            case 4:
                text = text[:at] + text[min(len(text), at + dice.randrange(1, 9)) :]
            case 5:
                text = text[:at] + chr(dice.randrange(1, 256)) + text[at + 1 :]
            case 6:
                text = (
                    text[: min(at, to)] if dice.random() < 0.3 else text[:at] + text[to : to + 40] + text[at:]
                )
            case 7:
                numbers = list(re.finditer(r"\d+|$", text))
                n = dice.choice(numbers)
                value = dice.choice(
                    ("0", "1", "7", "31", "255", "65536", "4294967295", "18446744073709551616")
                )
                text = text[: n.start()] + value + text[n.end() :]
            case 8:
                words = list(re.finditer(r"[.%]?[a-z]\w*|$", text))
                a, b = dice.choice(words), dice.choice(words)
                text = text[: a.start()] + b.group() + text[a.end() :]
            case _:
                registers = list(re.finditer(r"%?\b[rdhfep]\d+\b", text))
                if registers:
                    a, b = dice.choice(registers), dice.choice(registers)
                    text = text[: a.start()] + b.group() + text[a.end() :]
        text = text or "\n"
    return text, launch


def attempt(library: abi.Interpreter, text: str, launch: LaunchConfig) -> str:
    """Parse and, if that works, run `text`; how it ended."""
    try:
        module = library.parse(text)
    except abi.PtxError:
        return "refused"
    memory = aligned(1 << 16)
    order = abi.LaunchOrder(late_copies=True, late_wgmma=True, order=2, seed=1)
    ended = "empty"
    for entry in module.entries.values():
        block = bytearray(max(8, entry.param_nbytes))
        if entry.param_nbytes > 1 << 16:
            return "huge parameters"
        for i in range(0, len(block) - 7, 8):
            block[i : i + 8] = memory.ctypes.data.to_bytes(8, "little")
        regions = [abi.Memory("m", memory.ctypes.data, memory.nbytes, True, False)]
        run = module.run(entry, launch, bytes(block), regions, order, instruction_budget=BUDGET)
        ended = library.kind_name(run.fault.kind) if run.fault else "ok"
    return ended


def _work(library: str, first: int, step: int, at: Synchronized[int]) -> None:
    loaded = abi.Interpreter(Path(library)) if library else load_interpreter()
    start = seeds()
    number = first
    while True:
        at.value = number
        attempt(loaded, *mutant(number, start))
        number += step


def fuzz(
    seconds: float, library: str = "", keep: Path | None = None, first: int = 0, least: int = 0
) -> tuple[int, list[str]]:
    """Fuzz for a time, the start of processes not counted, and until the `least` number of mutants was tried;
    how many there were and what went wrong, a line each."""
    context = multiprocessing.get_context("spawn")
    at: Synchronized[int] = context.Value("q", first, lock=False)
    spent = 0.0
    wrong: list[str] = []
    number = first
    while spent < seconds or number - first < least:
        child = context.Process(target=_work, args=(library, number, 1, at), daemon=True)
        at.value = number - 1
        child.start()
        while child.is_alive() and at.value < number:
            child.join(0.05)
        begin = time.monotonic()
        last, moved = at.value, begin
        while child.is_alive() and (spent + time.monotonic() - begin < seconds or at.value - first < least):
            child.join(0.2)
            if at.value != last:
                last, moved = at.value, time.monotonic()
            elif time.monotonic() - moved > SILENT_S:
                break
        spent += time.monotonic() - begin
        number = max(number, at.value)
        if not child.is_alive():
            wrong.append(f"mutant {number}: the process died with {child.exitcode}")
        elif time.monotonic() - moved > SILENT_S:
            wrong.append(f"mutant {number}: no end after {SILENT_S:.0f} s")
        if wrong and keep and wrong[-1].startswith(f"mutant {number}:"):
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"mutant-{number}.ptx").write_text(mutant(number, seeds())[0])
        child.kill()
        child.join()
        number += 1
    return number - first, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--library", default="", help="a built libevo_ptx.so [default: the cached one]")
    parser.add_argument("--keep", type=Path, help="folder for mutants that went wrong")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--only", type=int, help="run this mutant in this process")
    options = parser.parse_args()
    if options.only is not None:
        text, launch = mutant(options.only, seeds())
        print(text)
        loaded = abi.Interpreter(Path(options.library)) if options.library else load_interpreter()
        print(attempt(loaded, text, launch))
        return 0
    tried, wrong = fuzz(options.seconds, options.library, options.keep, options.first)
    print(*wrong, f"{tried} mutants in {options.seconds:.0f} s, {len(wrong)} went wrong", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
