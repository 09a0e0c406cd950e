"""Attention at the mission shape end to end: evo.kernel against SDPA, eager, in a CUDA graph and compiled.

One call, and eight one after another, each of which takes what the last one gave: what torch.compile costs
once a call of the compiled function hides one kernel, and not eight. About a minute on a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.leaving.turns import Work, device_us, host_us, told

PROTOCOL = """µs a call of a function, host and GPU together: 200 (of eight attentions 50) one after another
and a synchronization, divided by 200 (50); "host_us": as many without waiting, the GPU finishes outside of
the time. Variants in turns, medians over rounds with 95 % intervals by order statistics. Speedups are
bootstrapped over rounds. fp16, B=1, H=8, L=512, D=64, not causal, without gradients. A graph holds 20 calls;
compiled functions are of the modes "default" and "reduce-overhead" (a graph, into which inputs are copied;
"static": not copied, for torch is told that they stay where they are). `nothing` is a compiled function of
the same inputs that adds 1 to the first: what torch costs by itself."""
GPU = True
SHAPE = (1, 8, 512, 64)
IN_GRAPH = 20
LAYERS = (1, 8)
MODES = {"compiled": "default", "compiled, in a graph": "reduce-overhead"}
"""Of torch.compile."""
Attention = Callable[[Any, Any, Any], Any]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="rounds (default: 30)")


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
        for layers in LAYERS:
            functions = {"evo": partial(chain, attention, layers), "SDPA": partial(chain, sdpa, layers)}
            for form, calls, together in forms(functions, (q, k, v), layers):
                samples = device_us(calls, asked.rounds, together)
                each = IN_GRAPH if form == "graph" else 1
                of_one = {name: [us / each for us in values] for name, values in samples.items()}
                said = told(of_one, "SDPA")
                if form != "graph":
                    hosts = told(host_us(calls, asked.rounds // 2, together, torch.cuda.synchronize))
                    for name, host in hosts.items():
                        said[name]["host_us"] = host["median_us"]
                found[form if layers == 1 else f"{form}, {layers} attentions"] = said
                yield found


def chain(attention: Attention, layers: int, q: Any, k: Any, v: Any) -> Any:
    for _ in range(layers):
        q = attention(q, k, v)
    return q


def forms(
    functions: Mapping[str, Attention], given: tuple[Any, ...], layers: int
) -> Iterator[tuple[str, dict[str, Work], int]]:
    """A name, the calls to be timed beside each other, and how many of one are timed together."""
    import torch

    together = 200 if layers == 1 else 50
    yield "eager", {name: partial(call, *given) for name, call in functions.items()}, together
    graphs = {name: captured(partial(call, *given)).replay for name, call in functions.items()}
    yield "graph", graphs, max(1, together // IN_GRAPH)
    for form, mode in MODES.items():
        torch._dynamo.reset()
        calls = {
            name: torch.compile(call, fullgraph=True, mode=mode)
            for name, call in {**functions, "nothing": _nothing}.items()
        }
        yield form, {name: partial(call, *given) for name, call in calls.items()}, together
    torch._dynamo.reset()
    still = tuple(x.clone() for x in given)
    for x in still:
        torch._dynamo.mark_static_address(x)
    calls = {
        name: partial(torch.compile(call, fullgraph=True, mode="reduce-overhead"), *still)
        for name, call in functions.items()
    }
    yield "compiled, in a graph, static", calls, together


def _nothing(q: Any, k: Any, v: Any) -> Any:  # noqa: ARG001
    return q + 1


def captured(call: Work) -> Any:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(IN_GRAPH):
            call()
    graph.instantiate()
    return graph
