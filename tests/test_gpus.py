"""Several GPUs in one study: real processes; what the GPUs say is simulated (landscape.py), or emulated."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from command import SMALL, Evo, template_words
from finals import SimulatedWorker
from landscape import BEST_US, SIZE, LandscapeSpec, LandscapeWorkers, evaluate, new_study, slower, spaces_of
from obedient import ObedientSpec, awaited, children, run
from trials import timed

from evo.child import Spare
from evo.confirm.on_gpus import confirm_on_each
from evo.device.open import choose_gpus
from evo.errors import MachineError, UsageError
from evo.evaluate.pool import Pool
from evo.loop import Progress, SearchSpace, search
from evo.loop.gpus import TURNS, ComparedWorkers
from evo.store import Store
from evo.timing.offset import measured_offset, on_reference
from evo.trial import Candidate, Offset, Outcome, Trial

GPUS = {"GPU-a": LandscapeSpec(), "GPU-b": LandscapeSpec(slower=1.05)}
"""One of two GPUs of a model is 5 % slower."""


@pytest.fixture
def spaces(tmp_path: Path) -> dict[str, SearchSpace]:
    return spaces_of(tmp_path / "templates")


# ---- what an offset is


def test_an_offset_is_the_median_ratio_of_turns() -> None:
    times = [(10.0 * (1.04 + k / 1000), 10.0) for k in range(10)]
    offset = measured_offset("b", "a", "reference", "p", times)
    assert offset.ratio == pytest.approx(1.0445)
    assert (offset.low, offset.high) == pytest.approx((1.041, 1.048))
    assert (offset.turns, offset.is_off) == (10, True)
    assert offset.level == 0.95
    assert not replace(offset, ratio=1.02).is_off
    assert replace(offset, ratio=0.97).is_off


def test_times_of_another_gpu_are_those_of_the_first_one_and_less_certain() -> None:
    offset = Offset("b", "a", "reference", "p", 10, 1.25, 1.2, 1.3, 0.97)
    own = timed(0, 10.0)
    assert own.timing
    there = on_reference(own, offset)
    assert there.timing
    assert (there.timing.median_us, there.divisor) == (8.0, 1.25)
    assert there.timing.interval.low == pytest.approx(9.5 / 1.3)
    assert there.timing.interval.high == pytest.approx(10.5 / 1.2)
    assert there.timing.baselines_us == pytest.approx({"cudnn": 9.1 / 1.25, "flash": 10.27 / 1.25})
    assert there.timing.speedup == own.timing.speedup
    assert there.timing.times["normal"].samples_us == pytest.approx((6.4, 6.6, 6.2))


def test_the_words_of_gpus() -> None:
    assert choose_gpus(None, "cuda:0") == ()
    assert choose_gpus("1,0", "cuda:0") == ("cuda:1", "cuda:0")
    assert choose_gpus("0, 2", "emulator") == ("emulator:0", "emulator:2")
    for wrong in ("", "0,", "a", "0,0", "-1"):
        with pytest.raises(UsageError):
            choose_gpus(wrong, "cuda:0")
    with pytest.raises(UsageError, match="as many GPUs as it is told"):
        choose_gpus("all", "emulator")


# ---- a search on two


class GpuLandscape(LandscapeWorkers):
    """Evaluates on several GPUs in this process: by turns, each so many times slower. `wrong`: the GPUs on
    which a comparison ends RED, and how often."""

    def __init__(self, slower: Mapping[str, float], wrong: Mapping[str, int] | None = None) -> None:
        super().__init__(2 * len(slower))
        self._slower, self._wrong = slower, dict(wrong or {})
        self._on: dict[int, str] = {}

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(self._slower)

    def remeasure_on(self, gpu: str, number: int, candidate: Candidate, earlier: int) -> None:
        self._on[number] = gpu
        self.remeasured.append((number, earlier))
        self._begin(number, candidate, 0)

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        found = []
        for number, honest in super().wait(timeout):
            gpu = self._on.pop(number, self.gpus[number % len(self.gpus)])
            trial = slower(honest, self._slower[gpu], 0)
            if number < 0 and self._wrong.get(gpu, 0) > 0:
                self._wrong[gpu] -= 1
                trial = Trial(trial.candidate, Outcome.RED, "row error", device="none")
            found.append((number, replace(trial, gpu=gpu)))
        return found


def true_us(trial: Trial) -> float:
    truth = evaluate(trial.candidate).timing
    assert truth
    return truth.median_us


def test_times_are_compared_when_it_is_known_what_the_gpus_differ_by(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.loop.gpus.AGAIN_S", (0.0, 0.0))
    said: list[str] = []
    early: list[Trial] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=4, strategy="random"))
        inner = GpuLandscape({"GPU-a": 1.0, "GPU-b": 1.05})
        workers = ComparedWorkers(inner, study, store, said.append)

        def watch(progress: Progress) -> None:
            if progress.latest and not store.offsets.of(study):
                early.append(store.trial(f"land-1/{progress.latest.number}"))

        result = search(study, store, spaces, workers, watch)
        rows = store.rows(study)
        measured = store.offsets.of(study)
        trials = [store.trial(f"land-1/{row.number}") for row in rows if row.same_as is None]
    assert early, "what the first GPU measures is not kept back"
    assert all(trial.gpu == "GPU-a" or trial.timing is None for trial in early)
    assert [row.number for row in rows] == list(range(SIZE))
    assert {(one.gpu, one.reference) for one in measured} == {("GPU-b", "GPU-a")}
    assert all(one.turns == TURNS[one.kernel] for one in measured)
    assert [one.kernel for one in measured][:2] == ["reference", "best"]
    assert [one.ratio for one in measured] == pytest.approx([1.05] * len(measured))
    assert said == [
        "GPU-b is 5.0 % slower than GPU-a (5.0 to 5.0 %, at 95 %): its times are divided by 1.050"
    ]
    on = {gpu: [t for t in trials if t.gpu == gpu and t.timing] for gpu in inner.gpus}
    assert min(map(len, on.values())) > 10, "both evaluate"
    for divisor, found in zip((1.0, 1.05), on.values(), strict=True):
        assert [t.score_us for t in found] == pytest.approx([true_us(t) for t in found])
        assert [t.divisor for t in found] == pytest.approx([divisor] * len(found))
    assert result.best[0].median_us == pytest.approx(BEST_US)


def test_a_comparison_asks_for_all_turns_at_once(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    """One after the other they would wait behind candidates each time, and trials of the GPU with them."""
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=4, strategy="random"))
        inner = GpuLandscape({"GPU-a": 1.0, "GPU-b": 1.05})
        workers = ComparedWorkers(inner, study, store)
        template = spaces["landscape"].template
        for number in range(2):
            workers.submit(number, template.candidate(template.space.default, study.problem))
        (first,) = workers.wait(0.0)
        turns = range(2 * TURNS["reference"])
        assert [earlier for _, earlier in inner.remeasured] == [1 + k // 2 for k in turns]
        (second,) = workers.wait(0.0)
    assert [one[1].gpu for one in (first, second)] == ["GPU-a", "GPU-b"]
    assert second[1].score_us == pytest.approx(first[1].score_us)
    assert second[1].divisor == pytest.approx(1.05)


def test_trials_that_could_not_be_compared_are_counted_at_the_end(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    said: list[str] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=4, strategy="random"))
        workers = ComparedWorkers(GpuLandscape({"GPU-a": 1.0, "GPU-b": 1.05}), study, store, said.append)
        template = spaces["landscape"].template
        for number in range(2):
            workers.submit(number, template.candidate(template.space.default, study.problem))
        workers.wait(0.0)
        workers.close()
        workers.close()
    assert said == ["trials of GPU-b that are not kept: 1; what it differs by was not known yet"]


def test_another_gpu_is_compared_with_what_the_first_had_measured(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    """A study of one GPU goes on on another one that it has never met."""
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2, strategy="random"))
        template = spaces["landscape"].template
        trial = evaluate(template.candidate(template.space.default, study.problem))
        store.add(study, 0, replace(trial, gpu="GPU-a"))
        assert store.offsets.first_gpu(study) == "GPU-a"
        workers = ComparedWorkers(GpuLandscape({"GPU-b": 0.97}), study, store)
        result = search(store.study("land-1"), store, spaces, workers)
        (offset,) = store.offsets.of(study)
    assert (offset.gpu, offset.reference) == ("GPU-b", "GPU-a")
    assert offset.ratio == pytest.approx(0.97)
    assert result.best[0].median_us == pytest.approx(BEST_US)


def test_a_kernel_that_is_wrong_on_one_gpu_compares_nothing(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    slow = {"GPU-a": 1.0, "GPU-b": 1.05}
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2, strategy="random"))
        search(study, store, spaces, ComparedWorkers(GpuLandscape(slow, {"GPU-b": 1}), study, store))
        assert store.offsets.of(study)[0].ratio == pytest.approx(1.05)
        study = store.create(new_study("land-2", workers=2, strategy="random"))
        never = ComparedWorkers(GpuLandscape(slow, {"GPU-b": 99}), study, store)
        with pytest.raises(MachineError, match="cannot be compared with GPU-a: RED") as caught:
            search(study, store, spaces, never)
    assert "evo resume land-2 --gpus 0" in caught.value.hint


def test_the_first_evaluators_of_all_gpus_start_at_once_and_of_what_started_before(tmp_path: Path) -> None:
    before = children()
    spares = [Spare(("obedient", str(tmp_path))) for _ in range(5)]
    started = [spare.process.pid for spare in spares]
    spec = ObedientSpec(most=2, compile_s=0.0)
    with Pool(spec, workers=8, spares=spares, groups={"GPU-a": spec, "GPU-b": spec}) as pool:
        assert sum("starting" in line for line in pool.activity()) == 2, "one on each GPU"
        assert children() - before == set(started[:4]), "the pool ends what it does not need"
        awaited(pool, 4)
        assert children() - before == set(started[:4])
        found = run(pool, ["sleep 0.3"] * 4)
    assert {(trial.gpu, trial.counters["pid"]) for _, trial in found} == {
        (gpu, pid) for gpu, pid in zip(["GPU-a", "GPU-b"] * 2, started, strict=False)
    }


def test_an_evaluator_is_killed_then_the_search_ends_then_a_gpu_is_gone(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    """With real processes. It is the first GPU that is gone: what it had measured stands for it."""
    others, seen, sent = children(), set[str](), list[int]()
    (meeting := tmp_path / "meeting").mkdir()
    gpus = {name: replace(spec, seconds=0.01, meeting=meeting) for name, spec in GPUS.items()}
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2, strategy="random"))
        pool = Pool(LandscapeSpec(), 2, groups=gpus)

        def disturb(progress: Progress) -> None:
            if progress.latest is None:
                return
            seen.add(store.trial(f"land-1/{progress.latest.number}").gpu)
            if progress.trials == 20:
                os.kill((children() - others).pop(), signal.SIGKILL)
            if progress.trials >= 60 and seen >= GPUS.keys() and not sent:
                sent.append(progress.trials)
                signal.raise_signal(signal.SIGINT)

        search(study, store, spaces, ComparedWorkers(pool, study, store), disturb)
        before = store.rows(study)
        assert sent[0] <= len(before) < sent[0] + 20
        again = store.study("land-1")
        pool = Pool(LandscapeSpec(), 2, groups={"GPU-b": GPUS["GPU-b"]})
        result = search(again, store, spaces, ComparedWorkers(pool, again, store))
        after = store.rows(study)
        trials = [store.trial(f"land-1/{row.number}") for row in after]
    assert after[: len(before)] == before, "no finished trial is lost, and none is repeated"
    assert [row.number for row in after] == list(range(SIZE))
    assert sum(row.outcome is Outcome.CRASHED for row in after) <= 1
    timed = [trial for trial in trials if trial.timing]
    assert {trial.gpu for trial in trials[: len(before)] if trial.timing} == {"GPU-a", "GPU-b"}
    assert {trial.gpu for trial in trials[len(before) :] if trial.same_as is None} == {"GPU-b"}
    assert [trial.score_us for trial in timed] == pytest.approx(list(map(true_us, timed)), rel=2e-3)
    assert result.best[0].median_us == pytest.approx(BEST_US, rel=2e-3)


# ---- CONFIRMED on each


def test_finalists_are_shown_by_each_gpu_and_the_own_one_counts(tmp_path: Path) -> None:
    class Worker(SimulatedWorker):
        pass

    on: list[str] = []
    with Store(tmp_path / "evo.db") as store:
        spaces = spaces_of(tmp_path / "templates")
        study = store.create(replace(new_study(workers=2, strategy="random"), device="emulator"))
        search(study, store, spaces, LandscapeWorkers())
        study = store.study("land-1")
        own = replace(study, device="emulator:0")

        def make(there):  # type: ignore[no-untyped-def]
            on.append(there.devices[0])
            return Worker(alike=5.0 if there.devices[0] == "emulator:0" else 6.0)

        found = confirm_on_each(own, store, make, "0,1", 3, lambda _: None)
        best = store.leaderboard(study="land-1", limit=1)[0]
        status = store.study("land-1").status
    assert on == ["emulator:1", "emulator:0"]
    assert list(found) == on
    assert all(len(one.green) == 3 for one in found.values())
    assert (best.kind, status) == ("confirmed", "exhausted")
    assert best.median_us == pytest.approx(5.0, rel=0.02)


# ---- two emulated GPUs, from the command line


@pytest.mark.slow  # another test kills evaluators of two GPUs
@pytest.mark.nvcc
def test_a_search_on_two_emulated_gpus(evo: Evo, tmp_path: Path, four_points: Path) -> None:
    words = [*SMALL, *template_words(four_points), "--device", "emulator", "--budget", "5m", "--json"]
    assert "need as many workers" in evo("search", *words, "--gpus", "0,1", "--workers", "1").err
    said = evo("search", *words, "--gpus", "0,1", "--workers", "2")
    assert said.code == 0, said.err
    assert "emulator:0, emulator:1 (L4)" in said.err
    with closing(sqlite3.connect(tmp_path / "runs" / "evo.db")) as connection:
        gpus = connection.execute("SELECT gpu, divisor FROM trials").fetchall()
        offsets = connection.execute("SELECT gpu, reference, ratio FROM offsets").fetchall()
    assert {gpu for gpu, _ in gpus} == {"emulator:0", "emulator:1"}
    assert {divisor for _, divisor in gpus} == {1.0}
    assert offsets == [("emulator:1", "emulator:0", 1.0)]
    fewer = evo("resume", "attention-1", "--budget", "+1m", "--gpus", "1", "--json")
    assert "attention-1 · attention B=1" in fewer.err
    assert "emulator:1 (L4)" in fewer.err
    assert fewer.code == 0, fewer.err
