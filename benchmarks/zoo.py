"""The gate's test of itself on a GPU, as a record: which planted kernel ended how, and why. Writes JSON.

    python benchmarks/zoo.py --commit COMMIT --out benchmarks/results/zoo-h200.json

The same as `evo gate --self-test --device cuda:0 --json`, with what it depends on. It takes about 90 s; the
record is written anew after each kernel, so that what was seen is kept whatever ends it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from evo.rig import choose_device, try_zoo

from evo.cache import Cache
from evo.compile.nvcc import find_compiler
from evo.device.cuda import CudaDevice
from evo.evaluate import versions_of
from evo.report.checks import zoo_line, zoo_summary
from evo.selftest.zoo import Finding


def record(findings: Sequence[Finding], about: dict[str, Any]) -> dict[str, Any]:
    """What is written: the counts, then each finding."""
    honest = [f for f in findings if f.says == "nothing is wrong"]
    planted = [f for f in findings if f.says != "nothing is wrong"]
    return {
        **about,
        "planted": len(planted),
        "refused": sum(f.right for f in planted),
        "only_as_finalists": sum(f.right and f.stage == "finalists" for f in planted),
        "for_the_expected_reason": sum(f.reasoned for f in planted),
        "honest": len(honest),
        "green": sum(f.right for f in honest),
        "seconds": round(sum(f.seconds for f in findings), 1),
        "findings": [asdict(f) for f in findings],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", type=Path, help="the kernels to try (default: those of evo)")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device, gpu = choose_device("cuda", None, None)
    with find_compiler(None, Cache(asked.cache)) as compiler:
        card = CudaDevice(int(device.removeprefix("cuda:")), compiler)
        about = {
            "command": "python benchmarks/zoo.py",
            "commit": asked.commit,
            "date": datetime.now(UTC).date().isoformat(),
            "gpu": card.name,
            "versions": versions_of(card) | {"compiler": compiler.version},
            "protocol": "each planted kernel compiled and gated in a process that may hang or die; what is "
            f"GREEN goes to the emulator, as finalists do; seed {asked.seed}",
        }
        card.close()
    began, findings = time.perf_counter(), []
    for finding in try_zoo(asked.zoo, device, gpu, asked.cache, None, asked.seed):
        findings.append(finding)
        print(zoo_line(finding), flush=True)
        asked.out.write_text(json.dumps(record(findings, about), indent=1) + "\n")
    print(f"{zoo_summary(findings)}; {time.perf_counter() - began:.0f} s on the clock")


if __name__ == "__main__":
    main()
