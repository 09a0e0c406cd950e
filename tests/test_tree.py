"""What the tree promises to a person who has just cloned it: documents, leaderboard, package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks import readme as shown

ROOT = Path(__file__).parents[1]
ROOMS = (".", "docs", "kernels", "lab", "benchmarks")
DOCUMENTS = [page for room in ROOMS for page in (ROOT / room).glob("*.md")]


def test_the_tables_of_the_readme_are_the_recorded_ones() -> None:
    readme = (ROOT / "README.md").read_text()
    for block in shown.blocks().values():
        assert block in readme, "run: python benchmarks/readme.py write"


def test_the_picture_of_the_readme_is_drawn_from_the_committed_result() -> None:
    for path, drawn in shown.images().items():
        assert path.read_text() == drawn, "run: python benchmarks/readme.py write"


def test_a_recorded_leaderboard_is_written_as_a_table() -> None:
    row = {
        "problem": "attention B=1 H=8 L=512 D=64 causal=0 fp16",
        "gpu": "NVIDIA H200",
        "template": "flash_mma",
        "point": {"bm": 64},
        "median_us": 8.531,
        "low_us": 8.51,
        "high_us": 8.55,
        "protocol": "warm",
        "baselines_us": {"flash": 10.27, "cudnn": 9.1},
        "speedup": 1.067,
        "speedup_low": 1.062,
        "speedup_high": 1.071,
        "versions": {"torch": "2.11"},
        "date": "2026-01-02",
    }
    block = shown.block({"commit": "0123456789abcdef", "results": {"rows": [row]}})
    assert "| 8.53 µs [8.51, 8.55] | 9.10 µs cudnn | 1.07x [1.06, 1.07] |" in block
    assert "| 9.10 µs cudnn (1.07x) | flash_mma |" in block
    assert "2026-01-02, warm L2." in block
    folded = block[block.index("<details>") : block.index("</details>")]
    assert "- flash_mma: `bm=64`" in folded
    assert "- torch 2.11; commit 0123456789" in folded
    readme = (ROOT / "README.md").read_text()
    written = shown.with_block(readme, shown.LEADERS, block)
    assert block in written
    assert shown.with_block(written, shown.LEADERS, shown.block(shown.read())) == readme


def test_a_leaderboard_on_several_timing_inputs_says_so() -> None:
    row = {
        "problem": "p",
        "gpu": "g",
        "template": "t",
        "point": {},
        "median_us": 5.46,
        "low_us": 5.45,
        "high_us": 5.47,
        "protocol": "warm",
        "baselines_us": {"flash": 10.27, "cudnn": 9.1},
        "speedup": 1.66,
        "speedup_low": 1.65,
        "speedup_high": 1.67,
        "versus": "cudnn",
        "versus_us": 9.05,
        "ranking": "worst",
        "times_us": {"normal": 3.41, "sharp": 5.46},
        "sdpa_speedup": 1.66,
        "fastest_sdpa": "cudnn",
        "fastest_sdpa_us": 9.05,
        "versions": {},
        "date": "2026-01-02",
    }
    block = shown.block({"commit": "0123456789abcdef", "results": {"rows": [row]}})
    assert "| 5.46 µs [5.45, 5.47] (data-dependent 3.41 to 5.46) | 9.05 µs cudnn | 1.66x" in block
    assert "A time is the worst of normal, sharp; a ratio is the smallest of theirs." in block


def anchors(page: Path) -> set[str]:
    """What a link may name of a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text()):
        page = document.parent / target if target else document
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


def test_pages_that_code_names_exist() -> None:
    """In messages, hints and docstrings."""
    for path in (path for room in ("evo", "benchmarks", "templates") for path in (ROOT / room).rglob("*.py")):
        for page in re.findall(r"\bdocs/[\w-]+\.md\b", path.read_text()):
            assert (ROOT / page).exists(), f"{path.relative_to(ROOT)}: {page}"


def test_every_document_is_found_from_the_readme() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert "docs/index.md" in (ROOT / "README.md").read_text()
    for path in ROOT.glob("docs/*.md"):
        assert path.name == "index.md" or f"({path.name})" in index, path.name


def test_a_wheel_from_the_sdist_works_outside_the_tree(tmp_path: Path) -> None:
    """Templates, the emulator's sources and the migrations travel as package data."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path), "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True, timeout=500)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Debian 12's Python 3.11.2
        archive.extractall(tmp_path)
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run([*build, "wheel"], cwd=unpacked, check=True, capture_output=True, timeout=500)
    site, outside = tmp_path / "site", tmp_path / "outside"
    outside.mkdir()
    wheel = str(next(tmp_path.glob("*.whl")))
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--target",
        str(site),
    ]
    subprocess.run([*install, wheel], check=True, capture_output=True, timeout=500)

    def evo(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [sys.executable, str(site / "bin" / "evo"), *words]
        done = subprocess.run(
            command, cwd=outside, env=environment, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert evo("--version").startswith("evo ")
    spaces = json.loads(evo("space", "--gpu", "H200", "--json"))
    assert {"scalar", "wmma", "flash_mma"} <= {space["template"] for space in spaces}
    where = "import evo.store, evo.task; print(evo.__file__); evo.store.Store('new.db').close()"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=outside,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.startswith(str(site))
    assert (outside / "new.db").exists()
    zoo = {path.name for path in (ROOT / "templates/attention/cheats").glob("*.cu")}
    assert {path.name for path in (site / "evo/templates/attention/cheats").glob("*.cu")} == zoo
    assert {path.name for path in (site / "evo/device/emulator/ptx").iterdir()} == {
        path.name for path in (ROOT / "evo/device/emulator/ptx").iterdir() if path.is_file()
    }
