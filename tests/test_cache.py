"""The cache: what is damaged, swapped or another user's is seen, and built again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import ROOT, Evo

from evo.cache import Build, Cache
from evo.compile import build_shared_library
from evo.errors import MachineError

KEY, OTHER = "ab" * 16, "ac" * 16


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def nobody() -> int:
    """The id of another user, whom root can give files to."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    return 65534


def entry_of(cache: Cache, key: str = KEY) -> Path:
    return cache.root / key[:2] / f"{key}.entry"


def test_what_is_written_is_read(cache: Cache) -> None:
    assert cache.read(KEY) is None
    for content in (b"", b"\n", b"one\ntwo", bytes(range(256)) * 100):
        cache.write(KEY, content)
        assert cache.read(KEY) == content
    assert entry_of(cache).stat().st_mode & 0o777 == 0o600
    assert cache.root.stat().st_mode & 0o777 == 0o700
    cache.delete(KEY)
    assert cache.read(KEY) is None
    cache.delete(KEY)


DAMAGES = {
    "empty": ": > E",
    "cut short": "truncate -s -1 E",
    "cut in the head": "truncate -s 20 E",
    "longer": "printf x >> E",
    "one letter": "sed -i s/content/contend/ E",
    "garbage": "head -c 500 /dev/urandom > E",
    "without a head": "sed -i 1d E",
    "written by others": "chmod 666 E",
    "a folder": "rm E; mkdir E",
    "a pipe": "rm E; mkfifo E",
    "a link": "mv E x; ln -s $PWD/x E",
}


def damage(entry: Path, command: str) -> None:
    """Runs a command of the shell in which E is the entry."""
    subprocess.run(["sh", "-ec", command.replace("E", str(entry))], cwd=entry.parent, check=True)


