"""`evo bench` over shapes, kept with what it depends on: champions and baselines side by side.

    python benchmarks/side_by_side.py --commit COMMIT --out benchmarks/results/bench-h200.json --shapes seeds

What follows is what `evo bench` takes; its plot lies beside FILE as .svg.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from evo.cli import main as evo


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options, words = parser.parse_known_args()
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = evo(["bench", "--json", "--plot", str(options.out.with_suffix(".svg")), *words])
    if code:
        return code
    sheets = json.loads(told.getvalue())
    record = {
        "command": f"python benchmarks/side_by_side.py --out {options.out} {' '.join(words)}",
        "commit": options.commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": sheets[0]["device"],
        "versions": sheets[0]["versions"],
        "protocol": "warm L2, graph replays, rounds and intervals of CONFIRMED; thorough gate before",
        "sheets": sheets,
    }
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
