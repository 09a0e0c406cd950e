"""A content-addressed cache of built things on disk: safe between processes, never half-written, bounded.

Every entry says its key, its size and its digest, and is checked each time it is read: a file that was cut
short, damaged, swapped with another one, or made by another user is built again, and a line of the log says
so. A folder that others may write to is refused: what lies there is loaded and run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from evo.errors import MachineError

_log = logging.getLogger(__name__)
_MANIFEST = ".entry.json"
"""The file of a folder's entry that says its key and its files."""
_FORMAT = "evo-cache-1"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not through a link, and without waiting for the other end of a pipe."""
_ATTEMPTS = 3
"""How often a folder is built before it is given up."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_folder() -> Path:
    """Where built things are kept unless another folder is named: ~/.cache/evo, or below XDG_CACHE_HOME."""
    from platformdirs import user_cache_path

    return user_cache_path("evo", appauthor=False)


@dataclass(frozen=True)
class Build:
    """How far a build is that takes a while, once: `done` of `total` steps, after so many `seconds`. One that
    `failed` has ended, too."""

    name: str
    done: int
    total: int
    seconds: float
    failed: bool = False

    @property
    def ended(self) -> bool:
        return self.failed or self.done == self.total


class BuildLines:
    """Tells of builds by plain lines on stderr: at the begin, at the end, and every few seconds between."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._due = 0.0

    def __call__(self, build: Build) -> None:
        now = time.monotonic()
        if build.failed:
            return
        if build.done == 0:
            line = f"building {build.name} in {build.total} steps: it takes a while, once"
        elif build.ended:
            line = f"built {build.name} in {build.seconds:.1f} s"
        elif now < self._due:
            return
        else:
            line = f"building {build.name}: {build.done} of {build.total} steps, {build.seconds:.0f} s"
        self._due = now + self._every_s
        print(line, file=sys.stderr, flush=True)


_watch: list[Callable[[Build], None]] = [BuildLines()]


def watch_builds(watch: Callable[[Build], None]) -> None:
    """From now on `watch` is told of builds that begin in this process, instead of lines on stderr."""
    _watch[0] = watch


def tell_build(build: Build) -> None:
    """Tells of a build, as `watch_builds` said."""
    _watch[0](build)


class Cache:
    """Files and folders by key below `root`. An entry appears at once and whole, or not at all. Every method
    raises MachineError where `root` is not this user's own, or others may write to it."""

    def __init__(self, root: Path, limit_bytes: int = 2 << 30) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._own = False

    def path(self, key: str) -> Path:
        """The folder of `key`, whether it exists or not."""
        return self._shelf(key) / f"{key}.folder"

    def read(self, key: str) -> bytes | None:
        """What is stored under `key`; None if nothing is, or what is there cannot be trusted."""
        self._require_own()
        entry = self._file(key)
        try:
            with os.fdopen(os.open(entry, _OPEN), "rb") as file:
                status, raw = os.fstat(file.fileno()), file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._distrust(entry, error.strerror or "cannot be read")
            return None
        head, _, content = raw.partition(b"\n")
        problem = _not_trusted(status, stat.S_ISREG) or _wrong_head(head, key, content)
        if problem:
            self._distrust(entry, problem)
            return None
        with suppress(OSError):  # a cache may be read-only
            os.utime(entry)  # age for prune(): least recently used goes first
        return content

    def write(self, key: str, content: bytes) -> None:
        """Stores `content` under `key`, in place of what is there."""
        entry = self._file(key)
        self._make_shelf(key)
        handle, scratch = tempfile.mkstemp(prefix=f".{key[:8]}-", dir=entry.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(key, content) + b"\n" + content)
            Path(scratch).replace(entry)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise

    def delete(self, key: str) -> None:
        """Deletes what is stored under `key`."""
        with suppress(OSError):
            self._file(key).unlink()

    def build_once(self, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of `key`; where it is absent or damaged, `build` fills a fresh one that is then renamed
        into place.

        Of several processes that ask at once one builds, and the others wait for it; where the drive has no
        locks, the first rename wins. If `build` raises, nothing is left.
        """
        self._require_own()
        entry = self.path(key)
        for attempt in range(_ATTEMPTS + 1):
            if self._intact(key):
                break
            if attempt == _ATTEMPTS:
                raise MachineError(f"{entry} stays damaged", "delete it, or name another folder: --cache DIR")
            self._make_shelf(key)
            with _locked(self._shelf(key)):
                if _damage(entry, key) == "":
                    self._build(entry, key, build)
        with suppress(OSError):
            os.utime(entry)  # age, as above
        return entry

    def _build(self, entry: Path, key: str, build: Callable[[Path], None]) -> None:
        scratch = Path(tempfile.mkdtemp(prefix=f".{key[:8]}-", dir=entry.parent))
        try:
            build(scratch)
            _seal(scratch, key)
            try:
                scratch.rename(entry)
            except OSError:
                if not entry.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def prune(self) -> int:
        """Deletes the least recently used entries until the cache is within its limit; the bytes freed."""
        self._require_own()
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
            _remove(entry)
            freed += size
        return freed

    # ---- whose it is, and whether it is whole

    def _shelf(self, key: str) -> Path:
        return self.root / key[:2]

    def _file(self, key: str) -> Path:
        return self._shelf(key) / f"{key}.entry"

    def _require_own(self) -> None:
        """MachineError unless the folder belongs to this user (or root), and no other may write there."""
        if self._own:
            return
        try:
            status = self.root.stat()
        except OSError:  # it will be made, or cannot be, which is told then
            return
        hint = "name a folder of your own: --cache DIR, or EVO_CACHE"
        if not stat.S_ISDIR(status.st_mode):
            raise MachineError(f"the cache {self.root} is no folder", hint)
        if status.st_uid not in (os.geteuid(), 0):
            owner = f"user {status.st_uid}, and you are user {os.geteuid()}"
            raise MachineError(f"the cache {self.root} is not yours: it belongs to {owner}", hint)
        if status.st_mode & _OTHERS_WRITE:
            message = f"others may write to the cache {self.root}, from which programs are loaded"
            raise MachineError(message, f"chmod go-w {self.root}; or {hint}")
        self._own = True

    def _make_shelf(self, key: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._require_own()
        shelf = self._shelf(key)
        shelf.mkdir(exist_ok=True, mode=0o700)
        if shelf.stat().st_mode & _OTHERS_WRITE:  # made under another umask
            shelf.chmod(0o700)

    def _intact(self, key: str) -> bool:
        """Whether the folder of `key` is there and as it was built; a damaged one is taken away."""
        problem = _damage(self.path(key), key)
        if problem:
            with _locked(self._shelf(key)):  # another process may have just built it again
                problem = _damage(self.path(key), key)
                if problem:
                    self._distrust(self.path(key), problem)
        return problem is None

    def _distrust(self, entry: Path, problem: str) -> None:
        _log.warning("cache: %s %s; it is built again", entry, problem)
        with suppress(OSError):
            _remove(entry)


def _head(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return f"{_FORMAT} {key} {len(content)} {digest}".encode()


def _wrong_head(head: bytes, key: str, content: bytes) -> str | None:
    if head == _head(key, content):
        return None
    words = head.split(b" ")
    if len(words) != 4 or words[0] != _FORMAT.encode():
        return "is no entry of a cache"
    if words[1] != key.encode():
        return f"is the entry of another key, {words[1][:64].decode(errors='replace')}"
    return "is damaged"


def _not_trusted(status: os.stat_result, is_kind: Callable[[int], bool]) -> str | None:
    """Why something cannot be trusted by its owner and mode; None where it can."""
    if not is_kind(status.st_mode):
        return "is of another kind"
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}"
    return "may be written by others" if status.st_mode & _OTHERS_WRITE else None


def _seal(folder: Path, key: str) -> None:
    """Writes down what a new entry has; no other user may write to it."""
    files = {}
    for path in sorted(folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~_OTHERS_WRITE)
        if path.is_file():
            files[str(path.relative_to(folder))] = _fingerprint(path)
    manifest = folder / _MANIFEST
    manifest.write_text(json.dumps({"format": _FORMAT, "key": key, "files": files}))
    manifest.chmod(0o600)


def _fingerprint(path: Path) -> list[int | str]:
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


class _Damaged(Exception):
    """An entry is not as it was made; the text says in which way."""


def _damage(entry: Path, key: str) -> str | None:
    """What is wrong with a folder's entry: "" where there is none, None where nothing is."""
    try:
        _look_through(entry, key)
    except FileNotFoundError:
        return "is not whole" if entry.exists() else ""
    except _Damaged as error:
        return str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "is damaged"
    return None


def _look_through(entry: Path, key: str) -> None:
    """Raises whatever is wrong with a folder's entry."""
    if problem := _not_trusted(entry.lstat(), stat.S_ISDIR):
        raise _Damaged(problem)
    paths = sorted(entry.rglob("*"))
    for path in paths:
        if problem := _not_trusted(path.lstat(), lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _Damaged(f"has {path.name}, which {problem}")
    said = json.loads((entry / _MANIFEST).read_bytes())
    if (said["format"], said["key"]) != (_FORMAT, key):
        raise _Damaged(f"is the entry of another key, {said['key']}")
    if {p for p in paths if p.is_file()} != {entry / name for name in (*said["files"], _MANIFEST)}:
        raise _Damaged("has not the files that it had")
    for name, fingerprint in said["files"].items():
        if _fingerprint(entry / name) != fingerprint:
            raise _Damaged(f"has {name}, which is damaged")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone among the processes that build what lies in `folder`, or take it away."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):  # some network drives have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