@pytest.mark.parametrize("command", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_not_read_and_told(
    cache: Cache, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write(KEY, b"content")
    damage(entry_of(cache), command)
    assert cache.read(KEY) is None
    assert "it is built again" in caplog.text
    assert KEY in caplog.text
    cache.write(KEY, b"again")
    assert cache.read(KEY) == b"again"


def test_entries_that_are_swapped_are_seen(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    cache.write(KEY, b"one")
    cache.write(OTHER, b"two")
    one, two, aside = entry_of(cache), entry_of(cache, OTHER), cache.root / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    assert (cache.read(KEY), cache.read(OTHER)) == (None, None)
    assert f"is the entry of another key, {OTHER}" in caplog.text


def test_an_entry_of_another_user_is_not_read(cache: Cache, nobody: int) -> None:
    cache.write(KEY, b"content")
    os.chown(entry_of(cache), nobody, nobody)
    assert cache.read(KEY) is None
    cache.write(KEY, b"content")
    assert cache.read(KEY) == b"content"


def _ask(cache: Cache) -> Iterator[Callable[[], object]]:
    yield lambda: cache.read(KEY)
    yield lambda: cache.write(KEY, b"x")
    yield lambda: cache.build_once(KEY, lambda _folder: None)
    yield cache.prune


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(cache: Cache, mode: int) -> None:
    cache.root.mkdir()
    cache.root.chmod(mode)
    for ask in _ask(cache):
        with pytest.raises(MachineError, match="others may write to the cache") as caught:
            ask()
        assert "chmod go-w" in caught.value.hint
    cache.root.chmod(0o755)
    cache.write(KEY, b"x")
    assert cache.read(KEY) == b"x"


def test_a_file_that_is_named_as_the_cache_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("kernel")
    with pytest.raises(MachineError, match=r"a\.cu is no folder"):
        Cache(tmp_path / "a.cu").build_once("ab" * 16, lambda _: None)
    assert (tmp_path / "a.cu").read_text() == "kernel"


def test_a_folder_of_another_user_is_refused(cache: Cache, nobody: int) -> None:
    cache.root.mkdir()
    os.chown(cache.root, nobody, nobody)
    for ask in _ask(cache):
        with pytest.raises(MachineError, match="it belongs to user 65534") as caught:
            ask()
        assert "EVO_CACHE" in caught.value.hint


def test_a_command_says_that_a_cache_is_not_trusted(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    said = evo("search", "--budget", "1m", "--device", "emulator", "--cache", "cache")
    assert said.code == 3
    assert "error: others may write to the cache cache, from which programs are loaded" in said.err
    assert "hint: chmod go-w cache" in said.err


# ---- folders


def build(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "one").write_text("1" * 1000)
    (folder / "two").write_text("2")
    (folder / "two").chmod(0o666)


FOLDERS = {
    "a file cut short": "truncate -s 10 E/sub/one",
    "a file of the same size": "printf 3 > E/two",
    "a file gone": "rm E/two",
    "a file more": "touch E/three",
    "a file that is a link": "rm E/two; ln -s sub/one E/two",
    "a file that others may write": "chmod 620 E/two",
    "a folder that others may write": "chmod 777 E",
    "a folder inside that others may write": "chmod 777 E/sub",
    "no manifest": "rm E/.entry.json",
    "a manifest of nonsense": "echo '[1, {' > E/.entry.json",
    "a manifest of another shape": "echo '[]' > E/.entry.json",
    "a binary manifest": "head -c 100 /dev/urandom > E/.entry.json",
    "everything gone": "rm -r E; mkdir E",
    "a file instead": "rm -r E; touch E",
    "a link that leads nowhere": "rm -r E; ln -s /nowhere E",
}


@pytest.mark.parametrize("command", FOLDERS.values(), ids=FOLDERS.keys())
def test_a_damaged_folder_is_built_again(
    cache: Cache, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry = cache.build_once(KEY, build)
    assert cache.build_once(KEY, lambda _: pytest.fail("it is there")) == entry
    assert not caplog.records
    damage(entry, command)
    assert cache.build_once(KEY, build) == entry
    assert "it is built again" in caplog.text
    assert (entry / "sub/one").read_text() == "1" * 1000
    assert not (entry / "three").exists()
    assert cache.build_once(KEY, lambda _: pytest.fail("it is whole")) == entry


def test_folders_that_are_swapped_are_seen(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    one, two = cache.build_once(KEY, build), cache.build_once(OTHER, build)
    shutil.rmtree(one)
    two.rename(one)
    cache.build_once(KEY, build)
    assert f"is the entry of another key, {OTHER}" in caplog.text


def test_a_build_that_raises_leaves_nothing(cache: Cache) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        cache.build_once(KEY, broken)
    assert not list(cache.root.glob("??/*"))


def test_a_truncated_library_is_built_again_and_loads(tmp_path: Path) -> None:
    """Where it was loaded as it was, the process died by SIGBUS."""
    if not shutil.which("g++"):
        pytest.skip("there is no C++ compiler here")
    (tmp_path / "one.cpp").write_text('extern "C" int one() { return 1; }')
    said: list[Build] = []

    def library() -> Path:
        flags = ["-O0"]
        return build_shared_library("demo", [tmp_path / "one.cpp"], flags, Cache(tmp_path / "c"), said.append)

    loads = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).one())"
    for size in (5000, 0):
        os.truncate(library(), size)
        assert subprocess.run([sys.executable, "-c", loads, library()], check=False).returncode == 1
    assert [build.done for build in said] == [0, 1, 2] * 3


def test_processes_that_damage_and_repair_at_once_agree(tmp_path: Path) -> None:
    """Each always gets a whole entry, whatever the others do to it meanwhile."""
    program = f"""
import os, random, sys, logging
from pathlib import Path
logging.disable()
sys.path.insert(0, {str(ROOT)!r})
import evo.cache
evo.cache._ATTEMPTS = 100  # here others damage an entry again and again
cache = evo.cache.Cache(Path({str(tmp_path / "cache")!r}))
rng = random.Random(int(sys.argv[1]))
def build(folder):
    (folder / "one").write_text("1" * 5000)
for turn in range(60):
    entry = cache.build_once({KEY!r}, build)
    try:
        assert (entry / "one").stat().st_size in (5000, 7)
        if rng.random() < 0.3:
            os.truncate(entry / "one", 7)
    except FileNotFoundError:
        pass  # another one takes it away
    content = cache.read({OTHER!r})
    assert content in (None, b"x" * 3000), content
    cache.write({OTHER!r}, b"x" * 3000)
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(seed)], stderr=-1) for seed in range(3)]
    for process in running:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err.decode()
    shelf = tmp_path / "cache" / KEY[:2]
    assert sorted(path.name for path in shelf.iterdir()) == [f"{KEY}.folder"]


def test_what_several_ask_for_at_once_is_built_once(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from evo.cache import Cache
def build(folder):
    print("built", flush=True)
    time.sleep(1)
    (folder / "one").write_text("1")
assert (Cache(Path({str(tmp_path / "cache")!r})).build_once({KEY!r}, build) / "one").read_text() == "1"
"""
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=-1) for _ in range(3)]
    told = [process.communicate(timeout=300)[0] for process in running]
    assert sorted(told) == [b"", b"", b"built\n"]
    assert {process.returncode for process in running} == {0}


def test_manifest_says_what_is_there(cache: Cache) -> None:
    entry = cache.build_once(KEY, build)
    said = json.loads((entry / ".entry.json").read_text())
    assert said["key"] == KEY
    assert {name: size for name, (size, _) in said["files"].items()} == {"sub/one": 1000, "two": 1}
    assert (entry / "two").stat().st_mode & 0o022 == 0
