"""What the cache knows of a compiler that has worked here."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from evo.cache import Cache
from evo.compile import find_compiler
from evo.compile.toolkit import Toolkit

SOURCE = 'extern "C" __global__ void k(float* x) { x[0] = 1; }'


@pytest.mark.nvcc
def test_an_nvrtc_that_worked_once_is_not_tried_again(tmp_path: Path) -> None:
    cache, before = Cache(tmp_path), set(psutil.Process().children())
    with find_compiler(None, cache) as first:
        if first.tool != "nvrtc":
            pytest.skip("there is no nvrtc here")
    (seen,) = tmp_path.glob("??/*")
    with find_compiler(None, cache) as again:
        assert again.version == first.version
        assert set(psutil.Process().children()) <= before, "no process has started"
        assert again.compile(SOURCE, "k", "sm_89").compiler == first.version
    cache.write(seen.stem, b"nonsense")
    with find_compiler(None, cache) as third:
        assert third.version == first.version
    assert cache.read(seen.stem) == first.version.encode()


def test_an_nvrtc_whose_files_change_is_another(tmp_path: Path) -> None:
    library = tmp_path / "libnvrtc.so.13"
    library.write_bytes(b"one")
    kit = Toolkit(tmp_path, "PATH", None, library)
    first = kit.fingerprint
    library.write_bytes(b"another")
    assert kit.fingerprint != first
