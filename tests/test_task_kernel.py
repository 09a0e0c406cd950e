"""`evo.kernel` without a GPU: choice, checks, the fallback, and launches by the emulator."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ROOT
from kept import confirmed_us
from test_champions import confirmation, in_store
from times import standing, timing

import evo
from evo.confirm.champions import promote
from evo.device.driver import gpu_names
from evo.errors import NothingFound, UsageError
from evo.store import Finalist
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Interval, Outcome, Trial

TOYS = ROOT / "tests/toys"
SDPA = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Champions of two tasks. row_sum has no fallback."""
    folder = tmp_path_factory.mktemp("kernels")
    for name, template, shape in (("row_sum", "warp", "200"), ("scale", "grid", "3000")):
        task = load_task(name, (TOYS,))
        chosen = load_template(task, template, (TOYS,))
        problem = task.problem(shape)
        candidate = chosen.candidate(chosen.space.default, problem)
        timed = timing((2.0,), 2.0, Interval(2.0, 2.0))
        trial = Trial(candidate, Outcome.TIMED, timing=timed, machine_code="x", compiler="none 1")
        finalist = Finalist(1, "s", 3, "GREEN", standings={"warm": standing(2.0, Interval(1.9, 2.1))})
        study = Study("s", problem, "cuda:0", "H200", (template,), 9.0)
        found = replace(confirmation(finalist), baselines={})
        promote(in_store(trial), study, found, "sm_80", folder)
    return folder


@pytest.fixture
def attention() -> Any:
    return evo.kernel("attention")


def qkv(*shape: int, kind: torch.dtype = torch.float16) -> list[torch.Tensor]:
    drawn = torch.randn((3, *shape), generator=torch.Generator().manual_seed(0))
    return list(drawn.to(kind).unbind())


# ---- the launch, by the emulator


@pytest.mark.nvcc
def test_a_champion_runs_through_the_same_call(kernels: Path) -> None:
    row_sum = evo.kernel(kernels / "row_sum", templates=TOYS, device="emulator", gpu="H200")
    x = torch.rand(200, 96)
    total = torch.full((200,), -1.0)
    assert row_sum(x, out=total) is total
    assert torch.allclose(total, x.sum(-1))
    assert torch.equal(row_sum(x=x), total)
    few = torch.rand(7, 96)
    assert torch.allclose(row_sum(few), few.sum(-1)), "the same code for another problem"
    served = {one.problem: one for one in row_sum.table()}
    assert [one.kernel for one in served.values()] == 2 * ["row_sum/sm_80/n200_fp32"]
    assert served["row_sum N=200 fp32"].why.startswith("made for this very problem; CONFIRMED at 2.00 µs")
    assert "doublings away" in served["row_sum N=7 fp32"].why


@pytest.mark.nvcc
def test_many_threads_may_call_it(kernels: Path) -> None:
    row_sum = evo.kernel(kernels / "row_sum", templates=TOYS, device="emulator")

    def right(seed: int) -> bool:
        x = torch.rand(1 + seed % 13, 96, generator=torch.Generator().manual_seed(seed))
        return bool(torch.allclose(row_sum(x), x.sum(-1)))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(right, range(60)))
    assert len(row_sum.table()) == 13


@pytest.mark.nvcc
def test_tensors_that_no_kernel_takes_are_not_launched(kernels: Path) -> None:
    """row_sum has no fallback: what it would serve is an error."""
    row_sum = evo.kernel(kernels / "row_sum", templates=TOYS, device="emulator")
    wide = torch.rand(20, 97)
    refused = {
        "x is not contiguous": wide[:, :96],
        "x does not begin at a multiple of 16 bytes": wide.view(-1)[1 : 1 + 5 * 96].view(5, 96),
        "x requires a gradient": torch.rand(5, 96, requires_grad=True),
    }
    for why, x in refused.items():
        with pytest.raises(NothingFound, match=why):
            row_sum(x)
    with torch.no_grad():
        assert row_sum(refused["x requires a gradient"]).shape == (5,)
    assert row_sum.explain(wide[:, :96]).decision.why == "x is not contiguous"


