"""evo.cores: a process that may use some of the machine's cores counts those."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from evo.cores import usable_cores

COUNT = "from evo.cores import usable_cores; print(usable_cores())"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_cores_that_a_job_may_not_use_are_not_counted() -> None:
    allowed = os.sched_getaffinity(0)
    assert usable_cores() == len(allowed)
    one = {min(allowed)}
    said = subprocess.run(
        [sys.executable, "-c", COUNT],
        preexec_fn=lambda: os.sched_setaffinity(0, one),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "1"
