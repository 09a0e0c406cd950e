"""What all tests run under, however they were started, and the fixtures that several files share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from command import Evo, Said

    from evo.store import Store

# One thread for NumPy, as `evo` itself sets it: searches in this process and in others then agree.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of interpreters: byte code is written once for all of them, whatever the shell says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples in each run, however long a busy machine takes for one.
settings.register_profile(
    "evo", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("evo")

# Tests import and make much that stays; evo itself looks for garbage as rarely.
gc.set_threshold(100_000)

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: the tests that
# interrupt a search would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no search for garbage looks at it again."""
    gc.freeze()


@pytest.fixture
def evo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Evo:
    """Runs a command in an empty folder, in this process."""
    from command import Said

    from evo.cli import main

    monkeypatch.chdir(tmp_path)
    for name in ("EVO_DATABASE", "EVO_TEMPLATES", "CUDA_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture(scope="session")
def _two_studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `database` is a copy of."""
    from command import two_studies

    folder = tmp_path_factory.mktemp("studies")
    two_studies(folder / "evo.db")
    return folder


@pytest.fixture
def database(tmp_path: Path, _two_studies: Path) -> Path:
    """Two studies: one measured on a GPU, one on the emulator, with failures."""
    return Path(shutil.copytree(_two_studies, tmp_path / "runs")) / "evo.db"


@pytest.fixture(scope="session")
def row_warp() -> Path:
    """A folder with a task's second template, in the long form: the examples."""
    from command import ROOT

    return ROOT / "examples"


@pytest.fixture
def four_points(row_warp: Path, tmp_path: Path) -> Path:
    """The same template with four points, those that the emulator runs fastest."""
    from command import altered

    python = "row_warp.py"
    words = altered(row_warp, tmp_path / "small", python, "(1, 2, 4, 8, 16), default=4", "(1, 2), default=1")
    folder = Path(words[1])
    text = (folder / "attention" / python).read_text()
    assert "(1, 2, 4, 8), default=4" in text
    (folder / "attention" / python).write_text(text.replace("(1, 2, 4, 8), default=4", "(4, 8), default=4"))
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a fresh server's maintenance database; the server ends with the tests."""
    from postgres import server

    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "runs" / "evo.db")
    from postgres import empty_database

    return empty_database(request.getfixturevalue("postgres"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store of either kind."""
    from evo.store import Store

    with Store(url) as opened:
        yield opened


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1000,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    problems = pytest.importorskip("selenium.common.exceptions")
    for attempt in range(3):  # on a busy machine it may start more slowly than its driver waits for it
        try:
            made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        except problems.WebDriverException:
            if attempt == 2:
                raise
        else:
            break
    yield made
    made.quit()
