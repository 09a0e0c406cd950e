"""The gate's test of itself: which planted kernel ended how, and why.

The same as `evo gate --self-test --json`, with what it depends on. It takes about five minutes on an
H200; the result is written anew after each kernel, so that what was seen is kept whatever ends it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evo.device.open import choose_device
from evo.report.checks import zoo_line, zoo_summary
from evo.selftest.zoo import Zoo
from evo.selftest.zoo_run import Finding, try_zoo
from evo.task import load_task

PROTOCOL = """each planted kernel compiled and gated in a process that may hang or die; what is GREEN goes to
the emulator, as finalists do"""
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zoo", type=Path, help="the kernels to try (default: the task's)")
    parser.add_argument("--task", default="attention", help="whose kernels")
    parser.add_argument("--device", default="cuda", help="cuda:0 or emulator")
    parser.add_argument("--gpu", help="the GPU that the emulator stands for")
    parser.add_argument("--seed", type=int, default=0)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    device, gpu = choose_device(asked.device, asked.gpu, None)
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as cache:
        zoo = Zoo.of(load_task(asked.task), named=asked.zoo)
        for finding in try_zoo(zoo, (), device, gpu, Path(cache), None, asked.seed):
            findings.append(finding)
            print(zoo_line(finding), file=sys.stderr, flush=True)
            yield {"device": device, "seed": asked.seed, **counted(findings)}
    print(zoo_summary(findings), file=sys.stderr)


def counted(findings: Sequence[Finding]) -> dict[str, Any]:
    """The counts, then each finding."""
    honest = [f for f in findings if f.honest]
    planted = [f for f in findings if not f.honest]
    return {
        "planted": len(planted),
        "refused": sum(f.right for f in planted),
        "only_as_finalists": sum(f.right and f.stage == "finalists" for f in planted),
        "for_the_expected_reason": sum(f.reasoned for f in planted),
        "honest": len(honest),
        "green": sum(f.right for f in honest),
        "seconds": round(sum(f.seconds for f in findings), 1),
        "findings": [asdict(f) for f in findings],
    }
