"""Shared libraries of C++: built once, kept by what they are made of."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from evo.cache import Cache
from evo.compile import build_shared_library
from evo.errors import MachineError


def test_a_shared_library_is_built_once(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("there is no C++ compiler here")
    (tmp_path / "one.h").write_text("int two();")
    (tmp_path / "one.cpp").write_text('#include "one.h"\nextern "C" int one() { return two() - 1; }')
    (tmp_path / "two.cpp").write_text("int two() { return 2; }")
    sources, headers = [tmp_path / "one.cpp", tmp_path / "two.cpp"], [tmp_path / "one.h"]
    said: list[str] = []
    cache = Cache(tmp_path / "cache")
    library = build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers)
    assert ctypes.CDLL(str(library)).one() == 1
    assert len(said) == 2
    assert build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers) == library
    assert len(said) == 2
    (tmp_path / "two.cpp").write_text("int two() { return 3; }")
    other = build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers)
    assert ctypes.CDLL(str(other)).one() == 2
    assert sorted(path.name for path in other.parent.iterdir()) == [".entry.json", "libdemo.so"]


def test_a_shared_library_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.cpp").write_text("int one( {")
    with pytest.raises(MachineError, match=r"bad\.cpp:1"):
        build_shared_library("bad", [tmp_path / "bad.cpp"], [], Cache(tmp_path / "cache"))
    assert not [p for p in (tmp_path / "cache").glob("*/*") if p.is_dir()]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"no C\+\+ compiler"):
        build_shared_library("bad", [tmp_path / "bad.cpp"], [], Cache(tmp_path / "cache"))


@pytest.mark.parametrize("jobs", [2, 64])
def test_a_header_that_all_begin_with_may_be_parsed_once(tmp_path: Path, jobs: int) -> None:
    if not shutil.which("g++"):
        pytest.skip("there is no C++ compiler here")
    (tmp_path / "all.hpp").write_text("#pragma once\ninline int two() { return 2; }")
    (tmp_path / "one.cpp").write_text('#include "all.hpp"\nextern "C" int one() { return two() - 1; }')
    header, sources, cache = tmp_path / "all.hpp", [tmp_path / "one.cpp"], Cache(tmp_path / "cache")
    library = build_shared_library(
        "demo", sources, ["-O1"], cache, headers=[header], shared=header, jobs=jobs
    )
    assert ctypes.CDLL(str(library)).one() == 1
    assert sorted(path.name for path in library.parent.iterdir()) == [".entry.json", "libdemo.so"]
