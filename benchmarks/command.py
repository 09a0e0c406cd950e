"""The command line of `evo`, run in a process of its own as a person would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from benchmarks.record import ROOT

if TYPE_CHECKING:
    from evo.trial import Problem

EVO = (sys.executable, "-m", "evo")


def evo(*words: str, accepted: tuple[int, ...] = (0,)) -> str:
    """What `evo WORDS` prints. SystemExit with its last words where it ends with a code that is not
    `accepted`."""
    done = subprocess.run(
        [*EVO, *words], env=environment(), stdout=subprocess.PIPE, text=True, check=False
    )  # its stderr is shown
    if done.returncode not in accepted:
        raise SystemExit(f"error: evo {' '.join(words)} ended with {done.returncode}: {done.stdout[-600:]}")
    return done.stdout


def evo_json(*words: str, accepted: tuple[int, ...] = (0,)) -> Any:
    """What `evo WORDS --json` says."""
    return json.loads(evo(*words, "--json", accepted=accepted))


def type_and_flags(problem: Problem) -> list[str]:
    """A problem's storage type and flags as commands take them; its sizes are `problem.shape`."""
    flags = [f"--flag={name}={int(bool(value))}" for name, value in problem.flags.items()]
    return ["--dtype", problem.dtype, *flags]


def evo_for(seconds: float, *words: str, out: IO[bytes] | None = None) -> None:
    """`evo WORDS`, interrupted after so many seconds as a person would; what it prints goes to `out`.
    SystemExit where it fails."""
    child = subprocess.Popen([*EVO, *words], env=environment(), stdout=out)
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    code = child.wait(120.0)
    if code not in (0, 130):
        raise SystemExit(f"error: evo {' '.join(words)} ended with {code}")


def environment() -> dict[str, str]:
    """This process's, with the tree that `record` names the commit of. Byte code is kept, as where a package
    is installed: containers that forbid it have each process compile all modules again."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path}
