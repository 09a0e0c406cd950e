"""What a person types becomes values: budgets, sizes, problems, flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.api.parse import parse_budget, parse_bytes, parse_problem
from evo.cli.ahead import devices_of, first_evaluators
from evo.errors import UsageError
from evo.task import load_task


@pytest.mark.parametrize(
    ("text", "rate", "seconds"),
    [
        ("14h", None, 50400),
        ("90m", None, 5400),
        ("45s", None, 45),
        ("1h30m", None, 5400),
        ("1.5h", None, 5400),
        (" 2M ", None, 120),
        ("1d", None, 86400),
        ("2min", None, 120),
        ("$7.14", 0.51, 50400),
    ],
)
def test_budgets(text: str, rate: float | None, seconds: float) -> None:
    assert parse_budget(text, rate) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "14", "h", "1x", "-2m", "$-7", "$", "0s", "0h0m", "1m2h", "1e3h", "nan", "infh", "--", "99999999d"],
)
def test_malformed_budgets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text, 0.51)


def test_money_needs_the_price_of_an_hour() -> None:
    with pytest.raises(UsageError, match="price of an hour"):
        parse_budget("$7", None)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("48K", 49152), ("99kb", 101376), ("101376", 101376), ("0.5KiB", 512)]
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-1K", "0", "48 apples", "1e3", "0x10"])
def test_malformed_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="malformed size"):
        parse_bytes(text)


def test_problems_by_shape_and_by_name() -> None:
    task = load_task("attention")
    assert parse_problem(task, None, None).key == "attention B=1 H=8 L=512 D=64 causal=0 fp16"
    assert (
        parse_problem(task, "mission", "bf16", ["causal"]).key == "attention B=1 H=8 L=512 D=64 causal=1 bf16"
    )
    assert parse_problem(task, "2,16,4096,128", None).key == "attention B=2 H=16 L=4096 D=128 causal=0 fp16"
    with pytest.raises(UsageError, match="10 problems"):
        parse_problem(task, "seeds", None)


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("search --budget 2m", "cuda:0"),
        ("resume one", "auto"),
        ("search --device cuda:1 --budget 2m", "cuda:1"),
        ("search --device=cuda:1 --budget 2m", "cuda:1"),
        ("search --gpus 2,0", "cuda:2 cuda:0"),
        ("resume one --gpus=1", "cuda:1"),
        ("search --gpus all", "cuda:0"),
        ("resume one --gpus all", "cuda:0"),
        ("search --device=emulator --gpus 2 --budget 2m", "emulator"),
        ("search --gpu L4", "emulator"),
        ("search --device", "cuda:0"),
    ],
)
def test_the_devices_are_known_before_the_words_are_understood(words: str, devices: str) -> None:
    assert devices_of(words.split()) == devices.split()


@pytest.mark.parametrize(
    "words", ["", "show one/1", "search --help", "resume -h", "search gemm --shapes=square"]
)
def test_nothing_starts_ahead_of_what_evaluates_nothing(words: str) -> None:
    with first_evaluators(words.split()) as spares:
        assert not spares


def test_where_there_is_no_driver_one_process_starts_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("evo.cli.ahead.usable_cores", lambda: 12)
    for driver, most in ((tmp_path / "none", 1), (tmp_path, 3)):
        monkeypatch.setattr("evo.cli.ahead.DRIVER", driver)
        with first_evaluators(["search", "--budget", "2m"]) as spares:
            assert len(spares) == most
            processes = [spare.process for spare in spares]
            assert all(process.poll() is None for process in processes)
        assert all(process.poll() is not None for process in processes)
