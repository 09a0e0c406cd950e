"""Headers of the host that NVRTC lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from evo.cache import Cache
from evo.compile import Compiler, toolkits

pytestmark = pytest.mark.nvcc

HOSTED = """
#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
extern "C" __global__ void hosted(float* x, uint32_t n, size_t m, uint8_t* bytes) {
  x[0] = INFINITY, x[1] = FLT_MAX, x[2] = INT_MAX, x[3] = M_PI, x[4] = NAN, x[5] = std::sqrt(x[3]);
  if (n > UINT_MAX / 2 && bytes[m]) printf("%d", (int)min(n, 3u));
}
"""


@pytest.mark.parametrize("tool", ["nvrtc", "nvcc"])
def test_a_source_may_count_on_what_nvcc_has_of_the_host(
    tool: Literal["nvrtc", "nvcc"], tmp_path: Path
) -> None:
    """Headers of C and C++, and what <math.h> defines without being asked for; as by nvcc itself."""
    kits = [kit for kit in toolkits() if getattr(kit, tool)]
    if not kits:
        pytest.skip(f"there is no {tool} here")
    with Compiler(kits[0], tool, Cache(tmp_path)) as compiler:
        assert compiler.compile(HOSTED, "hosted", "sm_80").resources
        unasked = 'extern "C" __global__ void f(float* x) { x[0] = -INFINITY + (uint)INT_MAX; }'
        assert compiler.compile(unasked, "f", "sm_80").resources
