"""Shared libraries of C++: built once, kept by what they are made of."""

from __future__ import annotations

import ctypes
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from evo.cache import Build, BuildLines, Cache
from evo.compile import build_shared_library
from evo.errors import MachineError
from evo.report.builds import BuildView


def test_a_shared_library_is_built_once(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("there is no C++ compiler here")
    (tmp_path / "one.h").write_text("int two();")
    (tmp_path / "one.cpp").write_text('#include "one.h"\nextern "C" int one() { return two() - 1; }')
    (tmp_path / "two.cpp").write_text("int two() { return 2; }")
    sources, headers = [tmp_path / "one.cpp", tmp_path / "two.cpp"], [tmp_path / "one.h"]
    said: list[Build] = []
    cache = Cache(tmp_path / "cache")
    library = build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers)
    assert ctypes.CDLL(str(library)).one() == 1
    assert [(build.name, build.done, build.total) for build in said] == [("demo", i, 3) for i in range(4)]
    assert build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers) == library
    assert len(said) == 4
    (tmp_path / "two.cpp").write_text("int two() { return 3; }")
    other = build_shared_library("demo", sources, ["-O1"], cache, said.append, headers=headers)
    assert ctypes.CDLL(str(other)).one() == 2
    assert sorted(path.name for path in other.parent.iterdir()) == [".entry.json", "libdemo.so"]


def test_a_shared_library_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.cpp").write_text("int one( {")
    said: list[Build] = []
    with pytest.raises(MachineError, match=r"bad\.cpp:1"):
        build_shared_library("bad", [tmp_path / "bad.cpp"], [], Cache(tmp_path / "cache"), said.append)
    assert [build.ended for build in said] == [False, False, True]
    assert said[-1].failed
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


BUILDS = [Build("demo", done, 3, 6.0 * done) for done in range(4)]


def test_builds_are_told_of_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for every_s, between in (
        (3600.0, []),
        (0.0, ["building demo: 1 of 3 steps, 6 s", "building demo: 2 of 3 steps, 12 s"]),
    ):
        lines = BuildLines(every_s)
        for build in BUILDS:
            lines(build)
        first = "building demo in 3 steps: it takes a while, once"
        assert capsys.readouterr().err.splitlines() == [first, *between, "built demo in 18.0 s"]


def test_a_build_is_a_bar_on_a_terminal_and_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (True, False):
        drawn = io.StringIO()
        view = BuildView(Console(file=drawn, force_terminal=terminal, width=80, _environ={"TERM": "xterm"}))
        for build in BUILDS:
            view(build)
        assert ("building demo, once" in drawn.getvalue()) == terminal
        assert ("3/3" in drawn.getvalue()) == terminal
        assert ("building demo in 3 steps" in capsys.readouterr().err) != terminal
        view(BUILDS[0])
        view(replace(BUILDS[1], failed=True))  # it leaves the terminal as it was: an error follows
        assert drawn.getvalue().count("\033[?25h") == drawn.getvalue().count("\033[?25l")
