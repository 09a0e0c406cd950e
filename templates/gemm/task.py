"""C = epilogue(A · B), one product or a batch of them: fp16 or bf16 in, fp32 accumulation expected.

A is M × K, B is K × N, C is M × N, all row by row, one matrix of the batch behind the other. The layout
says how A and B lie in memory, A's letter first: N as the product has it, T transposed. So in "NT" both have
K as their last dimension. Rows of A and B may have a gap between them (a leading dimension); what lies there
is not read. C is of the storage type, or fp32. bias is (N,), residual (batch, M, N), both of the storage
type; scale is one fp32 number. GELU is the one by tanh, which libraries fuse. The sum is not rounded before
the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evo.dtype import dtype_named
from evo.task import Baseline, BufferSpec, Families, Flag, Pieces, Relation, Task, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_baselines = load_module(Path(__file__).with_name("baselines.py"))
_call = load_module(Path(__file__).with_name("call.py"))
_families = load_module(Path(__file__).with_name("families.py"))
_sizes = load_module(Path(__file__).with_name("sizes.py"))

PREFIXES = 16
"""Parts that K is cut into to see how large sums are on their way."""


def _problem(m: int, n: int, k: int, batch: int = 1, dtype: str = "bf16", **flags: str | int) -> Problem:
    chosen = {name: flags.get(name, flag.default) for name, flag in FLAGS.items()}
    return Problem("gemm", {"M": m, "N": n, "K": k, "batch": batch}, dtype, chosen)


FLAGS: Mapping[str, Flag] = {
    "layout": Flag("NT", _call.LAYOUTS, "How A and B lie in memory: N as the product has it, T transposed."),
    "epilogue": Flag("none", _call.EPILOGUES, "What becomes of a sum before it is rounded."),
    "out": Flag("same", ("same", "fp32"), "The type of C: that of A and B, or fp32."),
    "gap": Flag(0, (0, 1, 8, 64), "Elements between two rows of A, and of B: parts of wider matrices."),
}


class Gemm(Task):
    name = "gemm"
    sizes = ("M", "N", "K", "batch")
    dtypes = ("bf16", "fp16")
    flags: Mapping[str, Flag] = FLAGS
    problems: Mapping[str, tuple[Problem, ...]] = {
        "square": tuple(_problem(n, n, n) for n in (512, 1024, 2048, 4096, 8192)),
        "deepseek": (_problem(4096, 7168, 16384), _problem(4096, 4096, 7168), _problem(4096, 7168, 2048)),
        "decoding": (
            *(_problem(m, 7168, 57344, dtype="fp16") for m in (1, 2, 4, 8, 16)),
            _problem(1, 2112, 7168),
            _problem(96, 2112, 7168),
        ),
        "epilogues": tuple(_problem(2048, 2048, 2048, epilogue=name) for name in _call.EPILOGUES[1:]),
        "batched": (_problem(512, 512, 64, 64), _problem(512, 64, 512, 64, layout="NN")),
    }
    families = Families(
        plain="normal",
        sharp="peaky",
        even="offset",
        lone="huge",
        large="large",
        tiny="subnormal",
        growing="growing",
        masked="offset",  # an element beyond the end of a row or matrix that counts shows most
        others=("cancelling", "integers", "zeros"),
    )
    ranges: Mapping[str, Mapping[str, tuple[float, float]]] = _families.RANGES
    timing_inputs: Mapping[str, str] = _families.TIMING_INPUTS
    baseline_groups: Mapping[str, tuple[str, ...]] = {"cuBLAS": ("matmul", "cublaslt")}
    packages = _baselines.DISTRIBUTIONS

    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        """a, b, what the epilogue takes (bias, residual or scale), c."""
        m, n, batch, dtype = problem["M"], problem["N"], problem["batch"], problem.dtype
        a, b = ((batch, rows, columns + problem["gap"]) for rows, columns in _call.stored(problem))
        found = [BufferSpec("a", a, dtype, "in"), BufferSpec("b", b, dtype, "in")]
        extra = _call.operand(problem)
        if extra is not None:
            shape = {"bias": (n,), "residual": (batch, m, n), "scale": (1,)}[extra]
            found.append(BufferSpec(extra, shape, "fp32" if extra == "scale" else dtype, "in"))
        out = dtype if problem["out"] == "same" else "fp32"
        return (*found, BufferSpec("c", (batch, m, n), out, "out"))

    def flop(self, problem: Problem) -> int:
        """A multiplication and an addition a term."""
        return 2 * math.prod(problem.sizes.values())

    def nbytes(self, problem: Problem) -> int:
        """Every matrix is read or written once; gaps are not."""
        return sum(buffer.nbytes for buffer in self.buffers(problem.replace(gap=0)))

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """The families, and what each is for: see families.py."""
        shapes = {b.name: b.shape for b in self.buffers(problem) if b.read}
        found: dict[str, Tensor] = _families.tensors(problem, shapes, family, seed, torch_device)
        return found

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        shapes = {b.name: b.shape for b in self.buffers(problem) if b.read}
        found: dict[str, Tensor] = _families.timing_tensors(problem, shapes, name, seed, torch_device)
        return found

    def measures(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, float]:
        """The largest magnitude of A and of B, without gaps, and of C."""
        a, b = _call.matrices(problem, inputs)
        found = {"a": a, "b": b, "c": self.reference(problem, inputs)["c"]}
        return {name: float(tensor.double().abs().max()) for name, tensor in found.items()}

    def pieces(self, problem: Problem) -> Pieces:
        """Rows of C, or its columns where there are more."""
        turned = {"a": problem["layout"][0] == "T", "b": problem["layout"][1] == "T"}
        if problem["M"] >= problem["N"]:
            return Pieces("M", {"a": 1 + turned["a"], "residual": 1, "c": 1})
        return Pieces("N", {"b": 2 - turned["b"], "bias": 0, "residual": 2, "c": 2})

    # ---- what is computed

    def reference(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        a, b = _call.matrices(problem, inputs)
        return {"c": _call.finished(problem, a.double() @ b.double(), inputs)}

    def compute(self, problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
        a, b = _call.matrices(problem, inputs)
        found: Tensor = _call.finished(problem, a @ b, inputs)
        return found

    def honest(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sums in fp32 that are as far off as those of an honest kernel may be, the epilogue, one rounding.

        A sum of K terms is rounded K times, each time by up to u = 2^-24 of what it is just then. Roundings
        to either side add up as a random walk: u √K P, where P is the largest sum on the way (Higham and
        Mary, "A new approach to probabilistic rounding error analysis", 2019). Tensor Cores cut off instead
        (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021), once for 16
        terms, by u on average, always to one side: u K / 16 times the mean sum, about P / 2. Together
        u (√K + K / 32) P: 6e-7 of P at K = 64 and 4e-5 at K = 16384. P is taken over PREFIXES prefixes, and
        over the parts between them, as kernels split K; inside of a part a random walk of its terms is
        added. Sums of whole numbers are exact."""
        import torch

        a, b = (matrix.float() for matrix in _call.matrices(problem, inputs))
        depth = a.shape[-1]
        step = -(-depth // PREFIXES)
        total = torch.zeros((), device=a.device)
        peak = torch.zeros((), device=a.device)
        for first in range(0, depth, step):
            part = a[..., first : first + step] @ b[..., first : first + step, :]
            total = total + part
            peak = torch.maximum(peak, torch.maximum(part.abs(), total.abs()))
        inside = (a.square() @ b.square()).mul_(1 / -(-depth // step)).sqrt_()
        unit = 2.0**-24 * (math.sqrt(depth) + depth / 32)
        whole = (a == a.round()).all() & (b == b.round()).all() & (peak.max() < 2**24)
        off = torch.where(whole, 0.0, (peak + inside) * unit)
        rows, columns = (torch.arange(size, device=a.device) for size in off.shape[-2:])
        off = torch.where((rows[:, None] + columns) % 2 == 0, off, -off)
        out = self.buffers(problem)[-1].dtype
        return {"c": _call.finished(problem, total + off, inputs).to(dtype_named(out).torch)}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:
        """rows apart                 the last row of the last A moves no bit of other rows of C
        and, where the epilogue is exact:
        small integers are exact   in any order, as sums are below 2^24
        zeros leave the operand    C is the bias or the residual, bit for bit, where A is 0
        """
        found = [_families.last_row_apart(problem)]
        if _call.exact(problem):
            exact = {"small integers are exact": "integers", "zeros leave the operand": "zeros"}
            found += [self._exact(problem, title, family) for title, family in exact.items()]
        return tuple(found)

    def _exact(self, problem: Problem, title: str, family: str) -> Relation:
        """The relation that inputs of a family give the exact result, rounded once."""
        out = dtype_named(self.buffers(problem)[-1].dtype).torch

        def inputs(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return self.inputs(problem, family, 0, str(given["a"].device))

        def expected(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {"c": self.reference(problem, inputs({"a": outputs["c"]}))["c"].to(out)}

        return Relation(title, inputs, expected, exact=True)

    # ---- what kernels are compared with

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem)
        small = problem.replace(M=min(problem["M"], 64), N=min(problem["N"], 64), batch=1)
        small = small.replace(K=min(problem["K"], 64))
        tensors = self.inputs(small, "normal", 0, torch_device)
        found = {name: run for name, run in found.items() if _baselines.runs(run, tensors)}
        on_gpu = torch_device.startswith("cuda")
        return found | (_baselines.patient(problem) if patient and on_gpu else {})

    # ---- what the gate tries: see sizes.py

    def share(self, problem: Problem, part: float) -> Problem:
        found: Problem = _sizes.share(problem, part)
        return found

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _sizes.around_tiles(problem, tiles)
        return found

    def piece_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _sizes.many_tiles(problem, tiles)
        return found

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _sizes.every_remainder(problem, tiles, far)
        return found

    def some_ragged(
        self, problem: Problem, tiles: Sequence[int], count: int, seed: int, deep: bool
    ) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = _sizes.some_remainders(problem, tiles, count, seed, deep)
        return found


TASK = Gemm()
