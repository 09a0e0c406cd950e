"""A few kernels for many problems: which are chosen, what that costs, and what the exported table says."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from command import Evo
from test_champions import kept
from times import timing

from evo.cache import default_folder
from evo.confirm.portfolio import Portfolio, Times, _Regrets, choose, leave_one_out
from evo.errors import NothingFound
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Interval, Outcome, Problem, Trial

TASK = load_task("attention")
TIMES = Times(
    {
        "short": {"L=128": 2.0, "L=256": 3.0, "L=512": 8.0},
        "middle": {"L=128": 3.0, "L=256": 3.0, "L=512": 4.0, "L=1024": 12.0},
        "long": {"L=256": 6.0, "L=512": 5.0, "L=1024": 8.0},
    }
)
PROBLEMS = {f"L={n}": TASK.problem(f"1,8,{n},64") for n in (128, 256, 512, 1024)}


def test_each_problem_gets_the_fastest_of_the_chosen() -> None:
    alone = choose(TIMES, 1)
    assert alone.kernels == ("middle",)
    assert alone.regrets == {"L=128": 1.5, "L=256": 1.0, "L=512": 1.0, "L=1024": 1.5}
    assert alone.mean_regret == pytest.approx(math.sqrt(1.5))
    two = choose(TIMES, 2)
    assert two.kernels == ("short", "long")
    assert two.serves == {"L=128": "short", "L=256": "short", "L=512": "long", "L=1024": "long"}
    assert two.worst_regret == 1.25
    assert choose(TIMES, 3).worst_regret == 1.0
    assert choose(TIMES, 9).kernels == ("short", "middle", "long"), "no more than there are"


def test_kernels_that_cannot_serve_all_are_not_enough() -> None:
    with pytest.raises(NothingFound, match="1 kernels do not serve all problems"):
        choose(Times({"a": {"p": 1.0}, "b": {"q": 1.0}}), 1)


def test_adding_kernels_and_exchanging_them_is_close_to_the_best() -> None:
    rng, better = random.Random(0), 0
    for _ in range(20):
        problems = [f"p{n}" for n in range(6)]
        us = {
            f"k{n}": {p: rng.uniform(1, 4) for p in problems if n == 0 or rng.random() < 0.8}
            for n in range(7)
        }
        times = Times(us)
        regrets = _Regrets.of(times)
        greedy: Portfolio = regrets._portfolio(added := regrets._one_at_a_time(3))
        exchanged: Portfolio = regrets._portfolio(regrets._exchanged(added))
        assert exchanged.mean_regret <= greedy.mean_regret <= 1.15 * choose(times, 3).mean_regret
        assert exchanged.mean_regret <= 1.03 * choose(times, 3).mean_regret
        better += exchanged.mean_regret < greedy.mean_regret
    assert better >= 5


def test_hundreds_of_kernels_on_hundreds_of_problems() -> None:
    """Each of 12 kernels is the best of a part of 200 problems, 500 others are near the best of none."""
    rng = random.Random(1)
    problems = {f"L={n}": TASK.problem(f"1,8,{n},64") for n in range(1, 201)}
    us = {f"k{k}": {name: rng.uniform(2, 4) for name in problems} for k in range(512)}
    for place, name in enumerate(problems):
        us[f"k{place % 12}"][name] = 1.0
    chosen = choose(Times(us), 12)
    assert chosen.worst_regret == 1.0
    assert set(chosen.kernels) == {f"k{k}" for k in range(12)}
    assert max(regret or 9.0 for regret in leave_one_out(Times(us), problems, 12).values()) > 1.0


def test_a_problem_that_was_left_out_is_served_by_the_nearest() -> None:
    """Without L=1024 the kernels short and middle are chosen; L=512 is nearest, and middle serves it."""
    found = leave_one_out(TIMES, PROBLEMS, 2)
    assert found["L=1024"] == 1.5
    assert found["L=256"] == pytest.approx(1.0)
    assert set(found) == set(PROBLEMS)
    assert leave_one_out(Times({"a": {"L=128": 1.0}}), PROBLEMS, 1) == {"L=128": None}


def test_a_portfolio_is_exported_with_its_regrets(evo: Evo, tmp_path: Path) -> None:
    """Three champions of three lengths, of which two are wanted; a file says how fast each is elsewhere."""
    problems = [TASK.problem(f"1,8,{length},64") for length in (256, 512, 2048)]
    us = {256: 3.0, 512: 4.0, 2048: 20.0}
    names = [kept(tmp_path / "kernels", "flash_mma", p, "sm_90a", us[p["L"]], {"bm": bm, "warps": 1}).name
             for p, bm in zip(problems, (16, 32, 64), strict=True)]  # fmt: skip
    elsewhere = {
        names[0]: {problems[1].key: 4.4, problems[2].key: 30.0},
        names[1]: {problems[0].key: 3.9, problems[2].key: 25.0},
        names[2]: {problems[0].key: 9.0, problems[1].key: 8.0},
        "attention/of/another": {problems[0].key: 1.0},
    }
    (tmp_path / "times.json").write_text(json.dumps({"results": {"times": elsewhere}}))
    words = ("--kernels", "kernels", "--cache", str(default_folder()), "--most", "2", "--format", "c")
    said = evo("export", "attention", "--to", "made", *words, "--times", "times.json")
    assert said.code == 0, said.err
    due = ((names[0], 1.0, 1.3), (names[0], 1.1, 1.1), (names[2], 1.0, 1.25))
    for problem, (name, regret, without) in zip(problems, due, strict=True):
        line = f"{problem.key} on NVIDIA H200: {name}, regret {regret:.3f}, {without:.3f} when it was chosen"
        assert line in said.err
    table = (tmp_path / "made" / "README.md").read_text()
    assert "| 4.40 |  |  | 1.100 | 1.100 |" in table
    (tmp_path / "bad.json").write_text("[]")
    for file, why in (("bad.json", "bad.json has no times"), ("none.json", "cannot read none.json")):
        assert why in evo("export", "attention", "--to", "other", *words, "--times", file).err


def test_studies_that_share_code_are_a_portfolio(evo: Evo, tmp_path: Path) -> None:
    """Each study has its own winner; the code of one was timed in both."""

    def timed(problem: Problem, warps: int, us: float) -> Trial:
        template = load_template(TASK, "flash_mma")
        point = {**template.space.default, "warps": warps}
        candidate, time = template.candidate(point, problem), timing((us,), us, Interval(us, us))
        code = f"warps {warps}"
        return Trial(candidate, Outcome.TIMED, machine_code=code, compiler="none 1", timing=time)

    lengths = {"short": ("1,8,256,64", {1: 3.0, 2: 3.3}), "long": ("1,8,2048,64", {2: 20.0, 4: 24.0})}
    lengths |= {"many-1": lengths["short"], "many-2": lengths["long"]}  # a set of studies
    with Store(str(tmp_path / "evo.db"), create=True) as store:
        for name, (shape, times) in lengths.items():
            problem = TASK.problem(shape)
            study = store.create(Study(name, problem, "cuda:0", "H200", ("flash_mma",), 9.0))
            for number, (warps, us) in enumerate(times.items(), 1):
                store.add(study, number, timed(problem, warps, us))
    words: Any = ("--database", "evo.db", "--cache", str(default_folder()), "--format", "c")
    both = evo("export", "short", "long", "--to", "both", *words)
    assert [line.split(": ")[1] for line in both.err.splitlines()] == ["short/1", "long/1"]
    one = evo("export", "short", "long", "--to", "one", "--most", "1", *words)
    assert one.code == 0, one.err
    first, second = one.err.splitlines()
    assert "short/2, regret 1.100" in first or "long/1, regret 1.100" in first
    assert "regret 1.000" in second
    copied = evo("export", "many", "--to", "set", "--most", "1", *words)
    assert copied.code == 0, copied.err
    lines = [line.split(": ")[1] for line in copied.err.splitlines()]
    alone = "1.100 when it was chosen without this problem"
    assert lines[0] == f"many-1/2, regret 1.100, {alone}"
    assert lines[1].startswith("many-1/2, regret 1.000"), "one kernel's code serves both"
    assert "| 20.00 |" in (tmp_path / "set" / "README.md").read_text()
    each = evo("export", "many", "--to", "each", *words)
    assert [line.split(": ")[1].split(",")[0] for line in each.err.splitlines()] == ["many-1/1", "many-2/1"]


def test_a_champion_that_does_not_compile_is_named(evo: Evo, tmp_path: Path) -> None:
    champion = kept(tmp_path / "kernels", "flash_mma", TASK.problem("1,8,256,64"), "sm_90a", 3.0)
    champion.path.write_text(champion.source.replace("__global__", "__globule__"))
    said = evo(
        "export", "attention", "--to", "made", "--kernels", "kernels", "--cache", str(default_folder())
    )
    assert said.code == 2
    assert f"{champion.name} does not compile for sm_90a" in said.err
