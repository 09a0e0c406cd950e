"""What a run of compute-sanitizer says of a kernel."""

from __future__ import annotations

import pytest

from evo.errors import Crashed, MachineError, Red
from evo.gate.sanitizer import read_verdict

SAID = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at flash_mma+0x3f0 in candidate.cu:706
=========     by thread (31,0,0) in block (1,0,0)
========= Address 0x7f03e2a00400 is out of bounds
========= ERROR SUMMARY: 3 errors
"""


def test_a_sanitizers_complaint_is_red() -> None:
    with pytest.raises(Red, match="3 errors") as caught:
        read_verdict("memcheck", SAID, 0)
    assert caught.value.reason == "memcheck: Invalid __global__ read"
    assert caught.value.where.startswith("flash_mma+0x3f0")


def test_a_sanitizer_that_gives_no_verdict_is_no_pass() -> None:
    with pytest.raises(MachineError, match="gave no verdict") as caught:
        read_verdict("memcheck", "========= Device not supported\n", 0)
    assert "Device not supported" in caught.value.hint
    with pytest.raises(Crashed):
        read_verdict("synccheck", "Traceback\n========= ERROR SUMMARY: 0 errors\n", 1)
    read_verdict("initcheck", "========= ERROR SUMMARY: 0 errors\n", 0)
