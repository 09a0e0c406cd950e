"""A search on a cluster: the scheduler and the workers are real processes, which die, hang and come back."""

from __future__ import annotations

import json
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
from cluster import WANTED, Cluster, LandscapeConfirmation, LandscapeJob, Network, cluster, worker_of_evo
from command import ROOT, Evo
from landscape import BEST_US, LIMITS, PROBLEM, SIZE, SPACE, evaluate, new_study, write_template
from obedient import ObedientSpec
from test_cuda import needs_gpu

from evo.api.scheduler import Scheduler
from evo.cache import default_folder
from evo.cli.app import app
from evo.cluster.remote import Remote
from evo.cluster.site import Site, Wanted, site_of
from evo.cluster.slurm import read, slurm_cluster
from evo.cluster.workers import ClusterWorkers
from evo.confirm import Step, confirm
from evo.confirm.confirmation import gate_request
from evo.confirm.remote_worker import RemoteWorker
from evo.errors import MachineError, UsageError
from evo.evaluate.pool import Pool
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
    folder: Path, made: Cluster, seconds: float, events: Events, silent_s: float = 100.0, small: bool = False
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
        study = store.create(new_study(workers=4, strategy="random", budget_s=600))
        workers = ClusterWorkers(made.address, LandscapeJob(seconds), replace(WANTED, driver=[]), said.append,
                                 absent_s=200.0, silent_s=silent_s)  # fmt: skip
        numbers: list[int] = []

        def count(progress: Progress) -> None:
            if progress.latest:
                numbers.append(progress.latest.number)
            watch(progress)

        result = search(study, store, search_spaces([template], LIMITS, PROBLEM), workers, count)
        rows = store.rows(study)
    for thread in threads:
        thread.join(200)
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


def test_as_many_candidates_are_under_way_as_in_a_pool(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start("compiles", "compiles")
        made.start("one")
        made.await_workers(2)
        there = ClusterWorkers(made.address, LandscapeJob(), replace(WANTED, driver=[]), print)
        with there, Pool(ObedientSpec(most=1, compile_s=0.0), workers=2) as here:
            assert there.capacity == here.capacity


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


def confirmed_remotely(made: Cluster, said: list[str]) -> RemoteWorker:
    wanted = replace(WANTED, driver=[])
    return RemoteWorker(Remote(made.address, LandscapeConfirmation(), wanted, "", said.append, 60.0))


def test_finalists_are_confirmed_by_a_worker_that_dies_and_comes_back(tmp_path: Path) -> None:
    """The first confirmation is interrupted, the second one loses its machine: no round is lost or repeated,
    and no finalist is blamed."""
    said: list[str] = []
    template = write_template(tmp_path / "templates", space=SMALL)
    with Store(tmp_path / "evo.db") as store, cluster(tmp_path) as made:
        nowhere = Remote(
            made.address, LandscapeConfirmation(), replace(WANTED, driver=[]), "GPU-a", print, 0.0
        )
        with closing(RemoteWorker(nowhere)) as worker, pytest.raises(MachineError, match="has GPU-a"):
            worker.surroundings()
        study = store.create(new_study())
        for number, point in enumerate(template.space.feasible(LIMITS, PROBLEM).points):
            store.add(study, number, evaluate(template.candidate(point, PROBLEM)))
        made.start("one")
        steps: list[str] = []
        with closing(confirmed_remotely(made, said)) as worker:
            best = store.confirmations.contenders(study, 1)[0]
            worker.expect([gate_request(store, study.name, best, 7)], time.time() + 60)
            begun = confirm(study, store, worker, top=3, over=lambda _: "warm round 3 of 20" in steps,
                            watch=lambda step: steps.append(step.text))  # fmt: skip
        assert begun is not None
        assert begun.status == "running"
        held = [taken.seed for taken in store.confirmations.rounds(begun, "warm")]
        assert len(held) == 3

        def watch(step: Step) -> None:
            if step.text == "warm round 6 of 20" and "one" in made.workers:
                made.kill("one")
                made.start("two")

        with closing(confirmed_remotely(made, said)) as worker:
            found = confirm(study, store, worker, top=3, watch=watch)
        assert found is not None
        assert (found.id, found.status, len(found.green)) == (begun.id, "finished", 3)
        assert len(found.finalists) == 3
        warm = [taken.seed for taken in store.confirmations.rounds(found, "warm")]
        assert warm[:3] == held
        assert len(set(warm)) == len(warm) == 20
        assert found.green[0].standings["warm"].median_us
    assert said == []


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_remote_confirm_worker_gates_what_a_search_found_there(
    evo: Evo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the way but the device: there is no GPU whose rounds could be held."""
    toys = ["--templates", str(ROOT / "tests" / "toys")]
    with cluster(tmp_path) as made, worker_of_evo(made, tmp_path, "--device", "emulator", "--gpu", "L4"):
        there = ["--scheduler", made.address, "--device", "emulator", "--study", "s", "--workers", "2"]
        said = evo("search", "row_sum", *toys, "--shape", "33", *there, "--budget", "60s")
        assert said.code == 0, said.err
        refused = evo("confirm", "s", "--scheduler", made.address)
        assert (refused.code, "its times are estimates" in refused.err) == (2, True)
        heard: list[str] = []
        with (
            Store(tmp_path / "runs" / "evo.db") as store,
            closing(Scheduler(made.address, heard.append)) as via,
        ):
            study = store.study("s")
            best = store.leaderboard(study=study.name, limit=1)[0]
            setup = via.setup(study, default_folder(), None)
            with closing(via.confirm_worker(setup, store.offsets.first_gpu(study))) as worker:
                assert worker.surroundings().compiler == store.trial(best.trial).compiler
                passed = worker.gate("s/best", store.trial(best.trial).candidate, 7, thorough=False)
                assert passed
                assert list(worker.loaded) == ["s/best"]
            monkeypatch.setattr("evo.api.scheduler.MOST_S", 2.0)
            with pytest.raises(MachineError, match=r"no worker at .* evaluates"):
                via.gpu(emulated=False)
            assert heard[-1] == "a worker there only emulates; with --device emulator it is used"


@needs_gpu
def test_a_search_by_a_cluster_ends_confirmed_on_its_gpu(evo: Evo, tmp_path: Path) -> None:
    """About two minutes. Then once more from the command line, on the same GPU."""
    with cluster(tmp_path) as made, worker_of_evo(made, tmp_path, "--device", "cuda"):
        there = ["--scheduler", made.address]
        words = ["search", "attention", "--shape", "1,2,256,64", "--study", "s", "--budget", "90s", "--json"]
        said = evo(*words, *there)
        assert said.code == 0, said.err
        assert json.loads(said.out)[0]["kind"] == "confirmed", said.err
        with Store(tmp_path / "runs" / "evo.db") as store:
            study = store.study("s")
            found = store.confirmations.newest(study)
            assert found is not None
            assert found.gpu == store.offsets.first_gpu(study)
        again = evo("confirm", "s", "--top", "1", "--json", *there)
        assert again.code == 0, again.err
        assert json.loads(again.out)["status"] == "finished"


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
        said = searched(tmp_path, made, 0.05, {60: lambda c: c.stop("two"), 80: lambda c: c.start("three")},
                        silent_s=15.0)  # fmt: skip
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
    """What would be given to sbatch; there is no Slurm here, and no network. Two clusters use different
    ports."""
    file = tmp_path / "slurm.toml"
    said = """
        jobs = 4
        cores = 16
        memory = "64GB"
        walltime = "02:00:00"
        queue = "gpus"
        gpus = 2
        interface = "lo"
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