# ---- the fallback


def test_cpu_tensors_are_the_fallbacks_and_the_log_says_so_once(
    attention: Any, caplog: pytest.LogCaptureFixture
) -> None:
    q, k, v = qkv(1, 8, 64, 64)
    with caplog.at_level(logging.WARNING, "evo.kernel"):
        for causal in (False, True):
            assert torch.equal(attention(q, k, v, causal=causal), SDPA(q, k, v, is_causal=causal))
    assert [record.getMessage() for record in caplog.records] == [
        "attention: torch.nn.functional.scaled_dot_product_attention serves, not a champion: "
        "the tensors lie on cpu"
    ]
    (first, second) = attention.table()
    assert (first.gpu, first.kernel) == ("", "")
    assert second.problem == "attention B=1 H=8 L=64 D=64 causal=1 fp16"
    assert str(first).endswith("on no GPU: torch.nn.functional.scaled_dot_product_attention: " + first.why)


def test_the_fallback_writes_into_out_and_has_a_gradient(attention: Any) -> None:
    q, k, v = qkv(1, 2, 32, 64)
    o = torch.empty(2, 32, 64, 1, dtype=torch.float16).permute(3, 0, 1, 2)
    assert attention(q, k, v, out=o) is o
    assert torch.equal(o, SDPA(q, k, v))
    assert torch.equal(attention(q, v=v, k=k, o=torch.empty_like(q)), o)
    q.requires_grad_()
    attention(q, k, v).sum().backward()
    assert q.grad is not None
    with pytest.raises(UsageError, match="o is written in place, which has no gradient"):
        attention(q, k, v, out=torch.empty_like(k))


