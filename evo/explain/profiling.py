"""What limits one kernel: counters of the GPU by ncu, or the emulator's model, with a verdict and its
evidence.

Percentages that were measured on a GPU are of that unit's peak while the launch ran. Modelled ones are cycles
of the pipes of one SM in the emulator's estimate: what a kernel needs, not what it was seen to do. Only the
emulator tells which line of the source has bank conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from evo.device.emulator import EmulatorDevice
from evo.device.emulator.interpreter import Work
from evo.errors import CandidateError, MachineError
from evo.evaluate import EvaluatorSpec
from evo.explain import ncu
from evo.explain.counters import measured_numbers, measured_stalls, measured_units, stall_text
from evo.explain.emulation import Emulation, emulate_candidate
from evo.gpu import Gpu, Roof
from evo.task import load_task
from evo.trial import PLAIN, Candidate, Resources, Trial, line_of

BUSY_PERCENT = 60.0
"""A unit that reaches this part of its peak limits the kernel (ncu's own guidance)."""
IDLE_PERCENT = 80.0
"""If no unit is busy and fewer SMs than this are used, idle SMs limit the kernel."""
MOST_CONFLICTS = 8
"""So many kinds of instructions with bank conflicts are kept."""
MOST_EMULATED_FLOP = 2e10
"""More work than this is not emulated: it would take minutes."""


@dataclass(frozen=True)
class Roofline:
    """Where a kernel is under the roofs: work of the definition and compulsory traffic over its time. `share`
    of the lower roof at its intensity; `bound` names that roof. Traffic that fits the L2 cache is compared
    with the L2's bandwidth."""

    tflops: float
    gbps: float
    intensity: float
    ridge: float
    peak_tflops: float
    peak_gbps: float
    bound: str
    share: float


@dataclass(frozen=True)
class Conflict:
    """PTX instructions of one kind, at one line of the source, that cost more shared-memory wavefronts than
    their bytes need. Inlined code counts for the line of the kernel that it was inlined into; there the
    instruction says more than the line."""

    instruction: str
    count: int
    line: int
    code: str
    wavefronts: int
    ideal: int


@dataclass(frozen=True)
class Profile:
    """What limits trial `study/number`. `us`: ncu's duration of one launch, or the estimate for `gpu`
    (`kind`). `units` in per cent of their peak (measured), or of the model's longest pipe (modelled);
    `stalls` as shares of all waiting (measured). `numbers`: registers, occupancy and the like by name.
    `fast_us` is FAST's time `fast_on` this timing input. `metrics`: everything ncu counted. `absent`: why
    there are no counters."""

    study: str
    number: int
    problem: str
    template: str
    kind: Literal["measured", "modelled"]
    gpu: str
    us: float | None
    fast_us: float | None
    units: Mapping[str, float]
    stalls: Mapping[str, float]
    numbers: Mapping[str, float]
    roofline: Roofline | None
    conflicts: tuple[Conflict, ...]
    verdict: str
    evidence: tuple[str, ...]
    absent: str
    report: str
    metrics: Mapping[str, float]
    created: str
    fast_on: str = ""

    def to_record(self) -> dict[str, Any]:
        """As JSON has it; `from_record` reads it."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Profile:
        return cls(
            **{
                **record,
                "roofline": Roofline(**record["roofline"]) if record["roofline"] else None,
                "conflicts": tuple(Conflict(**c) for c in record["conflicts"]),
                "evidence": tuple(record["evidence"]),
            }
        )


def profile(trial: Trial, spec: EvaluatorSpec, tool: Path | None, folder: Path, absent: str = "") -> Profile:
    """Profiles the trial's stored source. Without `tool`, or where it reads no counters, what the compiler
    and the emulator say, and in `absent` why. Raises what compiling raises."""
    candidate = trial.candidate
    compiler = spec.compiler()
    try:
        resources = compiler.compile(candidate.source, candidate.entry, spec.arch).resources
    finally:
        compiler.close()
    report, metrics = "", dict[str, float]()
    if tool is not None:
        try:
            path = ncu.run(tool, candidate, spec, folder)
            metrics, report = ncu.metrics_of(ncu.raw_page(tool, path)), str(path)
        except MachineError as error:
            absent = f"{error.message} ({error.hint})"
    emulation = _emulated(candidate, spec)
    return _profile(trial, spec, resources, metrics, emulation, absent, report)


def _emulated(candidate: Candidate, spec: EvaluatorSpec) -> Emulation | None:
    """One launch on the emulator; None where it cannot run this kernel, or not in reasonable time."""
    task = load_task(spec.task, spec.folders)
    if task.flop(candidate.problem) > MOST_EMULATED_FLOP:
        return None
    try:
        device = EmulatorDevice(spec.gpu, cache=spec.cache)
        compiler = spec.compiler(whole=True)  # on a GPU the other gives no PTX
    except MachineError:
        return None
    try:
        found = emulate_candidate(candidate, task, device, compiler, device.schedules[:1])
    except CandidateError:
        return None
    finally:
        compiler.close()
    return None if found.faults else found


def _profile(
    trial: Trial,
    spec: EvaluatorSpec,
    resources: Resources,
    metrics: Mapping[str, float],
    emulation: Emulation | None,
    absent: str,
    report: str,
) -> Profile:
    candidate, gpu = trial.candidate, spec.gpu
    measured = bool(metrics)
    model = emulation.estimate if emulation else None
    nanoseconds = ncu.value(metrics, r"gpu__time_duration\.sum")
    us = nanoseconds / 1e3 if nanoseconds else None
    if not measured:
        us = model.us if model else None
    units = measured_units(metrics) if measured else _modelled_units(model.pipes if model else {})
    numbers = _numbers(candidate, resources, gpu) | measured_numbers(metrics)
    stalls = measured_stalls(metrics)
    fast_on, fast_us = _time_by_fast(trial, spec)
    best_us = fast_us or us
    roofline = _roofline(spec, candidate, best_us) if best_us else None
    said, evidence = verdict_of(units, stalls, numbers, measured, model.bound if model else "")
    return Profile(
        trial.study,
        trial.number,
        candidate.problem.key,
        candidate.template,
        "measured" if measured else "modelled",
        gpu.name,
        us,
        fast_us,
        units,
        stalls,
        numbers,
        roofline,
        _conflicts(emulation),
        said,
        evidence,
        absent,
        report,
        metrics,
        datetime.now(UTC).isoformat(timespec="seconds"),
        fast_on,
    )


def _time_by_fast(trial: Trial, spec: EvaluatorSpec) -> tuple[str, float | None]:
    """The time on the inputs that the launch has here, which are the plain ones, and their name."""
    times = trial.timing.times if trial.timing and spec.on_gpu else {}
    plain = load_task(spec.task, spec.folders).families.plain
    on = next((name for name in (plain, PLAIN) if name in times), "")
    return on, times[on].median_us if on else None


# ---- numbers


def _numbers(candidate: Candidate, resources: Resources, gpu: Gpu) -> dict[str, float]:
    """What the compiler and the launch say, and what follows for the GPU: CTAs an SM, theoretical
    occupancy."""
    launch = candidate.launch
    smem = launch.smem_bytes + resources.static_smem_bytes
    resident = gpu.ctas_resident(launch.threads, resources.registers, smem)
    ctas = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return {
        "registers": float(resources.registers),
        "spill_bytes": float(resources.spill_bytes),
        "smem_bytes": float(smem),
        "threads": float(launch.threads),
        "ctas": float(ctas),
        "ctas_an_sm": float(resident),
        "occupancy_limit_percent": 100.0 * resident * launch.threads / gpu.threads_per_sm,
        "sms_used_percent": 100.0 * min(1.0, ctas / gpu.sms),
    }


def _modelled_units(pipes: Mapping[str, float]) -> dict[str, float]:
    """Cycles of each pipe, in per cent of the longest."""
    longest = max(pipes.values(), default=0.0)
    if not longest:
        return {}
    shares = {name: 100 * cycles / longest for name, cycles in pipes.items() if cycles > 0}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _roofline(spec: EvaluatorSpec, candidate: Candidate, us: float) -> Roofline | None:
    """None where the GPU's rates are not known."""
    gpu, task = spec.gpu, load_task(spec.task, spec.folders)
    if not gpu.tensor_tflops or not gpu.dram_gbps:
        return None
    flop, nbytes = task.flop(candidate.problem), task.nbytes(candidate.problem)
    roof = Roof.over(gpu, flop, nbytes)
    tflops, gbps, peak_gbps = flop / us / 1e6, nbytes / us / 1e3, roof.bandwidth_gbps
    share = tflops / gpu.tensor_tflops if roof.intensity >= roof.ridge else gbps / peak_gbps
    return Roofline(tflops, gbps, roof.intensity, roof.ridge, gpu.tensor_tflops, peak_gbps, roof.bound, share)


def _conflicts(emulation: Emulation | None) -> tuple[Conflict, ...]:
    if emulation is None:
        return ()
    kinds: dict[tuple[str, str, int], list[Work]] = {}
    for work in next(
        (run.execution.instructions for run in emulation.runs if run.execution.instructions), ()
    ):
        if work.shared_wavefronts > work.shared_wavefronts_ideal:
            kinds.setdefault((work.text.split()[0], Path(work.file).name, work.line), []).append(work)
    found = [
        Conflict(
            instruction,
            len(works),
            line,
            _text_at(emulation.source, file, line),
            sum(w.shared_wavefronts for w in works),
            sum(w.shared_wavefronts_ideal for w in works),
        )
        for (instruction, file, line), works in kinds.items()
    ]
    return tuple(sorted(found, key=lambda c: c.ideal - c.wavefronts)[:MOST_CONFLICTS])


def _text_at(source: str, file: str, number: int) -> str:
    """The text of a line that a compiler named, or the file's name where it is another's."""
    at = line_of(source, file, number)
    return source.splitlines()[at - 1].strip() if at else file


def verdict_of(
    units: Mapping[str, float],
    stalls: Mapping[str, float],
    numbers: Mapping[str, float],
    measured: bool,
    bound: str,
) -> tuple[str, tuple[str, ...]]:
    """One line, and the figures that it rests on."""
    if not measured:
        if not bound:
            return "not known: neither counters nor the emulator could tell", ()
        shares = [f"{name} {percent:.0f} % of the longest pipe" for name, percent in list(units.items())[:3]]
        return f"the model says: bound by {bound}", (*shares, *_shape(numbers))
    evidence = [f"{name} at {percent:.0f} % of its peak" for name, percent in _busiest(units)[:3]]
    evidence += [
        f"{100 * share:.0f} % of waiting is for {stall_text(n)}" for n, share in list(stalls.items())[:2]
    ]
    evidence += _shape(numbers)
    # the SM's throughput is that of its busiest part: name the part, where it is seen
    parts = [part for part in _busiest(units) if not part[0].startswith("SM")] or _busiest(units)
    if parts and parts[0][1] >= BUSY_PERCENT:
        return f"bound by {parts[0][0]}", tuple(evidence)
    if numbers.get("sms_used_percent", 100.0) < IDLE_PERCENT:
        return "too few CTAs: SMs are idle", tuple(evidence)
    active = numbers.get("active_percent", 100.0)
    if active < IDLE_PERCENT:
        return f"bound by latency: {100 - active:.0f} % of the time no warp is there (launch and end)", tuple(
            evidence
        )
    top = next(iter(stalls), "")
    return f"bound by latency: it waits for {stall_text(top)}" if top else "bound by latency", tuple(evidence)


def _busiest(units: Mapping[str, float]) -> Sequence[tuple[str, float]]:
    return sorted(units.items(), key=lambda item: -item[1])


def _shape(numbers: Mapping[str, float]) -> list[str]:
    used = numbers.get("sms_used_percent", 100.0)
    ctas = f"{numbers['ctas']:.0f} CTAs of {numbers['threads']:.0f} threads"
    shape = [f"{ctas}, {numbers['ctas_an_sm']:.0f} an SM"]
    if "active_percent" in numbers:
        shape.insert(0, f"an SM has warps in {numbers['active_percent']:.0f} % of the cycles")
    if used < 100:
        shape.append(f"{used:.0f} % of the SMs have one")
    if numbers["spill_bytes"]:
        shape.append(f"{numbers['spill_bytes']:.0f} bytes spilled")
    return shape
