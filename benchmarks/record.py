"""The one place that writes a benchmark's result, together with everything that the result depends on.

A result is a JSON file with these fields:

    gpu        the name of the GPU, or "none"
    cpu        the processor and its number of cores
    driver     the version of NVIDIA's driver, or "none"
    versions   of Python, evo, torch, numpy, the compiler and what else was installed of `PACKAGES`
    commit     the commit of the tree that ran, 40 hexadecimal digits
    clean      true if no tracked file differed from that commit
    date       when the result was written, UTC
    protocol   one or two sentences: what was measured, and how
    command    the command that measures it again
    results    the figures

Git says what the commit is; there is no option for it. On a machine that has a copy of the tree without
`.git`, the file `.commit` beside `pyproject.toml` says it. Write that file before the tree is copied, and
copy it too (git ignores it). Where the copy has a `.git` of its own with another commit, remove that:

    git describe --always --abbrev=40 --dirty --exclude='*' > .commit

Results that are older than this form of the files say "not recorded" where a field is not known.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIELDS = ("gpu", "cpu", "driver", "versions", "commit", "clean", "date", "protocol", "command", "results")
PACKAGES = ("torch", "numpy", "optuna", "triton", "nvidia-cudnn-cu13", "flash-attn-4", "flashinfer-python")
DESCRIBE = ("git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")


def record(results: dict[str, Any], protocol: str, command: str, on_gpu: bool) -> dict[str, Any]:
    """A result with all fields; see `surroundings`."""
    return finished(surroundings(protocol, command, on_gpu), results)


def surroundings(protocol: str, command: str, on_gpu: bool) -> dict[str, Any]:
    """All fields but the figures, to be asked for before anything is measured. `on_gpu`: whether the GPU of
    this machine, if there is one, takes part. SystemExit where evo is imported from another tree."""
    import evo

    if Path(evo.__file__).resolve().parents[1] != ROOT:
        raise SystemExit(
            f"error: evo is imported from {evo.__file__}, not from {ROOT}\nhint: PYTHONPATH={ROOT}"
        )
    gpu, driver = gpu_and_driver() if on_gpu else ("none", "none")
    commit, clean = commit_and_clean(ROOT)
    return {
        "gpu": gpu,
        "cpu": cpu(),
        "driver": driver,
        "versions": versions(),
        "commit": commit,
        "clean": clean,
        "date": "",
        "protocol": " ".join(protocol.split()),
        "command": command,
    }


def finished(about: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """The result: `about` with the date of now, and the figures."""
    return {**about, "date": datetime.now(UTC).isoformat(timespec="seconds"), "results": results}


def write(path: Path, entry: dict[str, Any]) -> None:
    """Replaces the file at once, so that it is whole whatever ends the benchmark."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def commit_and_clean(root: Path) -> tuple[str, bool]:
    """The commit of the tree in `root`, and whether its tracked files are those of the commit. SystemExit
    where neither git nor the file `.commit` says it."""
    said = root / ".commit"
    if (root / ".git").exists():
        done = subprocess.run(DESCRIBE, cwd=root, capture_output=True, text=True, check=True)
        described = done.stdout.strip()
    elif said.is_file():
        described = said.read_text().strip()
    else:
        raise SystemExit(
            f"error: no commit known: {root} has neither .git nor .commit\n"
            f"hint: where the tree was copied from, run: {' '.join(DESCRIBE)} > .commit; copy that file, too"
        )
    commit = described.removesuffix("-dirty")
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise SystemExit(f"error: not a commit: {described!r} in {said}")
    return commit, not described.endswith("-dirty")


def gpu_and_driver() -> tuple[str, str]:
    """The name of the first GPU and the driver's version; ("none", "none") on a machine without one."""
    gpus, driver = gpus_and_driver()
    return (gpus[0], driver) if gpus else ("none", "none")


def gpus_and_driver() -> tuple[list[str], str]:
    """The names of all GPUs and the driver's version; ([], "none") on a machine without one."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return [], "none"
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    named = [line.rsplit(", ", 1) for line in lines]
    return [name for name, _ in named], named[0][1] if named else "none"


def cpu() -> str:
    """The processor's name as Linux has it, and how many cores this process may use."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def versions() -> dict[str, str]:
    """Names and versions of what a figure may depend on."""
    from evo.version import __version__

    found = {"python": platform.python_version(), "evo": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"compiler": compiler()}


def compiler() -> str:
    """The compiler that `evo` finds here, and its version; "none" where there is none."""
    from evo.cache import Cache
    from evo.compile import find_compiler
    from evo.errors import EvoError

    try:
        with find_compiler(None, Cache(ROOT / "build" / "compiler")) as found:
            return found.version
    except EvoError:
        return "none"
