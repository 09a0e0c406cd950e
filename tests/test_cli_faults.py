"""Broken templates and broken machines, as a person meets them: real processes and the real compiler."""

from __future__ import annotations

import contextlib
import json
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import optuna
import pytest
import sqlalchemy
import torch
from command import ROOT, SMALL, Evo, altered, run_evo, trials

import evo as evo_package

SYSTEM = "/usr/bin:/bin"

pytestmark = pytest.mark.nvcc


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("row_warp.cu.jinja", "{{ step }}", "{{ step"), r"row_warp\.cu\.jinja:\d+: "),
        (
            ("row_warp.cu.jinja", "{{ step }}", "{{ stage }}"),
            r"row_warp\.cu\.jinja:7: hole stage has neither",
        ),
        (
            ("row_warp.py", "def threads(p, problem):", "def threads(p, problem)"),
            r"row_warp\.py:\d+: expected ':'",
        ),
        (
            ("row_warp.py", "p.step <= problem", "p.stage <= problem"),
            r"row_warp\.py:\d+: .*no parameter stage",
        ),
        (
            ("row_warp.py", "return p.step <=", "return p.step >"),
            "no point is feasible: the rules reject all 20",
        ),
        (
            ("row_warp.py", 'ENTRY = "row_warp"', 'ENTRY = "warp_row"'),
            "no function warp_row .*10 points in a row",
        ),
    ],
)
def test_a_broken_template_is_told_with_file_and_line(
    tmp_path: Path, row_warp: Path, evo: Evo, change: tuple[str, str, str], error: str
) -> None:
    said = evo("search", "--budget", "2m", *SMALL, *altered(row_warp, tmp_path, *change))
    assert said.code == 2, said.err
    assert re.search(f"^error: .*{error}", said.err, re.MULTILINE), said.err
    assert re.search("^hint: .", said.err, re.MULTILINE)
    assert "Traceback" not in said.err


def test_a_template_that_never_compiles_ends_the_search(tmp_path: Path, four_points: Path, evo: Evo) -> None:
    words = altered(four_points, tmp_path, "row_warp.cu.jinja", "exp2f(", "exp3f(")
    said = evo("search", "--budget", "10m", *SMALL, *words, "--workers", "1")
    assert said.code == 4
    assert "UNCOMPILABLE" in said.err
    assert "exp3f" in evo("show", "attention-1/0").out
    assert {outcome for _, outcome in trials(tmp_path)} == {"UNCOMPILABLE"}


def test_no_compiler(tmp_path: Path) -> None:
    """PATH without nvcc, and a Python that finds no wheels of one."""
    if shutil.which("nvcc", path=SYSTEM):
        pytest.skip("the system's own folders have an nvcc")
    blind = tmp_path / "blind" / "nvidia"
    blind.mkdir(parents=True)
    (blind / "__init__.py").touch()
    done = run_evo(tmp_path, "search", "--budget", "2m", *SMALL, PATH=SYSTEM, PYTHONPATH=str(blind.parent))
    assert done.returncode == 3, done.stderr
    assert "error: no CUDA compiler found" in done.stderr
    assert "hint: pip install" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_database_that_cannot_be_made(tmp_path: Path, evo: Evo) -> None:
    (tmp_path / "file").touch()
    said = evo("search", "--budget", "2m", *SMALL, "--database", "file/evo.db")
    assert said.code == 3, said.err
    assert "error: " in said.err
    assert "file/evo.db" in said.err
    assert "hint: " in said.err


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 320 KB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here (it takes root)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path, tiny_disk: Path) -> None:
    done = run_evo(
        tmp_path, "search", "--budget", "3m", *SMALL, "--workers", "1", "--database", "tiny/evo.db"
    )
    assert done.returncode == 3, done.stderr
    assert "the disk is full" in done.stderr
    assert "evo resume" in done.stderr
    assert "Traceback" not in done.stderr
    kept = tmp_path / "kept.db"
    shutil.copy(tiny_disk / "evo.db", kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(tiny_disk / f"evo.db{suffix}", f"{kept}{suffix}")
    assert len(trials(tmp_path, "kept.db")) > 0


def test_doctor_finds_what_is_there_and_what_is_not(
    tmp_path: Path, evo: Evo, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = evo("doctor", "--json")
    findings = {f["check"]: f for f in json.loads(said.out)}
    assert said.code == 0, said.out
    assert findings["compiler"]["status"] == "works"
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATH", "/nowhere")
    broken = evo("doctor", "--database", "file/evo.db")
    assert broken.code == 3
    for line in broken.out.splitlines():
        if re.search(r"^(host compiler|database) ", line):
            assert re.search(r"absent|broken", line)


def test_doctor_says_what_is_compiled_in_every_process(
    tmp_path: Path, evo: Evo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "compiled"))

    def finding() -> dict[str, str]:
        said: list[dict[str, str]] = json.loads(evo("doctor", "--json").out)
        return next(f for f in said if f["check"] == "byte code")

    assert finding()["status"] == "absent"
    for package in (torch, evo_package, numpy, sqlalchemy):
        py_compile.compile(str(package.__file__))  # what the advice does, of one module
    assert finding()["found"].startswith("modules of optuna are not compiled")
    assert finding()["advice"].endswith(str(Path(optuna.__file__).parent))
    py_compile.compile(optuna.__file__)
    assert finding()["advice"] == ""
    assert finding()["status"] == "works"


@pytest.mark.slow
def test_the_gate_is_tried_on_planted_kernels(tmp_path: Path) -> None:
    cheats = ROOT / "templates" / "attention" / "cheats"
    shutil.copytree(cheats / "include", tmp_path / "zoo" / "include")
    shutil.copy(cheats / "guess_zeros.cu", tmp_path / "zoo")
    done = run_evo(tmp_path, "gate", "--self-test", "--device", "emulator", "--zoo", "zoo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ok +guess_zeros +RED ", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith(
        "1 of 1 planted kernels refused (1 for the expected reason)"
    )
    assert run_evo(tmp_path, "gate").returncode == 2
    assert (
        run_evo(tmp_path, "gate", "--self-test", "--device", "emulator", "--zoo", "nowhere").returncode == 2
    )
