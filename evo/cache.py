"""A content-addressed cache of built things on disk: safe between processes, never half-written, bounded."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def default_folder() -> Path:
    """Where built things are kept unless another folder is named: ~/.cache/evo, or below XDG_CACHE_HOME."""
    from platformdirs import user_cache_path

    return user_cache_path("evo", appauthor=False)


class Cache:
    """Files and folders by key below `root`. An entry appears at once and whole, or not at all."""

    def __init__(self, root: Path, limit_bytes: int = 2 << 30) -> None:
        self.root = root
        self.limit_bytes = limit_bytes

    def path(self, key: str) -> Path:
        """The folder of `key`, whether it exists or not."""
        return self.root / key[:2] / key

    def read(self, key: str) -> bytes | None:
        """What is stored under `key`; None if nothing is."""
        entry = self._file(key)
        try:
            content = entry.read_bytes()
        except FileNotFoundError:
            return None
        with suppress(OSError):  # a cache may be read-only
            os.utime(entry)  # age for prune(): least recently used goes first
        return content

    def write(self, key: str, content: bytes) -> None:
        """Stores `content` under `key`, in place of what is there."""
        entry = self._file(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{key[:8]}-", dir=entry.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(scratch).replace(entry)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise

    def delete(self, key: str) -> None:
        """Deletes what is stored under `key`."""
        with suppress(OSError):
            self._file(key).unlink()

    def _file(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.xz"

    def build_once(self, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of `key`; where it is absent, `build` fills a fresh one that is then renamed into place.

        Two processes may build the same key at once: the first rename wins, and both see the same content. If
        `build` raises, nothing is left.
        """
        entry = self.path(key)
        if entry.is_dir():
            os.utime(entry)  # age for prune(): least recently used goes first
            return entry
        entry.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{key[:8]}-", dir=entry.parent))
        try:
            build(scratch)
            try:
                scratch.rename(entry)
            except OSError:
                if not entry.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return entry

    def prune(self) -> int:
        """Deletes the least recently used entries until the cache is within its limit; the bytes freed."""
        entries = []
        for entry in self.root.glob("??/*"):
            try:
                files = [entry] if entry.is_file() else [f for f in entry.rglob("*") if f.is_file()]
                size = sum(f.stat().st_size for f in files)
                entries.append((entry.stat().st_mtime, size, entry))
            except FileNotFoundError:  # another process pruned it first
                continue
        excess = sum(size for _, size, _ in entries) - self.limit_bytes
        freed = 0
        for _, size, entry in sorted(entries):
            if freed >= excess:
                break
            if entry.is_file():
                entry.unlink(missing_ok=True)
            else:
                shutil.rmtree(entry, ignore_errors=True)
            freed += size
        return freed
