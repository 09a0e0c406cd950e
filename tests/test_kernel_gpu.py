"""`evo.kernel` on a GPU: many threads, streams and shapes; several GPUs; arguments that no kernel takes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from test_task_kernel import SDPA
from torch._inductor.utils import fresh_cache, run_and_get_code

import evo
from evo.device.driver import gpu_names
from evo.errors import UsageError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here"),
]
CALLS, THREADS = 10_000, 4
SERVED = (
    (1, 8, 128, 64),
    (1, 8, 256, 64),
    (1, 8, 512, 64),
    (1, 8, 300, 64),
    (2, 4, 100, 64),
    (3, 2, 512, 64),
)


@pytest.fixture
def attention() -> Any:
    return evo.kernel("attention")


Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def qkv(shape: tuple[int, ...], seed: int = 0, device: str = "cuda") -> Three:
    drawn = torch.randn((3, *shape), generator=torch.Generator().manual_seed(seed)).half().to(device)
    return drawn[0], drawn[1], drawn[2]


def near(found: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> bool:
    """By fp64, computed without a kernel that may be ours."""
    exact = SDPA(q.double(), k.double(), v.double(), is_causal=causal)
    return bool((found.double() - exact).abs().max() < 5e-3)


def allocated() -> int:
    """Bytes, without cuBLAS's 32 MB for each pair of a thread and a stream, which the fallback may meet."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    return int(torch.cuda.memory_allocated())


def test_the_second_call_is_known_and_gives_the_same(attention: Any) -> None:
    q, k, v = qkv((1, 8, 512, 64))
    first = attention(q, k, v)
    assert len(attention._known) == 1
    assert torch.equal(attention(q, k, v), first)
    assert near(attention(2 * q, k=k, v=v), 2 * q, k, v, False)
    assert len(attention._known) == 2, "by name is another call"
    out = torch.empty_like(q)
    assert attention(q, k, v, out=out) is out
    assert attention(q, k, v, out=out) is out
    assert torch.equal(out, first)


def test_many_calls_of_many_threads_on_two_streams(attention: Any) -> None:
    """Shapes are drawn; every fiftieth call is strided, and so torch's. The first calls compile."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    given = {shape: qkv(shape) for shape in SERVED}
    expected = {
        (shape, causal): attention(*tensors, causal=causal)
        for shape, tensors in given.items()
        for causal in (False, True)
    }
    for (shape, causal), found in expected.items():
        assert near(found, *given[shape], causal)
    wide = torch.randn(1, 8, 512, 128, device="cuda", dtype=torch.float16)[..., ::2]
    fallback = SDPA(wide, *given[1, 8, 512, 64][1:])
    torch.cuda.synchronize()

    def run(thread: int) -> float:
        rng, worst = random.Random(thread), torch.zeros((), device="cuda")
        stream = streams[thread % 2]
        with torch.cuda.stream(stream):
            for number in range(CALLS // THREADS):
                if number % 50 == 0:  # strided: torch's
                    found, right = attention(wide, *given[1, 8, 512, 64][1:]), fallback
                else:
                    shape, causal = rng.choice(SERVED), rng.random() < 0.5
                    found, right = attention(*given[shape], causal=causal), expected[shape, causal]
                worst = torch.maximum(worst, (found - right).abs().max().float())
            stream.synchronize()
        return float(worst)

    with ThreadPoolExecutor(THREADS) as threads:
        assert max(threads.map(run, range(THREADS))) < 5e-3
        before = allocated()
        assert max(threads.map(run, range(THREADS))) < 5e-3
    assert allocated() <= before + (1 << 20)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_tensors_of_the_second_gpu_run_there(attention: Any) -> None:
    for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1"):
        tensors = qkv((1, 8, 512, 64), device=device)
        found = attention(*tensors)
        assert str(found.device) == device
        assert near(found, *tensors, False)
    assert torch.cuda.current_device() == 0


def test_arguments_that_no_kernel_takes_are_the_fallbacks_or_an_error(attention: Any) -> None:
    q, k, v = qkv((1, 8, 512, 64))
    attention(q, k, v)
    strided = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert near(attention(strided, k, v), q, k, v, False)
    room = torch.empty(q.numel() + 1, dtype=q.dtype, device="cuda")
    misaligned = room[1:].view(q.shape).copy_(q)
    assert near(attention(misaligned, k, v), q, k, v, False)
    leaf = q.clone().requires_grad_()
    attention(leaf, k, v).sum().backward()
    assert leaf.grad is not None
    with torch.no_grad():
        assert near(attention(leaf, k, v), q, k, v, False)
    for wrong, said in (
        ((q.cpu(), k, v), "tensors lie on"),
        ((q.float(), k, v), "q is fp32"),
        ((q[:, :, :0], k[:, :, :0], v[:, :, :0]), "is empty"),
        ((q, k[:, :4], v), "H is"),
    ):
        with pytest.raises(UsageError, match=said):
            attention(*wrong)
    with pytest.raises(UsageError, match="shares memory"):
        attention(q, k, v, out=q)
    assert near(attention(q, k, v), q, k, v, False), "nothing is broken"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's compiler imports its own
def test_a_compiled_call_is_known_too(attention: Any) -> None:
    q, k, v = qkv((1, 8, 512, 64))
    run = torch.compile(lambda q, k, v: attention(q, k, v) * 2, fullgraph=True)
    with torch.no_grad():
        found = run(q, k, v)
        assert len(attention._known) == 1
        assert torch.equal(run(q, k, v), found)
    assert near(found / 2, q, k, v, False)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # torch's own, for its pool
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_calls_one_after_another_go_straight_to_their_launches(attention: Any, mode: str) -> None:
    def several(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(attention(q, k, v), k, v, causal=True)

    q, k, v = qkv((1, 8, 512, 64))
    with torch.no_grad(), fresh_cache():
        run = torch.compile(several, fullgraph=True, mode=mode)
        found, (code,) = run_and_get_code(run, q, k, v)
        first = attention(q, k, v)
        assert near(found, first, k, v, True)
        for _ in range(3):
            assert near(run(q, k, v), first, k, v, True)
    assert code.count(".write(") == 2


def test_a_thread_of_another_stream_takes_part_in_a_graph(attention: Any) -> None:
    q, k, v = qkv((1, 8, 256, 64))
    out, stream, graph = torch.empty_like(q), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    attention(q, k, v, out=out)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(3):
            attention(q, k, v, out=out)
    q.copy_(-q)
    graph.replay()
    torch.cuda.synchronize()
    assert near(out, q, k, v, False)
