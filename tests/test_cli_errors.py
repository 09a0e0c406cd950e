"""Bad input: an error, a hint, an exit code, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from command import Evo


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        (["bogus"], 2, "no such command 'bogus'", "evo --help"),
        (["leaderboard", "--limit", "x"], 2, "'--limit'", "evo leaderboard --help"),
        (["leaderboard", "--limit", "0"], 2, "'--limit'", "evo leaderboard --help"),
        (["leaderboard", "--study", "mision-1"], 2, "unknown study: mision-1", "did you mean mission-1?"),
        (
            ["leaderboard", "--shape", "1,8,513,64"],
            2,
            "unknown shape: 1,8,513,64",
            "known: 1,8,1024,64, 1,8,512,64",
        ),
        (["show", "mission-1/99"], 2, "unknown trial: mission-1/99", "evo leaderboard"),
        (["show", "nothing/1"], 2, "unknown study: nothing", "known: laptop-1, mission-1"),
        (["show", "mission-1"], 2, "malformed trial: mission-1", "STUDY/NUMBER"),
        (["resume", "mission-2"], 2, "unknown study: mission-2", "did you mean mission-1?"),
        (["resume", "laptop-1", "--budget", "-1h"], 2, "negative", "a budget is a time"),
        (["leaderboard", "--task", "atention"], 2, "unknown task: atention", "did you mean attention?"),
        (["leaderboard", "--gpu", "H300"], 2, "unknown gpu: H300", "known: "),
        (["worker", "--scheduler", "first"], 2, "malformed address of a scheduler: first", "tcp://host:8786"),
        (["gate", "attention"], 2, "neither --self-test nor --mutate", "evo gate --self-test"),
        (["gate", "--self-test", "--mutate", "wmma"], 2, "--self-test and --mutate at once", "choose one"),
        (["export", "attention"], 2, "nothing says where to write", "--to DIR"),
        (["try", "attention", "bm=64", "bm=32"], 2, "parameter bm is given twice", "bm=VALUE"),
        (["search", "--budget", "2m", "--portfolio", "4"], 2, "--portfolio is for several", "--shapes"),
        (["search", "--budget", "2m", "--until", "done"], 2, "unknown end of a search: done", "converged"),
        (
            ["search", "--budget", "2m", "--slurm", "none.toml"],
            2,
            "none.toml: No such file or directory",
            "it says jobs",
        ),
        (["search", "--budget", "2m", "--rate", "0"], 2, "it is not greater than or equal to", "--help"),
        (["database", "move", "a", "b"], 2, "'copy': 'move' is not one of 'copy'", "evo database --help"),
        (["search", "--budgt", "1m"], 2, "no such option: --budgt (Possible options: --budget)", "--help"),
        (["search", "--xyz", "1m"], 2, "unknown task: 1m", "if 1m is the value of --xyz: there is no such"),
        (["search", "atention", "--budgt", "1m"], 2, "unknown task: atention", "did you mean attention?"),
        (
            ["leaderboard", "rowargmax"],
            2,
            "unexpected extra argument(s) (rowargmax)",
            "--task NAME or --study",
        ),
        (["search", "gemm", "gemm", "--budget", "2m"], 2, "extra argument(s) (gemm)", "evo search --help"),
        (["search"], 2, "missing option '--budget'", "--budget 2m"),
        (["search", "fft", "--budget", "2m"], 2, "unknown task: fft", "yours lie in ./tasks"),
        (
            ["search", "--budget", "2m", "--template", "flash_mna"],
            2,
            "unknown template: flash_mna",
            "flash_mma?",
        ),
        (["search", "--budget", "2m", "--strategy", "tpx"], 2, "unknown strategy: tpx", "did you mean tpe?"),
        (["search", "--budget", "2m", "--rank", "shrap"], 2, "unknown ranking: shrap", "did you mean sharp?"),
        (["search", "--budget", "2m", "--rank", "plain"], 2, "unknown ranking: plain", "mean, normal, sharp"),
        (["search", "--budget", "2m", "--target", "sm_99"], 2, "unknown target: sm_99", "sm_90a"),
        (["search", "--budget", "2m", "--gpu", "L5"], 2, "unknown gpu: L5", "L4"),
        (["champion", "--all", "--gpu", "L5"], 2, "unknown gpu: L5", "L4"),
        (
            ["search", "--budget", "2m", "--gpu", "L4", "--target", "sm_90a"],
            2,
            "cannot run code for sm_90a",
            "target",
        ),
        (["search", "--budget", "2m", "--device", "tpu"], 2, "unknown device: tpu", "emulator"),
        (["search", "--budget", "2m", "--shape", "1,8,512"], 2, "malformed shape: 1,8,512", "B,H,L,D"),
        (
            ["search", "--budget", "2m", "--shape", "misson"],
            2,
            "malformed shape: misson",
            "a named one: mission",
        ),
        (
            ["search", "--budget", "2m", "--shape", "1,8,512,63"],
            2,
            "unsupported head dimension: 63",
            "D one of",
        ),
        (["search", "--budget", "2m", "--dtype", "fp8"], 2, "unsupported dtype: fp8", "fp16, bf16"),
        (["search", "--budget", "2m", "--smem-limit", "lots"], 2, "malformed size: lots", "48K"),
        (
            ["search", "--budget", "2m", "--smem-limit", "1K", "--template", "flash_mma"],
            2,
            "no point is feasible",
            "×",
        ),
        (["search", "--budget", "soon"], 2, "malformed budget: soon", "14h"),
        (["search", "--budget", "-2m"], 2, "negative", "14h"),
        (["search", "--budget", "$7"], 2, "price of an hour", "--rate"),
        (["search", "--budget", "2m", "--workers", "0"], 2, "'--workers'", "--help"),
        (
            ["search", "--budget", "2m", "--study", "mission-1", "--device", "emulator"],
            2,
            "there is a study mission-1 already",
            "evo resume mission-1",
        ),
        (
            ["search", "--budget", "2m", "--nvcc", "/nowhere/nvcc", "--device", "emulator"],
            3,
            "no CUDA compiler at /nowhere/nvcc",
            "nvcc",
        ),
        (["profile", "mission-1/0", "--ncu", "nowhere"], 2, "there is no nowhere", "--ncu"),
        (["bench", "--plot", "nowhere/a.svg"], 3, "there is no folder nowhere", "make it"),
        (["emulate", "nothing.cu", "--launch", "grid=1"], 2, "there is no file nothing.cu", "STUDY/NUMBER"),
        (["emulate", "nothing.py", "--launch", "grid=1"], 2, "neither a .cu nor a .ptx", "STUDY/NUMBER"),
        (["emulate", "nothing.cu"], 2, "there is no file nothing.cu", ".ptx"),
        (["emulate", "mission-1/0", "--entry", "x"], 2, "a trial has its own launch", "leave them out"),
    ],
)
@pytest.mark.usefixtures("database")
def test_a_wrong_request_is_told_and_costs_nothing(
    evo: Evo, words: Sequence[str], code: int, error: str, hint: str
) -> None:
    before = evo("leaderboard", "--json").out
    said = evo(*words)
    assert said.code == code, said.err
    assert said.out == ""
    first, second = said.err.splitlines()[-2:]
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith("hint: ")
    assert hint in second
    assert evo("leaderboard", "--json").out == before
    assert len(evo("studies").out.splitlines()) == 3