def test_a_fallback_rounds_once() -> None:
    rmsnorm = evo.kernel("rmsnorm")
    x, weight = 300 * torch.randn(4, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    expected = torch.nn.functional.rms_norm(x.float(), (64,), eps=1e-6).bfloat16()
    assert torch.allclose(rmsnorm(x, weight), expected)
    residual = torch.ones_like(x)
    found = rmsnorm(x, weight=weight, residual=residual)
    assert found["residual"] is residual, "it is changed in place"
    assert torch.equal(residual, (x.float() + 1).bfloat16())
    assert set(found) == {"y", "residual"}
    champions = len(rmsnorm.champions)
    assert repr(rmsnorm) == f"<evo.kernel rmsnorm: {champions} champions, else rmsnorm in fp32 by torch>"


def test_what_no_champion_serves_is_the_fallbacks(caplog: pytest.LogCaptureFixture) -> None:
    attention = evo.kernel("attention", device="emulator", gpu="A100")
    q, k, v = qkv(1, 1, 5, 32)
    assert torch.equal(attention(q, k, v), SDPA(q, k, v))
    (decision,) = attention.table()
    assert (decision.gpu, decision.kernel) == ("A100", "")
    assert decision.why == "no champion serves attention B=1 H=1 L=5 D=32 causal=0 fp16 on sm_80"
    assert decision.why in caplog.text


# ---- what is refused


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"k": torch.ones(1, 2, 8, 64)}, "k is fp32, and attention takes fp16 or bf16"),
        ({"q": None}, "q is None"),
        ({"v": torch.ones(1, 2, 9, 64).half()}, "L is 8 by q and 9 by v"),
        ({"v": torch.ones(2, 8, 64).half()}, "v has 3 dimensions"),
        ({"v": torch.ones(1, 2, 8, 64, device="meta").half()}, "tensors lie on cpu, meta"),
        ({"causal": "maybe"}, "flag causal cannot be maybe"),
        ({"mask": True}, "attention has no mask"),
        ({"window": torch.ones(1)}, "there is no buffer window"),
        ({"out": torch.ones(1, 2, 8, 64)}, "o is .* of torch.float32"),
        ({"out": "q"}, "o shares memory with q"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_call_of_the_task_is_an_error(attention: Any, changed: dict[str, Any], said: str) -> None:
    q, k, v = qkv(1, 2, 8, 64)
    named = {"q": q, "k": k, "v": v} | changed
    if named.get("out") == "q":
        named["out"] = q
    with pytest.raises(UsageError, match=said):
        attention(**named)
    empty = torch.ones(1, 2, 0, 64).half()
    with pytest.raises(UsageError, match="q is empty"):
        attention(empty, empty, empty)


def test_a_source_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is no task, folder or study nothing"):
        evo.kernel("nothing")
    with pytest.raises(UsageError, match="has champions of 0 tasks"):
        evo.kernel(tmp_path)
    with pytest.raises(UsageError, match="not on H200"):
        evo.kernel("attention", gpu="H200")


def test_a_folder_of_two_tasks_is_not_guessed_about(kernels: Path) -> None:
    with pytest.raises(UsageError, match="has champions of 2 tasks") as caught:
        evo.kernel(kernels, templates=TOYS)
    assert "row_sum, scale" in caught.value.hint


# ---- explanations


def test_it_explains_what_would_serve_on_a_gpu_that_is_not_here(attention: Any) -> None:
    q, k, v = qkv(1, 8, 512, 64)
    told = attention.explain(q, k, v, gpu="H200")
    assert told.decision.kernel == "attention/sm_90a/b1_h8_l512_d64_fp16"
    confirmed = confirmed_us("attention/sm_90a/b1_h8_l512_d64_fp16")
    assert told.decision.why.startswith(f"made for this very problem; CONFIRMED at {confirmed} on H200")
    assert "\n  not attention/sm_90a/b1_h8_l512_d64_causal_fp16: other flags" in str(told)
    assert "\n  after it attention/sm_89/b1_h8_l512_d64_fp16: " in str(told)
    assert attention.explain(q, k, v, gpu="L4").decision.kernel == "attention/sm_89/b1_h8_l512_d64_fp16"
    strided = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert attention.explain(strided, k, v, gpu="H200").decision.why == "q is not contiguous"
    here = attention.explain(q, k, v)
    assert here.decision.serves == "torch.nn.functional.scaled_dot_product_attention"
    assert here.considered == ()


def test_the_decisions_for_a_gpu_are_a_table(attention: Any) -> None:
    rows = attention.table("H200")
    assert len(rows) == len({one.problem.key for one in attention.champions})
    assert all(row.kernel.startswith("attention/sm_90a/") for row in rows)
    assert {row.gpu for row in rows} == {"H200"}


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_a_champion_serves_and_a_graph_captures_it(attention: Any) -> None:
    q, k, v = (x.cuda() for x in qkv(1, 8, 512, 64))
    out = torch.empty_like(q)
    told = attention.explain(q, k, v).decision
    assert told.kernel, told
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert attention(q, k, v, out=out) is out
    torch.cuda.synchronize()
    assert torch.allclose(out, SDPA(q, k, v), atol=5e-3)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        before = torch.cuda.memory_allocated()  # torch's own for a capture is there by now
        attention(q, k, v, out=out)
        assert torch.cuda.memory_allocated() == before
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(out, SDPA(q, k, v), atol=5e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_threads_that_have_called_nothing_yet_may_call_it(attention: Any) -> None:
    q, k, v = (x.cuda() for x in qkv(1, 8, 256, 64))
    expected, outs = SDPA(q, k, v), [torch.empty_like(q) for _ in range(4)]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda out: attention(q, k, v, out=out), outs))
    torch.cuda.synchronize()
    assert all(torch.allclose(out, expected, atol=5e-3) for out in outs)
