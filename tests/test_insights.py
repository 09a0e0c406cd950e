"""What trials teach: effects that were planted are found, and chance is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from times import timing

from evo.cli import main
from evo.explain.effects import AdditiveModel, ScoredTrial, paired_effects
from evo.explain.insights import Insights, insights
from evo.gpu import KNOWN_GPUS, Limits
from evo.report.insights import insights_text
from evo.store import Store
from evo.strategy.importance import importances
from evo.study import Setup, Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import (
    BufferArg,
    Candidate,
    Interval,
    LaunchConfig,
    Outcome,
    Point,
    Problem,
    Trial,
    Value,
)

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
TASK = load_task("attention")
TEMPLATE = load_template(TASK, "flash_mma")

SWIZZLE = {"xor": 1.0, "pad": 1.1, "none": 2.0}


def landscape(point: Mapping[str, Value], noise: float) -> float:
    """Times with three planted effects: `swizzle` by itself, `bm` by itself, and `warps` with `kv_split`."""
    us = 5.0 * SWIZZLE[str(point["swizzle"])] * (1.3 if point["bm"] == 128 else 1.0)
    if point["warps"] == 2 and point["kv_split"] == 4:
        us *= 0.7
    return us * noise


def sampled(count: int, seed: int = 0) -> list[Point]:
    feasible = TEMPLATE.space.feasible(Limits.of(KNOWN_GPUS["H200"]), PROBLEM)
    rng = np.random.default_rng(seed)
    found: dict[str, Point] = {}
    while len(found) < count:
        point = feasible.sample(rng)
        found[repr(point)] = point
        around = list(TEMPLATE.space.neighbours(point))
        other = around[int(rng.integers(len(around)))]  # pairs, as a search makes them
        if feasible.contains(other):
            found[repr(other)] = other
    return list(found.values())[:count]


def timed(point: Point, us: float) -> Trial:
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384, (BufferArg("q"),))
    candidate = Candidate(PROBLEM, "flash_mma", point, f"// point {point}\n\n{point}", "flash_mma", launch)
    baselines = {"cudnn": 9.1}
    timed = timing((us,), us, Interval(us * 0.99, us * 1.01), baselines, 9.1 / us, Interval(9 / us, 9.2 / us))
    return Trial(candidate, Outcome.TIMED, timing=timed, machine_code=repr(point), device="NVIDIA H200")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured study with planted effects; `k_stages=4` is RED, mostly."""
    path = tmp_path_factory.mktemp("insights") / "evo.db"
    rng = np.random.default_rng(1)
    with Store(path) as store:
        asked = Study("planted", PROBLEM, "cuda:0", "NVIDIA H200", ("flash_mma",), 300.0, seed=1)
        study = store.create(asked)
        store.set_baselines(study, {"cudnn": 9.1, "flash": 10.3})
        for number, point in enumerate(sampled(260)):
            trial = timed(point, landscape(point, float(rng.normal(1, 0.005))))
            if point["k_stages"] == 4 and number % 10:
                trial = Trial(trial.candidate, Outcome.RED, reason="row error", device="NVIDIA H200")
            store.add(study, number, trial)
    return path


@pytest.fixture(scope="module")
def found(database: Path) -> Insights:
    with Store(database) as store:
        study = store.study("planted")
        elites, failures = store.leaderboard(study="planted", limit=5), store.failures(study)
        return insights(setup_of(study), store.rows(study), elites, failures)


def setup_of(study: Study) -> Setup:
    gpu = KNOWN_GPUS["H200"]
    return Setup(study, gpu, Limits.of(gpu), TASK, Path())


def scored(points: Sequence[Point], us: Sequence[float]) -> list[ScoredTrial]:
    return [ScoredTrial(i, p, t) for i, (p, t) in enumerate(zip(points, us, strict=True))]


def test_what_matters_comes_first_and_what_does_not_last() -> None:
    rng = np.random.default_rng(3)
    points: list[Point] = [
        {"a": int(a), "b": int(b), "c": int(c), "same": 1} for a, b, c in rng.integers(4, size=(200, 3))
    ]
    us = [5.0 - 3 * (p["a"] == 2) + 0.5 * (p["b"] == 1) + rng.normal(0, 0.01) for p in points]
    shares = importances(points, us)
    assert next(iter(shares)) == "a"
    assert "same" not in shares
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["c"] < shares["a"] / 3
    assert importances(points[:49], us[:49]) == {}
    assert importances(points, [1.0] * len(points)) == {}


def test_true_and_one_are_two_values() -> None:
    points: list[Point] = [{"a": True if i % 2 else 1, "b": i % 3} for i in range(60)]
    us = [1.0 if p["a"] is True else 2.0 for p in points]
    assert importances(points, us)["a"] > 0.9
    model = AdditiveModel(scored(points, us))
    assert model.explained()["a"] == pytest.approx(1)
    best = paired_effects(scored(points, us))["a"][0]
    assert best.value is True
    assert best.ratio == 2.0


def test_pairs_differ_in_one_parameter_alone() -> None:
    trials = scored(
        [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 1, "b": 3}], [2.0, 3.0, 4.0, 1.0]
    )
    effects = paired_effects(trials)
    (best, worst) = effects["a"]
    assert (best.value, best.pairs, best.ratio, best.won) == (1, 1, 1.5, 1)
    assert (worst.value, worst.won) == (2, 0)
    assert worst.ratio == pytest.approx(1 / 1.5)
    assert [(e.value, e.pairs) for e in effects["b"]] == [(3, 1), (1, 2), (2, 1)]


