"""What a process that launches for a tool is told, and that it says how it failed."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from evo.device.driver import gpu_names
from evo.device.launch_once import Request
from evo.task import load_task
from evo.trial import Binary, BufferArg, LaunchConfig, Resources, Workspace


def request() -> Request:
    task = load_task("attention")
    workspaces = (Workspace("partial", 4096), Workspace("tickets", 64, zeroed=True))
    args = tuple(BufferArg(name) for name in (*"qkvo", "partial", "tickets"))
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, args, workspaces=workspaces)
    binary = Binary(b"no cubin", "", "k", "sm_80", "none", Resources(32, 0, 0, 0), "", 0.0)
    return Request.of("cuda:0", binary, launch, task, task.problem("1,2,33,64"), seed=3, times=4)


def test_every_buffer_is_there_and_what_is_written_first_has_no_content() -> None:
    asked = request()
    assert {name: len(content) for name, content in asked.contents.items()} == {
        "q": 2 * 33 * 64 * 2, "k": 2 * 33 * 64 * 2, "v": 2 * 33 * 64 * 2, "tickets": 64
    }  # fmt: skip
    assert asked.sizes == {"o": 2 * 33 * 64 * 2, "partial": 4096}
    assert asked.contents["tickets"] == bytes(64)
    assert asked.contents["q"] != asked.contents["k"]
    assert asked == request()


def test_the_process_reads_the_request(tmp_path: Path) -> None:
    program = request().write(tmp_path / "request")
    assert pickle.loads((tmp_path / "request").read_bytes()) == request()
    if gpu_names():
        pytest.skip("there is a GPU")
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "no NVIDIA driver" in done.stderr
