"""GPUs of several models in one command: a study for each, which are searched at the same time, and each of
which tries what is good on the others. The emulator stands for the GPUs."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cluster import cluster, worker_of_evo
from command import EVO, ROOT, SMALL, Evo
from landscape import LIMITS, PROBLEM, SPACE, LandscapeWorkers, evaluate, new_study, write_template

from evo.api.models import models, parts_of, words_of
from evo.errors import UnknownName
from evo.loop import Turn, search, search_spaces
from evo.loop.exchange import BEST, Exchanged
from evo.loop.first_points import key_of
from evo.store import Store

TOYS = ["--templates", str(ROOT / "tests" / "toys"), "--shape", "33"]


@pytest.mark.nvcc
def test_two_models_are_two_studies_of_one_command(evo: Evo, tmp_path: Path) -> None:
    where = ["--device", "emulator", "--gpu", "h200,RTX 4090", "--workers", "2"]
    said = evo("search", "row_sum", *TOYS, *where, "--budget", "300s", "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)
    assert {row["study"] for row in rows} == {"row_sum-1-h200", "row_sum-1-rtx-4090"}
    assert {row["estimate_gpu"] for row in rows} == {"H200", "RTX 4090"}
    assert "RTX 4090: every feasible point has been tried" in said.err
    with Store(tmp_path / "runs" / "evo.db") as store:
        assert [study.status for study in store.studies()] == ["exhausted", "exhausted"]


def test_which_models_there_are() -> None:
    found = models("emulator", "h200,l4", None, None, None)
    assert {name: where["gpu"] for name, where in found.items()} == {"H200": "H200", "L4": "L4"}
    assert models("emulator", "h200", None, None, None) == {}
    assert models("emulator", None, "0,1", None, None) == {}
    with pytest.raises(UnknownName):
        models("emulator", "h200,h201", None, None, None)


def test_their_studies_have_names_that_are_free(tmp_path: Path) -> None:
    database = str(tmp_path / "evo.db")
    found = models("emulator", "h200,l4", None, None, None)
    with Store(database) as store:
        store.create(new_study("attention-1-l4"))
    assert [part.study for part in parts_of(found, None, "attention", 5, database)] == [
        "attention-2-h200",
        "attention-2-l4",
    ]
    named = parts_of(found, "night", "attention", 5, database)
    assert [(part.study, part.where["workers"]) for part in named] == [("night-h200", 2), ("night-l4", 2)]


def test_options_are_words_again() -> None:
    told = {"budget": "2m", "warm_start": ["a", "b"], "json": False, "accept_unproven": True, "rate": None}
    assert words_of(told) == [
        *("--budget", "2m", "--warm-start", "a", "--warm-start", "b", "--accept-unproven"),
    ]


def test_what_is_good_on_one_is_tried_first_on_the_other(tmp_path: Path) -> None:
    template = write_template(tmp_path, space=SPACE)
    spaces = search_spaces([template], LIMITS, PROBLEM)
    points = spaces["landscape"].feasible.points
    with Store(tmp_path / "evo.db") as store:
        there = store.create(new_study("there"))
        for number, point in enumerate([points[0], points[-1], points[200], points[100], points[300]]):
            store.add(there, number, evaluate(template.candidate(point, PROBLEM)))
        timed = [row for row in store.rows(there) if row.score_us is not None]
        best = sorted(timed, key=lambda row: (row.score_us or 0.0, row.number))[:BEST]
        exchanged = Exchanged(store, ["there", "not there yet"], spaces)
        assert [dict(one.point) for one in exchanged] == [dict(row.point) for row in best]
        turn = Turn(exchanged, these_alone=True)
        here = store.create(new_study("here"))
        assert search(here, store, spaces, LandscapeWorkers(1), turn=turn).stopped == "tried"
        tried = sorted(store.rows(here), key=lambda row: row.number)
        assert [dict(row.point) for row in tried] == [dict(row.point) for row in best]
        assert {key_of(one) for one in exchanged}


@pytest.mark.slow
@pytest.mark.nvcc
def test_ctrl_c_reaches_each_search_once(tmp_path: Path) -> None:
    words = ["search", "attention", *SMALL, "--gpu", "H200,L4", "--budget", "600s", "--workers", "2"]
    command = [*EVO, *words, "--study", "s"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    database = tmp_path / "runs" / "evo.db"
    counts: list[int] = []
    while len(counts) < 2 or min(counts) < 3:
        assert running.poll() is None
        time.sleep(0.5)
        if database.exists():
            with Store(database) as store:
                counts = [sum(store.count(study).values()) for study in store.studies()]
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert b"go on with: evo resume s-l4" in said
    with Store(database) as store:
        assert [study.status for study in store.studies()] == ["interrupted", "interrupted"]


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_cluster_of_two_models(evo: Evo, tmp_path: Path) -> None:
    emulates = ["--device", "emulator", "--workers", "1", "--gpu"]
    with (
        cluster(tmp_path) as made,
        worker_of_evo(made, tmp_path, *emulates, "H200"),
        worker_of_evo(made, tmp_path, *emulates, "L4"),
    ):
        made.await_workers(2)
        where = ["--scheduler", made.address, "--gpus", "all", "--device", "emulator"]
        said = evo("search", "row_sum", *TOYS, *where, "--study", "s", "--budget", "300s", "--json")
        assert said.code == 0, said.err
    assert {row["study"] for row in json.loads(said.out)} == {"s-h200", "s-l4"}
