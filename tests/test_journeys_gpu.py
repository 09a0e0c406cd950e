"""The journey of other people's tasks on a GPU: toys and examples are found, CONFIRMED and compared.

All of them share one GPU, which each needs for itself while it times and compiles baselines: more than four
tests at once only wait for each other. EVO_TEST_TIMES names a file that gets a line for each command when it
ends, with its seconds."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, Evo
from test_cli_toys import TOYS
from test_cuda import needs_gpu
from test_examples import TINY

from evo.device.driver import gpu_names

TASKS = {name: (ROOT / "tests/toys" / name, shape, flags) for name, (_, shape, flags) in TOYS.items()} | {
    name: (ROOT / "examples" / name, shape, []) for name, shape in TINY.items()
}
"""Task -> its folder, a small shape, flags."""


def note_seconds(name: str, command: str, begin: float) -> None:
    """A line of EVO_TEST_TIMES, where that is set: what is cut off has been told as far as it came."""
    if path := os.environ.get("EVO_TEST_TIMES"):
        with Path(path).open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - begin:7.1f} s  {name} {command}\n")


@needs_gpu
@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_a_persons_folder_is_served_on_a_gpu(
    evo: Evo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # by default each confirm worker starts as many of torch's compilers as there are cores
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "4")
    source, shape, flags = TASKS[name]
    shutil.copytree(source, tmp_path / "mine" / name)
    templates = ["--templates", str(tmp_path / "mine")]
    problem = ["--shape", shape, *flags]

    def told(*words: str) -> str:
        begin = time.monotonic()
        said = evo(*words)
        note_seconds(name, words[0], begin)
        assert said.code == 0, f"evo {' '.join(words)}: {said.err}"
        assert "Traceback" not in said.err
        return said.out

    words = ["--device", "cuda:0", "--budget", "6s", "--study", "s", "--workers", "2", "--json"]
    ranked = json.loads(told("search", name, *templates, *problem, *words))
    assert ranked[0]["median_us"]
    assert json.loads(told("confirm", "s", "--top", "1", "--json"))
    row = json.loads(told("leaderboard", "--study", "s", "--json"))[0]
    assert row["kind"] == "confirmed"
    best = f"s/{row['number']}"
    assert "· TIMED" in told("show", best)
    (sheet,) = json.loads(told("bench", name, *templates, "--trial", best, *problem, "--quick", "--json"))
    assert sheet["standings"][best]["times"]
    assert told("replay", best).startswith("same source and launch\n")
    assert json.loads(told("emulate", best, "--json"))["runs"]
    told("promote", best)
    assert json.loads(told("champion", name, *templates, *problem, "--gpu", gpu_names()[0], "--json"))[
        "launch"
    ]
    told("report", "s", "-o", "report.html")
    if (tmp_path / "mine" / name / "cheats").is_dir():
        findings = json.loads(told("gate", name, *templates, "--self-test", "--device", "cuda:0", "--json"))
        assert findings
        assert all(found["right"] for found in findings), [f for f in findings if not f["right"]]


@needs_gpu
def test_the_kernel_of_the_page_on_python_is_tuned_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told: dict[str, Any] = {"__name__": "__main__"}
    begin = time.monotonic()
    exec(re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)[0], told)
    note_seconds("page", "tune", begin)
    best = told["study"].best
    assert best.status == "TIMED"
    assert best.median_us > 0
