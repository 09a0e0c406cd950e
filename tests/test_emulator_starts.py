"""CTAs start in any order. No kernel may rely on it, nor wait for more CTAs than the GPU holds at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ptx.programs import entry
from ptx.running import COPY, aligned, binary_of, h200, regions_of

from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.errors import Red
from evo.gpu import KNOWN_GPUS, Gpu
from evo.trial import BufferArg, LaunchConfig

SMALL_GPU = replace(KNOWN_GPUS["H200"], sms=2, ctas_per_sm=16)
"""It holds 32 CTAs at once."""
WAITS = """
.reg .b64 %a; .reg .b32 %w, %last; .reg .pred %p, %q;
mov.u32 %n, %nctaid.x; sub.u32 %last, %n, 1; setp.eq.u32 %p, %c, FIRST; @%p bra mine;
again: ld.acquire.gpu.global.u32 %w, [%out+STEP]; setp.ne.u32 %q, %w, 7; @%q bra again;
mine: st.release.gpu.global.u32 [%out], 7;
"""
"""CTAs of one thread: all but CTA FIRST wait for the word of the CTA at STEP."""


def ran(
    body: str,
    ctas: int,
    schedule: str,
    *,
    initialised: bool = True,
    gpu: Gpu | None = None,
) -> list[int]:
    """The words of `out`, one a CTA of one thread, which were 0 before."""
    device = EmulatorDevice(gpu) if gpu else h200()
    kernel = EmulatorKernel(device, binary_of(entry(COPY + body)))
    count, out = aligned(256), aligned(4 * ctas)
    launch = LaunchConfig((ctas, 1, 1), (1, 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    regions = regions_of({"in": count, "out": out}, ("in", "out"), initialised=initialised)
    kernel.launch(launch, regions, schedule)
    return [int(word) for word in out.view(np.uint32)]


def starts(schedule: str, ctas: int) -> list[int]:
    """When each CTA came to a ticket, by its number."""
    ticket = "ld.param.u64 %in, [in]; atom.global.add.u32 %v, [%in], 1; st.global.u32 [%out], %v;"
    return ran(ticket, ctas, schedule)


@pytest.mark.parametrize("ctas", [1, 2, 3, 31, 64, 100])
def test_each_order_starts_every_cta_once(ctas: int) -> None:
    numbers = list(range(ctas))
    assert starts("eager", ctas) == numbers
    assert starts("reversed", ctas) == numbers[::-1]
    found = [starts(f"seeded:{seed}", ctas) for seed in (1, 2, 3)]
    assert all(sorted(one) == numbers for one in found)
    if ctas > 30:
        assert found[0] != found[1] != found[2] != numbers
        assert starts("seeded:2", ctas) == found[1]


@pytest.mark.parametrize("schedule", h200().schedules)
def test_a_cta_may_wait_for_the_one_before(schedule: str) -> None:
    """Also of more CTAs than the GPU holds: it starts them in order, as scans of libraries rely on."""
    body = WAITS.replace("FIRST", "0").replace("STEP", "-4")
    assert ran(body, 100, schedule, gpu=SMALL_GPU) == [7] * 100


def test_a_cta_may_not_wait_for_one_that_has_no_room() -> None:
    body = WAITS.replace("FIRST", "%last").replace("STEP", "4")
    assert ran(body, 32, "eager", gpu=SMALL_GPU) == [7] * 32
    with pytest.raises(Red) as caught:
        ran(body, 40, "eager", gpu=SMALL_GPU)
    assert caught.value.reason == "deadlock"
    assert ran(body, 40, "eager") == [7] * 40


def test_an_exchange_may_give_a_word_its_first_value() -> None:
    sets = "atom.global.exch.b32 %v, [%out], 5;"
    assert ran(sets, 4, "eager", initialised=False) == [5] * 4
    for uses in ("st.global.u32 [%out], %v;", "add.u32 %v, %v, 1;"):
        with pytest.raises(Red) as caught:
            ran(sets + uses, 4, "eager", initialised=False)
        assert caught.value.reason == "uninitialised read"


def test_what_a_cta_hands_out_is_not_there_before_it_starts() -> None:
    """CTA 0 sets a word by a strong store, the others take it by a strong load: no race, and yet wrong."""
    body = """.reg .pred %p; ld.param.u64 %in, [in]; setp.eq.u32 %p, %c, 0;
        @%p st.relaxed.gpu.global.u32 [%in], 9;
        ld.relaxed.gpu.global.u32 %v, [%in]; st.global.u32 [%out], %v;"""
    found = {schedule: ran(body, 8, schedule) for schedule in ("eager", "reversed")}
    assert found["eager"] == [9] * 8
    assert found["reversed"] == [9] + [0] * 7