def test_an_interaction_is_found_and_a_sum_of_effects_has_none() -> None:
    rng = np.random.default_rng(5)
    points: list[Point] = [
        {n: int(v) for n, v in zip("abcd", row, strict=True)} for row in rng.integers(3, size=(300, 4))
    ]
    plain = [(1 + int(p["a"])) * (2 - 0.3 * int(p["b"])) * rng.normal(1, 0.01) for p in points]
    assert AdditiveModel(scored(points, plain)).r2 > 0.99
    assert AdditiveModel(scored(points, plain)).interactions() == []
    bent = [t * (0.5 if p["c"] == 1 and p["d"] == 2 else 1.0) for p, t in zip(points, plain, strict=True)]
    top = AdditiveModel(scored(points, bent)).interactions()[0]
    assert (set(top.names), set(top.best)) == ({"c", "d"}, {1, 2})
    assert top.share > 0.8
    assert top.gain > 1.3


def test_times_that_are_all_alike_teach_nothing() -> None:
    points: list[Point] = [{"a": i % 4, "b": i % 3} for i in range(60)]
    model = AdditiveModel(scored(points, [3.0] * 60))
    assert (model.r2, model.explained(), model.interactions()) == (0.0, {}, [])


def test_planted_effects_are_found(found: Insights) -> None:
    (template,) = found.templates
    by_name = {p.name: p for p in template.parameters}
    explained = {name: p.explained or 0.0 for name, p in by_name.items()}
    assert max(explained, key=explained.__getitem__) == "swizzle"
    assert {p.name for p in template.parameters[:4]} & {"warps", "kv_split", "swizzle"}
    swizzle = by_name["swizzle"]
    assert swizzle.best is not None
    assert swizzle.best.value == "xor"
    top = swizzle.paired[0]
    assert (top.value, top.won) == ("xor", top.pairs)
    assert top.pairs >= 5
    assert 1.05 < top.ratio < 2.1
    assert swizzle.expected.startswith("up to 4x over none")
    assert abs(next(p for p in by_name["rescale"].paired).ratio - 1) < 0.01
    assert {"warps", "kv_split"} == set(template.interactions[0].names)


def test_a_failure_names_what_its_trials_have_in_common(found: Insights) -> None:
    (failure,) = found.failures
    assert (failure.outcome, failure.reason, failure.name, failure.value) == (
        "RED",
        "row error",
        "k_stages",
        4,
    )
    assert failure.times is not None
    assert failure.times > 2


def test_the_history_is_the_sequence_of_bests(found: Insights) -> None:
    times = [step.us for step in found.history]
    assert times == sorted(times, reverse=True)
    assert times[-1] == found.convergence.best_us == found.templates[0].best_us
    assert found.history[-1].number == found.templates[0].best == found.elites[0].number
    assert found.history[0].changed == {}
    assert all(step.gain > 1 for step in found.history[1:])
    within = list(found.convergence.within.values())
    assert within == sorted(within)
    assert within[-1] <= found.history[-1].number
    assert found.convergence.since == 259 - found.history[-1].number


def test_the_context_says_what_bounds_the_task(found: Insights) -> None:
    context = found.context
    assert context.flop == 4 * 8 * 64 * 512 * 512
    assert context.intensity == context.flop / context.nbytes == 256
    assert context.machine.sms == 132
    assert context.bound == "Tensor Cores"
    assert 0 < context.floor_us < 1
    assert not found.estimated


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_keeps_to_the_terminal(found: Insights, width: int) -> None:
    page = insights_text(found, "text", Console(width=width, no_color=True))
    assert all(len(line) <= width for line in page.splitlines())
    names = {p.name for t in found.templates[:1] for p in t.parameters}
    assert names <= set(page.split()), "a cell that is cut says something else"
    for word in ("How the best came about", "Parameters of flash_mma", "Why trials failed", "swizzle"):
        assert word in page
    assert "…" not in page
    assert "xor: " in page


def test_the_command_says_the_same_in_three_forms(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["insights", "planted", "--database", str(database)]) == 0
    text = capsys.readouterr().out
    assert main(["insights", "planted", "--database", str(database), "--markdown"]) == 0
    markdown = capsys.readouterr().out
    assert main(["insights", "planted", "--database", str(database), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["templates"][0]["parameters"][0]["name"] in text
    assert markdown.startswith("# planted · attention B=1")
    assert "\n## Parameters of flash_mma\n" in markdown
    assert "| RED | " in markdown
    assert record["study"] == "planted"
    assert main(["insights", "nothing", "--database", str(database)]) == 2
    assert "unknown study: nothing" in capsys.readouterr().err


def test_a_study_without_a_correct_trial_still_tells_why(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(Study("red", PROBLEM, "cuda:0", "NVIDIA H200", ("flash_mma",), 300.0))
        point = sampled(1)[0]
        red = Trial(timed(point, 5.0).candidate, Outcome.RED, reason="race", device="NVIDIA H200")
        store.add(study, 0, red)
        found = insights(setup_of(study), store.rows(study), [], store.failures(study))
    page = insights_text(found, "text", Console(width=80, no_color=True))
    assert "race" in page
    assert found.convergence.best_us is None
    assert found.templates[0].interactions == ()
