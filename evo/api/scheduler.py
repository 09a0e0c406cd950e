"""A search whose kernels other machines evaluate: the workers of a Dask scheduler, or jobs of Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.device.open import is_gpu
from evo.errors import MachineError, UsageError
from evo.evaluate import EvaluatorSpec
from evo.gpu import Gpu
from evo.study import Setup, Study
from evo.trial import digest_of

if TYPE_CHECKING:
    from evo.cluster.site import Wanted
    from evo.cluster.workers import ClusterWorkers
    from evo.confirm.on_gpus import MakesWorker
    from evo.confirm.remote_worker import RemoteWorker
    from evo.store import Store

MOST_S = 300.0
"""How long the first worker with a GPU is waited for; jobs of Slurm as long as they take."""


class Scheduler:
    """The workers at a scheduler. `place`: its address, or a file that says what jobs of Slurm ask for.
    MachineError where the packages for it are not installed, or no scheduler answers."""

    def __init__(self, place: str, notice: Callable[[str], None]) -> None:
        self._notice, self._jobs = notice, None
        self.address = place
        try:
            from evo.cluster.workers import connected
        except ModuleNotFoundError as error:
            hint = "pip install 'evo-kernels[cluster]'"
            raise MachineError(f"a cluster needs {error.name}", hint) from error
        if "://" not in place:
            self._jobs = _jobs(Path(place))
            self.address = str(self._jobs.scheduler_address)
            self._notice(f"jobs of Slurm work for {self.address}")
        self._client: Any = connected(self.address, 10.0)

    def gpu(self, emulated: bool, name: str = "") -> Gpu:
        """What the workers evaluate on, or emulate: the GPU of that name, else that of the first which
        announces itself."""
        end = time.monotonic() + MOST_S
        wanted = "that emulates" if emulated else "with a GPU"
        self._notice(f"waiting for a worker {wanted} at {self.address}")
        others = False
        while self._jobs is not None or time.monotonic() < end:
            known = self._announced(emulated)
            if known and (not name or name in known):
                return known[name] if name else next(iter(known.values()))
            if not others and self._announced(not emulated):
                others = True
                how = "has a GPU; without --device" if emulated else "only emulates; with --device emulator"
                self._notice(f"a worker there {how} it is used")
            time.sleep(0.5)
        raise MachineError(
            f"no worker at {self.address} evaluates{f' on {name}' if name else ''}",
            f"evo worker --scheduler {self.address}, on a machine with such a GPU",
        )

    def models(self, emulated: bool) -> list[str]:
        """The names of the GPUs that the workers have which are there now, at least one."""
        self.gpu(emulated)
        return list(self._announced(emulated))

    def _announced(self, emulated: bool) -> dict[str, Gpu]:
        """The GPUs of the workers by name."""
        from evo.cluster.site import site_of

        workers = self._client.sync(self._client.scheduler.identity)["workers"]
        found = {}
        for site in filter(None, map(site_of, workers.values())):
            names = [name.startswith("emulator") for name in site.devices.values()]
            if site.model is not None and names and all(names) == emulated:
                found[site.model.name] = site.model
        return found

    def setup(self, study: Study, cache: Path, nvcc: Path | None) -> Setup:
        """The setup of a study that the workers evaluate. UsageError where it needs what is on this machine
        alone, MachineError where none of them has its GPU."""
        if study.calls is not None or study.given:
            what = "recorded tensors" if study.calls is not None else "a task given in Python"
            raise UsageError(f"{what} cannot travel to other machines yet", "search on this machine")
        gpu = self.gpu(not is_gpu(study.device), study.gpu)
        study = replace(study, gpu=study.gpu or gpu.name, workers=max(2, study.workers), gpus=())
        return Setup.elsewhere(study, gpu, cache, nvcc)

    def workers(self, setup: Setup) -> ClusterWorkers:
        """The workers for a search; their versions must be those of this machine."""
        from evo.cluster.job import EvaluationJob
        from evo.cluster.workers import ClusterWorkers

        spec = EvaluatorSpec.of(setup)
        job = EvaluationJob(spec, digest_of(repr(spec)))
        return ClusterWorkers(self.address, job, self._wanted(setup), self._notice, absent_s=self._patience_s)

    def confirm_worker(self, setup: Setup, gpu: str, patient: bool = True) -> RemoteWorker:
        """What confirms the study of `setup` on the worker that has this GPU ("": on any). `patient`: with
        the baselines that take seconds to set up."""
        from evo.cluster.remote import Remote
        from evo.confirm.remote_worker import ConfirmationJob, RemoteWorker
        from evo.confirm.worker import WorkerSpec

        spec = WorkerSpec.of(setup, patient)
        job = ConfirmationJob(spec, digest_of(repr(spec)), digest_of(repr(spec.evaluator)))
        remote = Remote(self.address, job, self._wanted(setup), gpu, self._notice, self._patience_s)
        return RemoteWorker(remote)

    def makes_confirm_workers(self, store: Store, cache: Path, nvcc: Path | None) -> MakesWorker:
        """Makes `confirm_worker`s for studies, on their first GPUs."""

        def make(study: Study) -> RemoteWorker:
            return self.confirm_worker(self.setup(study, cache, nvcc), store.offsets.first_gpu(study))

        return make

    def _wanted(self, setup: Setup) -> Wanted:
        """What workers must be like: of this GPU, and of the versions of this machine."""
        from evo.cluster.site import Wanted, versions_here

        emulated = not is_gpu(setup.study.device)
        return Wanted(setup.gpu.name, emulated, versions_here(setup.cache, setup.nvcc))

    @property
    def _patience_s(self) -> float:
        from evo.cluster.workers import ABSENT_S

        return 100 * ABSENT_S if self._jobs is not None else ABSENT_S

    def close(self) -> None:
        """Leaves the scheduler; jobs of Slurm end."""
        self._client.close()
        if self._jobs is not None:
            self._jobs.close()


def _jobs(file: Path) -> Any:
    from evo.cluster.slurm import read, slurm_cluster

    count = read(file)["jobs"]
    try:
        cluster = slurm_cluster(file)
        cluster.scale(jobs=count)
    except (OSError, RuntimeError) as error:
        raise MachineError(f"Slurm does not take the jobs: {error}", "sbatch must work here") from error
    return cluster
