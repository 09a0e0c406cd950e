"""What a call of evo.kernel costs the host, beside SDPA and torch's own ways to add an operator.

On a GPU (about a minute): attention of five lengths, by evo.kernel with and without `out=`, by what code of
inductor calls, by its operator of torch.library, by a custom_op around the same call, and by SDPA; what is
left of a call whose launch the driver does not see; and what the driver takes for a kernel that does nothing.
A GPU and a host that have rested take half as long again in their first seconds: they are warmed up before.
Without a GPU: all but the driver's launch, which a function that does nothing stands in for.
"""

from __future__ import annotations

import argparse
import ctypes
import time
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
WARM_UP_S = 6.0
SCHEMA = "(Tensor q, Tensor k, Tensor v) -> Tensor"
STILL = 'extern "C" int still(void*, void*, void*, void*) { return 0; }'
"""A driver that launches nothing."""
EMPTY = 'extern "C" __global__ void empty() {}'
LAUNCHES = """
typedef int Launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);
extern "C" int launches(Launch* driver, void* function, void* stream, int count) {
  for (int i = 0; i < count; ++i)
    if (int status = driver(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr)) return status;
  return 0;
}"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds (default: 60)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    found: dict[str, Any] = {}
    with torch.no_grad():
        if not torch.cuda.is_available():
            yield {"without a GPU": told(host_us(on_the_host(), asked.rounds, TOGETHER, lambda: None))}
            return
        warm_up()
        for length in LENGTHS:
            calls, served = on_the_gpu(length)
            samples = host_us(calls, asked.rounds, TOGETHER, torch.cuda.synchronize)
            samples |= driver_alone(asked.rounds)
            found[f"L={length}"] = {"served by": served, **told(samples, "SDPA")}
            yield found


def warm_up() -> None:
    """The calls, until the clocks of a machine that has rested have risen."""
    import torch

    calls, _ = on_the_gpu(LENGTHS[0])
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        for work in calls.values():
            work()
        torch.cuda.synchronize()


def on_the_gpu(length: int) -> tuple[dict[str, Work], str]:
    """The calls, and what serves ours."""
    import torch

    import evo
    from evo.launch.fast import driver_addresses

    q, k, v = torch.randn(3, 1, 8, length, 64, device="cuda", dtype=torch.float16).unbind()
    attention, out = evo.kernel("attention"), torch.empty_like(q)
    operator = attention._operators[(False,)]

    def through(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v)

    name = f"evo_bench::attention_{length}"
    custom = torch.library.custom_op(name, through, mutates_args=(), schema=SCHEMA)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    quiet = evo.kernel("attention")
    quiet(q, k, v, out=out)
    quiet._known._table.drive(_built("still", STILL), *driver_addresses()[1:])
    calls: dict[str, Work] = {
        "evo.kernel": lambda: attention(q, k, v),
        "evo.kernel, out=": lambda: attention(q, k, v, out=out),
        "evo.kernel, out=, not launched": lambda: quiet(q, k, v, out=out),
        "as inductor calls it, out=": lambda: operator.overloadpacket.write(q, k, v, out=out),
        "torch.library define/impl": lambda: operator(q, k, v),
        "torch.library.custom_op": lambda: custom(q, k, v),
        "SDPA": lambda: sdpa(q, k, v),
    }
    return calls, str(attention.explain(q, k, v).decision)


def driver_alone(rounds: int) -> dict[str, list[float]]:
    """What the driver takes to launch a kernel that does nothing and takes nothing, called from C."""
    import torch

    from evo.cache import Cache, default_folder
    from evo.compile import find_compiler
    from evo.device.open import real_gpu
    from evo.launch.driver import library, load

    with find_compiler(None, Cache(default_folder())) as compiler:
        cubin = compiler.compile(EMPTY, "empty", real_gpu("cuda:0").arch).cubin
    loaded, driver = load(0, cubin, "empty", 0), ctypes.cast(library().cuLaunchKernel, ctypes.c_void_p)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_int)
    launches = kind(_built("launches", LAUNCHES))
    stream = torch.cuda.current_stream().cuda_stream

    def work() -> None:
        if status := launches(driver, loaded.function, stream, TOGETHER):
            raise SystemExit(f"error: the driver says {status}")

    (samples,) = host_us({"": work}, rounds, 1, torch.cuda.synchronize).values()
    return {"an empty kernel, by the driver alone": [one / TOGETHER for one in samples]}


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
    still = _built("still", STILL)
    table.drive(still, *[0] * 4, still, 0)
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


def _built(name: str, source: str) -> int:
    """The address of the function `name` of C++ code."""
    from evo.cache import Cache, default_folder
    from evo.compile import build_shared_library

    cache = Cache(default_folder())
    file = cache.root / f"{name}.cpp"
    file.write_text(source)
    library: Path = build_shared_library(name, [file], ["-O1"], cache)
    return ctypes.cast(getattr(ctypes.CDLL(str(library)), name), ctypes.c_void_p).value or 0
