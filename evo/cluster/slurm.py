"""Workers as jobs of Slurm, by dask-jobqueue: a TOML file says what a job asks for."""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dask_jobqueue import SLURMCluster
from dask_jobqueue.slurm import SLURMJob

from evo.errors import UsageError

KINDS: Mapping[str, tuple[type, ...]] = {
    "jobs": (int,),
    "cores": (int,),
    "memory": (str,),
    "walltime": (str,),
    "gpus": (int,),
    "queue": (str,),
    "account": (str,),
    "interface": (str,),
    "log_directory": (str,),
    "directives": (list,),
    "before": (list,),
    "cache": (str,),
}
"""What the file may say, and its type."""
NEEDED = ("jobs", "cores", "memory", "walltime")


class WorkerJob(SLURMJob):  # type: ignore[misc]
    """A job that is one `evo worker`. `worker_words`: its options besides the scheduler and its name."""

    def __init__(self, *args: Any, worker_words: tuple[str, ...] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        words = [sys.executable, "-m", "evo", "worker", "--scheduler", str(self.scheduler)]
        self._command_template = shlex.join([*words, "--name", str(self.name), *worker_words])


def read(file: Path) -> dict[str, Any]:
    """What a file asks for. UsageError where it cannot be read, or says what is not known."""
    hint = f"it says {', '.join(NEEDED)}, and may say {', '.join(KINDS.keys() - set(NEEDED))}"
    try:
        said = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {file}: {why}", hint) from error
    for name, value in said.items():
        if name not in KINDS:
            raise UsageError(f"{file}: {name} is not known", hint)
        if not isinstance(value, KINDS[name]) or isinstance(value, bool):
            raise UsageError(f"{file}: {name} is no {KINDS[name][0].__name__}", hint)
    missing = [name for name in NEEDED if name not in said]
    if missing:
        raise UsageError(f"{file} does not say {', '.join(missing)}", hint)
    return said


def slurm_cluster(file: Path) -> SLURMCluster:
    """A scheduler in this process, whose workers are the jobs that `file` asks for; `start` submits them."""
    said = read(file)
    gpus = int(said.get("gpus", 1))
    words = ["--workers", str(said["cores"])] + ([] if gpus else ["--device", "none"])
    words += ["--gpus", "all"] if gpus > 1 else []
    words += ["--cache", str(said["cache"])] if "cache" in said else []
    directives = [f"--gres=gpu:{gpus}"] if gpus else []
    return SLURMCluster(
        job_cls=WorkerJob,
        cores=said["cores"],
        processes=1,
        memory=said["memory"],
        walltime=said["walltime"],
        queue=said.get("queue"),
        account=said.get("account"),
        interface=said.get("interface"),
        log_directory=said.get("log_directory"),
        job_extra_directives=[*directives, *said.get("directives", [])],
        job_script_prologue=list(said.get("before", [])),
        worker_words=tuple(words),
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
