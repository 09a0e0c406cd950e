"""What a call of evo.kernel costs the host, beside SDPA and torch's own ways to add an operator.

On a GPU (about a minute): attention of five lengths, by evo.kernel with and without `out=`, by what code of
inductor calls, by its operator of torch.library, by a custom_op around the same call, and by SDPA. Without a
GPU: all but the driver's launch, which a function that does nothing stands in for.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.leaving.turns import Work, host_us, told

PROTOCOL = """µs of the host a call: 100 calls are made without waiting, the GPU finishes outside of the
time; variants in turns, medians over rounds with 95 % intervals by order statistics. fp16, B=1, H=8, D=64,
not causal, no gradients. Without a GPU: the same calls on CPU tensors, of L=128, with a driver that does
nothing."""
GPU = True
LENGTHS = (128, 256, 512, 1024, 2048)
TOGETHER = 100
SCHEMA = "(Tensor q, Tensor k, Tensor v) -> Tensor"
STILL = 'extern "C" int still(void*, void*, void*, void*) { return 0; }'
"""A driver that launches nothing."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds (default: 60)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    found: dict[str, Any] = {}
    with torch.no_grad():
        if not torch.cuda.is_available():
            yield {"without a GPU": told(host_us(on_the_host(), asked.rounds, TOGETHER, lambda: None))}
            return
        for length in LENGTHS:
            calls, served = on_the_gpu(length)
            samples = host_us(calls, asked.rounds, TOGETHER, torch.cuda.synchronize)
            found[f"L={length}"] = {"served by": served, **told(samples, "SDPA")}
            yield found


def on_the_gpu(length: int) -> tuple[dict[str, Work], str]:
    """The calls, and what serves ours."""
    import torch

    import evo

    q, k, v = torch.randn(3, 1, 8, length, 64, device="cuda", dtype=torch.float16).unbind()
    attention, out = evo.kernel("attention"), torch.empty_like(q)
    operator = attention._operators[(False,)]

    def through(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v)

    name = f"evo_bench::attention_{length}"
    custom = torch.library.custom_op(name, through, mutates_args=(), schema=SCHEMA)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls: dict[str, Work] = {
        "evo.kernel": lambda: attention(q, k, v),
        "evo.kernel, out=": lambda: attention(q, k, v, out=out),
        "as inductor calls it, out=": lambda: operator.overloadpacket.write(q, k, v, out=out),
        "torch.library define/impl": lambda: operator(q, k, v),
        "torch.library.custom_op": lambda: custom(q, k, v),
        "SDPA": lambda: sdpa(q, k, v),
    }
    return calls, str(attention.explain(q, k, v).decision)


def on_the_host() -> dict[str, Work]:
    """Calls that are known, and what a call takes that is not."""
    import torch

    import evo
    from evo.api.arguments import check_outputs
    from evo.cache import default_folder
    from evo.compile import build_table_library
    from evo.launch import Loaded, Output, plan_of, table_of

    q, k, v = torch.randn(3, 1, 8, 128, 64).half().unbind()
    attention, out = evo.kernel("attention"), torch.empty_like(q)
    launch = attention.champions[0].record["launch"]
    sources = {"q": 0, "k": 1, "v": 2, "o": -1}
    table = table_of(build_table_library(default_folder()), attention._reader.names)
    table.drive(_still(), *[0] * 4, _still(), 0)
    empty = {"size": q.shape, "dtype": q.dtype, "device": q.device}
    for given, where in ((None, -1), (out, 3)):
        plan = plan_of(launch, Loaded(None, 0, 0), sources, [Output(where, empty)], [("o", -1)])
        table.add(plan, (q, k, v), given, {})
    attention._known.call = table.call

    def read() -> None:
        """What Python does before a launch for a call that the table does not know."""
        call = attention._reader.read((q, k, v), out, {})
        check_outputs(call, attention._serve(call).specs)
        assert not call.obstacle

    return {
        "evo.kernel": lambda: attention(q, k, v),
        "evo.kernel, out=": lambda: attention(q, k, v, out=out),
        "table alone, out=": lambda: table.call((q, k, v), out, {}),
        "torch.empty_like": lambda: torch.empty_like(q),
        "read by Python, without a launch": read,
    }


def _still() -> int:
    from evo.cache import Cache, default_folder
    from evo.compile import build_shared_library

    cache = Cache(default_folder())
    source = cache.root / "still.cpp"
    source.write_text(STILL)
    library: Path = build_shared_library("still", [source], ["-O1"], cache)
    return ctypes.cast(ctypes.CDLL(str(library)).still, ctypes.c_void_p).value or 0
