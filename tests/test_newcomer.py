"""The path of a person who has a .cu file, by steps: install, make a task, search, break the kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import ROOT

SAXPY = re.compile(r"^`saxpy\.cu` is plain CUDA.*?```cuda\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUDGET_S = 30


@pytest.mark.nvcc
@pytest.mark.slow  # it downloads torch and a compiler, and searches for half a minute
def test_from_an_empty_folder_to_a_ranked_kernel_and_to_a_planted_fault(tmp_path: Path) -> None:
    """`-s` prints the seconds."""
    text = (ROOT / "docs" / "your-own-kernel.md").read_text()
    found = SAXPY.search(text)
    assert found
    (tmp_path / "saxpy.cu").write_text(found[1])
    binaries = tmp_path / "venv" / "bin"
    env = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    env.pop("PYTHONPATH", None)

    def step(*words: str, code: int = 0) -> str:
        begin = time.monotonic()
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - begin:7.1f} s  {' '.join(map(str, words))}")
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    step(sys.executable, "-m", "venv", "venv")
    step(str(binaries / "pip"), "install", "-q", str(ROOT))
    assert "works" in step("evo", "doctor")
    step("evo", "new", "saxpy", "--from", "saxpy.cu")
    assert re.search(
        r"[1-9]\d* trials, [1-9]\d* correct", step("evo", "search", "saxpy", "--budget", f"{BUDGET_S}s")
    )
    assert "saxpy-1/" in step("evo", "leaderboard")
    kernel = tmp_path / "tasks" / "saxpy" / "saxpy.cu"
    kernel.write_text(kernel.read_text().replace("if (i < n) ", ""))
    wrong = step("evo", "try", "saxpy", code=4)
    assert re.search(r"reason +out of bounds", wrong)
    assert re.search(r"source +line \d+: y\[i\] = 2 \* x\[i\] \+ y\[i\];", wrong)
    assert "RED out of bounds" in step("evo", "search", "saxpy", "--budget", "10s", code=4)
