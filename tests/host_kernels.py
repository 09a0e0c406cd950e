"""Kernels that are functions of this process, right and wrong ones, and the gate's verdict on them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from evo.compile import module_state
from evo.device import LaunchReport, Region
from evo.device.synchronous import SynchronousDevice, SynchronousKernel
from evo.dtype import dtype_named
from evo.errors import Infeasible
from evo.gate import Green, check
from evo.gate.memory import GUARD_BYTES
from evo.gpu import Gpu, target
from evo.task import load_task
from evo.trial import Binary, BufferArg, LaunchConfig, Problem, Resources, Workspace

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
SMALL = TASK.problem("1,2,96,64")
TILES = (32, 64)

Memory = Mapping[str, torch.Tensor]
Program = Callable[[Memory, Problem, int], None]
"""What a host kernel does with its buffers: (buffers, problem, number of launches before)."""


@dataclass
class HostKernel(SynchronousKernel):
    """A kernel that is a function of this process: it gets the very memory that the gate laid out."""

    program: Program
    problem: Problem
    before: list[int]
    schedules: list[str]
    ptx: str = ""

    @property
    def binary(self) -> Binary:
        resources = Resources(32, 0, 0, 0)
        return Binary(b"", self.ptx, "k", "sm_80", "none", resources, "", 0.0, module_state(self.ptx))

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        dtype = dtype_named(self.problem.dtype).torch
        memory = {}
        for arg in launch.args:
            assert isinstance(arg, BufferArg)
            region = regions[arg.buffer]
            # a guard's width more on both sides: a wrong kernel may leave its buffer
            raw = (ctypes.c_char * (region.nbytes + 2 * GUARD_BYTES)).from_address(
                region.address - GUARD_BYTES
            )
            kind = dtype if arg.buffer in "qkvo" else torch.int32
            memory[arg.buffer] = torch.frombuffer(raw, dtype=kind)
        self.schedules.append(schedule)
        self.program(memory, self.problem, self.before[0])
        self.before[0] += 1
        return LaunchReport(schedule, 0.0, {"instructions": TASK.flop(self.problem) / 1000})


@dataclass
class HostDevice(SynchronousDevice):
    """Runs host kernels. Its schedules change nothing by themselves; a program may look at them."""

    name: str = "host"
    gpu: Gpu = field(default_factory=lambda: target("sm_89"))
    launches_are_cheap: bool = False
    schedules: tuple[str, ...] = ("default", "late", "reversed")

    def load(self, binary: Binary, launch: LaunchConfig) -> HostKernel:
        raise NotImplementedError("host kernels are made by hand")


def inside(whole: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The buffer itself, (B, H, L, D), without the guards around it."""
    guard = GUARD_BYTES // whole.element_size()
    return whole[guard:-guard].view(tuple(problem.sizes.values()))


def honest(memory: Memory, problem: Problem, _before: int = 0) -> None:
    inputs = {name: inside(memory[name], problem) for name in "qkv"}
    inside(memory["o"], problem).copy_(TASK.honest(problem, inputs)["o"])


def verdict(
    program: Program, problem: Problem = SMALL, *, seed: int = 1, deterministic: bool = True, ptx: str = "",
    workspaces: tuple[Workspace, ...] = (), device: HostDevice | None = None, seen: list[str] | None = None,
    only: set[int] | None = None, thorough: bool = False, accept_unproven: bool = False,
) -> Green:  # fmt: skip
    before = [0]
    args = tuple(BufferArg(name) for name in (*"qkvo", *(w.name for w in workspaces)))
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, args, workspaces=workspaces)

    def kernel_for(at: Problem) -> tuple[HostKernel, LaunchConfig]:
        if only is not None and at["L"] not in only:
            raise Infeasible("fixed length")
        return HostKernel(program, at, before, [] if seen is None else seen, ptx), launch

    return check(
        kernel_for,
        device or HostDevice(),
        TASK,
        problem,
        TILES,
        seed=seed,
        deterministic=deterministic,
        thorough=thorough,
        accept_unproven=accept_unproven,
    )


def flash(memory: Memory, problem: Problem, *, tile: int, **change: Any) -> None:
    """Online softmax over key tiles, as a kernel does it; `change` plants an error."""
    dtype = memory["o"].dtype
    q, k, v = (inside(memory[name], problem).float() for name in "qkv")
    length = problem["L"]
    scale = change.get("scale", 1.0) * math.log2(math.e) / math.sqrt(problem["D"])
    top = torch.full((*q.shape[:-1], 1), -1e30)
    total, acc = torch.zeros_like(top), torch.zeros_like(q)
    rows = torch.arange(length)[:, None] + change.get("diagonal", 0)
    padding = change.get("padding", 0)
    if padding:
        k, v = (torch.nn.functional.pad(t, (0, 0, 0, padding)) for t in (k, v))
    end = length + padding - change.get("drop_keys", 0)
    for start in range(0, end, tile):
        if start == change.get("drop_tile"):
            continue
        stop = min(start + tile, end)
        scores = q @ k[:, :, start:stop].transpose(-1, -2)
        if change.get("half_scores"):
            scores = scores.to(dtype).float()
        scores = scores * scale
        if problem["causal"]:
            scores = scores.masked_fill(torch.arange(start, stop) > rows, -math.inf)
        higher = (
            top if change.get("no_maximum") and start else torch.maximum(top, scores.amax(-1, keepdim=True))
        )
        keep = torch.exp2(top - higher)
        weights = torch.exp2(scores - higher)
        top = higher
        total = total * keep + weights.sum(-1, keepdim=True)
        if change.get("fp8"):
            weights = weights.to(torch.float8_e4m3fn).float()
        elif change.get("round", True):
            weights = weights.to(dtype).float()
        acc = (acc if change.get("no_rescale") else acc * keep) + weights @ v[:, :, start:stop]
        if change.get("half_sums"):
            acc = acc.to(dtype).float()
    out = (acc / total * change.get("gain", 1.0)).to(dtype)
    inside(memory["o"], problem).copy_(out)


def after(act: Callable[[Memory, Problem, int], None]) -> Program:
    """Honest, and then something that must not be."""

    def program(memory: Memory, problem: Problem, before: int) -> None:
        honest(memory, problem)
        act(memory, problem, before)

    return program


def last_row_unwritten(memory: Memory, problem: Problem, _before: int) -> None:
    out = inside(memory["o"], problem)
    if problem["L"] % 32:
        out[0, -1, -1] = 0
