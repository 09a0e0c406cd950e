"""The README of an exported folder: how it is used, and what its kernels are worth."""

from __future__ import annotations

from collections.abc import Iterator

from evo.export.bundle import Bundle, Exported
from evo.launch.dispatch import shape_text
from evo.version import __version__


def readme(bundle: Bundle) -> str:
    """As Markdown."""
    task, module = bundle.task.name, bundle.module
    reads = ", ".join(buffer.name for buffer in bundle.task.buffers(bundle.task.example) if buffer.read)
    fallback = f"`{bundle.fallback_name}` serves" if bundle.fallback else "an error says so"
    return "\n".join(
        [
            f"# {task}",
            "",
            f"CUDA kernels that evo {__version__} found and checked. They need torch and NVIDIA's driver: no",
            "compiler, and no evo.",
            "",
            "```",
            "pip install .",
            f"python -m {module}          # the decision table, and what there is here",
            f"python -m {module} check    # the contract: small cases with their answers",
            "```",
            "",
            "```python",
            f"from {module} import {task}",
            "",
            f"y = {task}({reads})          # out= takes the output",
            f"print({task}.explain({reads}))",
            "```",
            "",
            *_packing(bundle),
            "The nearest kernel whose code serves a problem is taken. Where none does,",
            f"{fallback}, and the log `{module}` says why, once for each reason.",
            "torch.compile takes the call as one node. Call it once before you capture a CUDA graph.",
            "",
            *_times(bundle),
            "",
            "## Reach",
            "",
            *(_reach(one) for one in bundle.kernels),
            "",
            "`sources/` has the CUDA sources, `provenance/` where each comes from: its study, trial, point,",
            "what the gate measured, its times beside every baseline, and all versions.",
            "",
        ]
    )


def _packing(bundle: Bundle) -> Iterator[str]:
    if bundle.pack is not None:
        packed = ", ".join(f"`{name}`" for name in bundle.task.packings)
        yield f"`{bundle.task.name}.pack` makes {packed} of the other tensors, by name: once for all calls."
        yield ""


def _times(bundle: Bundle) -> Iterator[str]:
    yield "| GPU | problem | kernel | µs | 99 % interval | faster than | regret | left out |"
    yield "|---|---|---|--:|---|---|--:|--:|"
    named = {id(one.champion): one for one in bundle.kernels}
    for row in bundle.rows:
        one, warm = named[id(row.champion)], row.champion.warm
        own = row.problem.key == row.champion.problem.key
        interval = warm.get("interval") if own else None
        ends = f"[{interval['low']:.2f}, {interval['high']:.2f}]" if interval else ""
        versus = f"{warm['versus']} {warm['speedup']:.2f}x" if own and warm.get("speedup") else ""
        time = f"{row.median_us:.2f}" if row.median_us is not None else "not timed"
        regrets = " | ".join("" if one is None else f"{one:.3f}" for one in (row.regret, row.left_out))
        yield f"| {row.gpu} | {row.problem.key} | {one.name} | {time} | {ends} | {versus} | {regrets} |"
    yield ""
    yield "`regret` is the time as a multiple of the best known, `left out` that of a choice of kernels that"
    yield "does not know the problem: what problems may lose that are not listed."
    yield "Times are medians of replayed CUDA graphs with a warm L2. What has no time was not CONFIRMED."


def _reach(one: Exported) -> str:
    tried = f"its launch was compared to its template's at {one.reach.tried} problems"
    own = "" if one.reach.tried > 1 else ": its own problem alone"
    arches = ", ".join(one.binaries)
    return f"- `{one.name}` ({arches}): {shape_text(one.reach.ranges)}{own or '; ' + tried}."
