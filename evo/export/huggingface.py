"""The layout of Hugging Face `kernels`: a source project, and its pure-Python build, which needs no Nix.

kernels 0.17.2 reads both, finds no fault with the digests, and loads the build by `get_local_kernel` (seen
without a GPU, where torch was told to be one for CUDA)."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path

from evo.export.bundle import Bundle
from evo.export.python import LICENSE, write_package
from evo.export.readme import readme

VARIANT = "torch-cuda"
VERSION = 0
"""By the Hub's convention not yet promised to stay as it is."""


def write_huggingface(bundle: Bundle, folder: Path, library: Path | None) -> None:
    """build.toml and torch-ext/, and build/torch-cuda/ with its metadata.json: what `get_kernel` loads."""
    name = bundle.module.replace("_", "-")
    write_package(bundle, folder / "torch-ext" / bundle.module, library)
    built = folder / "build" / VARIANT
    shutil.copytree(folder / "torch-ext" / bundle.module, built)
    archs = sorted({_capability(arch) for one in bundle.kernels for arch in one.binaries})
    about = {
        "id": bundle.namespace,
        "name": name,
        "version": VERSION,
        "license": LICENSE,
        "python-depends": [],
        "backend": {"type": "cuda", "archs": archs},
        "digest": {"algorithm": "sha256", "files": _digests(built)},
    }
    (built / "metadata.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    (folder / "build.toml").write_text(_BUILD.format(name=name, license=LICENSE, version=VERSION), "utf-8")
    (folder / "README.md").write_text(_CARD.format(license="apache-2.0") + readme(bundle), "utf-8")


def _capability(arch: str) -> str:
    """ "9.0a" of "sm_90a"."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}{arch.removeprefix('sm_')[len(digits) :]}"


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, in base64."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): base64.b64encode(
            hashlib.sha256(path.read_bytes()).digest()
        ).decode()
        for path in files
    }


_BUILD = """[general]
name = "{name}"
edition = 5
version = {version}
license = "{license}"
backends = ["cuda"]

[torch-noarch]
"""
_CARD = """---
license: {license}
library_name: kernels
---

"""
