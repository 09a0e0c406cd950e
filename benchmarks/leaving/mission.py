"""Attention at the mission shape end to end: evo.kernel against SDPA, eager, in a CUDA graph and compiled.

About two minutes on a GPU, most of it torch.compile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.leaving.turns import Work, device_us, told

PROTOCOL = """µs a call, host and GPU together: 200 calls one after another and a synchronization, divided by
200; variants in turns, medians over rounds with 95 % intervals by order statistics. Speedups are bootstrapped
over rounds. fp16, B=1, H=8, L=512, D=64, not causal, without gradients. A graph holds 20 calls; compiled
functions are of the modes "default" and "reduce-overhead" (a graph, into which inputs are copied)."""
GPU = True
SHAPE = (1, 8, 512, 64)
IN_GRAPH = 20
MODES = {"compiled": "default", "compiled, in a graph": "reduce-overhead"}
"""Of torch.compile."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds (default: 60)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    import evo

    if not torch.cuda.is_available():
        raise SystemExit("error: this needs an NVIDIA GPU")
    q, k, v = torch.randn(3, *SHAPE, device="cuda", dtype=torch.float16).unbind()
    attention, sdpa = evo.kernel("attention"), torch.nn.functional.scaled_dot_product_attention
    found: dict[str, Any] = {"served by": str(attention.explain(q, k, v).decision)}
    with torch.no_grad():
        error = (attention(q, k, v).double() - sdpa(q.double(), k.double(), v.double())).abs().max()
        found["largest error"] = float(error)
        forms: dict[str, tuple[Work, Work, int]] = {
            "eager": (lambda: attention(q, k, v), lambda: sdpa(q, k, v), 1),
        }
        ours, theirs = (captured(partial(function, q, k, v)) for function in (attention, sdpa))
        forms["graph"] = (ours.replay, theirs.replay, IN_GRAPH)
        for name, mode in MODES.items():
            fast, usual = (
                torch.compile(partial(_called, f), fullgraph=True, mode=mode) for f in (attention, sdpa)
            )
            forms[name] = (partial(fast, q, k, v), partial(usual, q, k, v), 1)
        for name, (one, other, calls) in forms.items():
            samples = device_us({"evo": one, "SDPA": other}, asked.rounds, 200 // calls)
            each = {variant: [us / calls for us in values] for variant, values in samples.items()}
            found[name] = told(each, "SDPA")
            yield found


def _called(function: Any, *tensors: Any) -> Any:
    return function(*tensors)


def captured(call: Work) -> Any:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(IN_GRAPH):
            call()
    return graph
