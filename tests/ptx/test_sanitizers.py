"""The interpreter under the address and undefined-behaviour sanitizers, and its parser under a fuzzer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evo.device.emulator import built_interpreter
from ptx import sanitized
from ptx.fuzz import fuzz


def test_mutated_ptx_neither_crashes_nor_hangs() -> None:
    built_interpreter()  # built here, not in the fuzzer's few seconds
    tried, wrong = fuzz(2, least=200)
    assert not wrong
    assert tried >= 200


@pytest.mark.slow  # it compiles the interpreter again, for more than a minute
@pytest.mark.skipif(not shutil.which("g++"), reason="the sanitizers' runtime is found through g++")
def test_sanitizers_find_nothing() -> None:
    built_interpreter(extra_flags=sanitized.FLAGS)  # by a compiler that runs without the sanitizer
    # the C++ runtime too: the sanitizer looks for what it wraps when it starts, before the library is loaded
    runtime = [_runtime(name) for name in ("libasan.so", "libstdc++.so.6")]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtime),
        # Python itself keeps memory until the end; torch is not loaded
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    script = Path(sanitized.__file__)
    done = subprocess.run(
        [sys.executable, str(script), "10"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "runtime error" not in done.stderr


def _runtime(name: str) -> str:
    told = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return told.stdout.strip()
