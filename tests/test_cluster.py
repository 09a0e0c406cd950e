"""A search on a cluster: the scheduler and the workers are real processes, which die, hang and come back."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import typer
from cluster import WANTED, Cluster, LandscapeJob, Network, cluster
from landscape import BEST_US, LIMITS, PROBLEM, SIZE, SPACE, new_study, write_template

from evo.cli.app import app
from evo.cluster.site import Site, Wanted, site_of
from evo.cluster.slurm import read, slurm_cluster
from evo.cluster.workers import ClusterWorkers
from evo.errors import MachineError, UsageError
from evo.gpu import KNOWN_GPUS
from evo.loop import Progress, search, search_spaces
from evo.store import Store
from evo.trial import Outcome

Events = dict[int, Callable[[Cluster], None]]


SMALL = SPACE.replace('"rows", (16, 32, 64, 128)', '"rows", (64, 128)').replace(
    '"columns", (16, 32, 64, 128)', '"columns", (32, 64)'
)
"""A quarter of the landscape, with its best point."""
SMALL_SIZE = 2 * 2 * 3 * 2 * 2 * 2


def searched(
    folder: Path, made: Cluster, seconds: float, events: Events, silent_s: float = 6.0, small: bool = False
) -> list[str]:
    """Searches the whole landscape; at each number of trials an event happens, in a thread of its own. What
    was said."""
    size = SMALL_SIZE if small else SIZE
    template = write_template(folder / "templates", space=SMALL if small else SPACE)
    said: list[str] = []
    waiting = dict(events)
    threads: list[threading.Thread] = []

    def watch(progress: Progress) -> None:
        for count in [count for count in waiting if progress.trials >= count]:
            threads.append(threading.Thread(target=waiting.pop(count), args=(made,)))
            threads[-1].start()

    with Store(folder / "evo.db") as store:
        study = store.create(new_study(workers=4, strategy="random", budget_s=300))
        workers = ClusterWorkers(made.address, LandscapeJob(seconds), replace(WANTED, driver=[]), said.append,
                                 absent_s=60.0, silent_s=silent_s)  # fmt: skip
        numbers: list[int] = []

        def count(progress: Progress) -> None:
            if progress.latest:
                numbers.append(progress.latest.number)
            watch(progress)

        result = search(study, store, search_spaces([template], LIMITS, PROBLEM), workers, count)
        rows = store.rows(study)
    for thread in threads:
        thread.join(60)
    assert not waiting, "everything happened"
    assert result.stopped == "exhausted"
    assert [row.number for row in rows] == list(range(size)), "no trial is lost"
    assert len(numbers) == len(set(numbers)) == size, "and none came twice"
    assert not [row for row in rows if row.outcome in (Outcome.HUNG, Outcome.CRASHED)]
    assert result.best[0].median_us == BEST_US
    return said


def caches(folder: Path, name: str) -> set[str]:
    """The pids of the processes that compiled what a worker evaluated."""
    found = (folder / f"cache-{name}").glob("??/*.entry")
    return {entry.read_bytes().partition(b"\n")[2].decode() for entry in found}


def test_one_worker_compiles_for_others_of_which_one_dies(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start("compiles", "compiles")
        made.start("one")
        made.start("two")
        compiler = str(made.workers["compiles"].pid)
        said = searched(tmp_path, made, 0.02, {30: lambda c: c.kill("two")}, small=True)
        assert caches(tmp_path, "one") <= {compiler}, "what evaluates did not compile"
    assert said == []


def test_a_worker_is_left_out_by_name_and_version() -> None:
    h200, l4 = (asdict(KNOWN_GPUS[name]) for name in ("H200", "L4"))
    versions = {"evo": "1", "torch": "2.11.0", "driver": "13.0"}
    site = Site("one", {"GPU-a": "cuda:0"}, h200, 4, 12, versions)
    wanted = Wanted("H200", False, {"evo": "1", "torch": "2.11.0"})
    assert wanted.objection(site) == ""
    for changed, why in (
        ({"versions": {**versions, "torch": "2.10.0"}}, "it has torch 2.10.0, and the search 2.11.0"),
        ({"versions": {"evo": "1"}}, "it has torch none, and the search 2.11.0"),
        ({"versions": {**versions, "driver": "12.8"}}, "it has driver 12.8, and the others 13.0"),
        ({"gpu": l4}, "its GPU is L4, and the study's H200"),
        ({"devices": {"": "emulator"}}, "it emulates a GPU"),
    ):
        assert wanted.objection(replace(site, **changed)) == why
    compiles = replace(site, devices={}, gpu=None, versions={"evo": "1", "torch": "2.11.0"})
    assert wanted.objection(compiles) == ""
    assert site_of({"evo": site.to_json()}) == site
    assert site_of({"name": "another"}) is None


@pytest.mark.slow
def test_where_there_is_no_scheduler_or_no_worker_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no scheduler answers at tcp:") as caught:
        ClusterWorkers("tcp://127.0.0.1:1", LandscapeJob(), WANTED, lambda _: None, absent_s=0.1)
    assert "dask scheduler" in caught.value.hint
    with cluster(tmp_path) as made, pytest.raises(MachineError, match="none is there") as caught:
        ClusterWorkers(made.address, LandscapeJob(), WANTED, lambda _: None, absent_s=3.0)
    assert f"evo worker --scheduler {made.address}" in caught.value.hint


@pytest.mark.slow
def test_a_worker_hangs_and_another_one_comes(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        for name, kind in (("one", "evaluates"), ("two", "evaluates"), ("compiles", "compiles")):
            made.start(name, kind)
        said = searched(tmp_path, made, 0.05, {60: lambda c: c.stop("two"), 80: lambda c: c.start("three")})
    assert said == ["worker two hangs: what it had is given to others"]


@pytest.mark.slow
def test_the_only_worker_is_restarted_with_another_version_then_with_the_right_one(tmp_path: Path) -> None:
    def restart(made: Cluster) -> None:
        made.kill("one")
        made.start("one", version="2")
        time.sleep(8)
        made.start("three")

    with cluster(tmp_path) as made:
        made.start("one")
        made.start("compiles", "compiles")
        said = searched(tmp_path, made, 0.02, {60: restart})
    assert said == ["worker one is not used: it has evo 2, and the search 1"]


@pytest.mark.slow
def test_the_scheduler_is_restarted(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start("one")
        made.start("compiles", "compiles")
        said = searched(tmp_path, made, 0.02, {60: lambda c: c.restart_scheduler(3.0)})
    assert said
    assert all("does not answer; looking for it" in text for text in said)


@pytest.mark.slow
def test_the_network_is_cut_for_half_a_minute(tmp_path: Path) -> None:
    with cluster(tmp_path) as made, closing(Network(made.port)) as network:
        made.start("one", through=network.address)
        made.start("compiles", "compiles", through=network.address)
        searched(tmp_path, made, 0.02, {60: lambda _: network.cut(30.0)}, silent_s=20.0)


def test_the_jobs_of_slurm_are_workers_of_evo(tmp_path: Path) -> None:
    """What would be given to sbatch; there is no Slurm here. Two clusters use different ports."""
    file = tmp_path / "slurm.toml"
    said = """
        jobs = 4
        cores = 16
        memory = "64GB"
        walltime = "02:00:00"
        queue = "gpus"
        gpus = 2
        directives = ["--constraint=h200"]
        before = ["module load cuda"]
        cache = "/scratch/evo"
    """
    file.write_text(said)
    with closing(slurm_cluster(file)), closing(slurm_cluster(file)) as made:
        script = made.job_script()
        words = shlex.split(script.splitlines()[-1])
        assert made.scheduler_address in words
    lines = script.splitlines()
    assert {"#SBATCH -p gpus", "#SBATCH --cpus-per-task=16", "#SBATCH -t 02:00:00"} <= set(lines)
    assert {"#SBATCH --gres=gpu:2", "#SBATCH --constraint=h200", "module load cuda"} <= set(lines)
    assert words[:5] == [sys.executable, "-m", "evo", "worker", "--scheduler"]
    options = words[5:]
    assert "--name" in options
    assert options[-6:] == ["--workers", "16", "--gpus", "all", "--cache", "/scratch/evo"]
    evo_worker = typer.main.get_command(app)
    evo_worker.commands["worker"].make_context("worker", words[4:])  # type: ignore[attr-defined]
    wrongs = {"jobs = 4": "does not say cores", "queues = 'a'": "queues is not known", "jobs = 'a'": "no int"}
    for wrong, why in wrongs.items():
        file.write_text(wrong)
        with pytest.raises(UsageError, match=why):
            read(file)
