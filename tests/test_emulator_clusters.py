"""CTAs that use the shared memory of others of their cluster: when one may exit, what PTX does not have."""

from __future__ import annotations

import pytest
from ptx.programs import entry
from ptx.running import aligned, binary_of, h200, regions_of

from evo.device.emulator import EmulatorKernel
from evo.errors import CandidateError, Red
from evo.trial import BufferArg, LaunchConfig

BEGIN = """
.reg .b32 %t, %there, %bar, %other, %rank, %v; .reg .b64 %out; .reg .pred %p, %done;
.shared .align 8 .b8 barrier[8]; .shared .align 16 .b8 words[128];
ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %bar, barrier; setp.eq.u32 %p, %t, 0;
@%p mbarrier.init.shared::cta.b64 [%bar], 1; @%p fence.mbarrier_init.release.cluster;
mov.u32 %rank, %cluster_ctarank; xor.b32 %rank, %rank, 1;
mapa.shared::cluster.u32 %other, %bar, %rank;
mov.u32 %there, words; mad.lo.u32 %there, %t, 4, %there; st.shared.u32 [%there], %t;
mapa.shared::cluster.u32 %there, %there, %rank;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
"""
"""A warp a CTA: `bar` is its mbarrier, `other` that of the other CTA, `there` a word of the other CTA."""

ARRIVE = "@%p mbarrier.arrive.shared::cluster.b64 _, [%other]; bar.warp.sync 0xffffffff;"
ARRIVE_RELAXED = ARRIVE.replace("arrive.", "arrive.relaxed.cluster.")
STORE = "st.shared::cluster.u32 [%there], %t;"
LOAD = "ld.shared::cluster.u32 %v, [%there];"
ADD = "red.shared::cluster.add.u32 [%there], %t;"

ORDERED = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
FENCED = "fence.acq_rel.cluster;" + RELAXED
AWAITED = "waiting: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0; @!%done bra waiting;"
RELAXED_TWICE = RELAXED + RELAXED


def verdict(body: str, schedule: str) -> str:
    kernel = EmulatorKernel(h200(), binary_of(entry(BEGIN + body)))
    arrays = {"in": aligned(1024), "out": aligned(1024)}
    config = LaunchConfig((2, 1, 1), (32, 1, 1), 0, (BufferArg("in"), BufferArg("out")), (2, 1, 1))
    try:
        kernel.launch(config, regions_of(arrays), schedule)
    except Red as red:
        return f"{red.reason}: {red.detail}"
    return "GREEN"


@pytest.mark.parametrize("schedule", ["eager", "reversed", "seeded:3"])
@pytest.mark.parametrize(
    ("use", "end"),
    [
        *[(use, ORDERED) for use in (ARRIVE, ARRIVE_RELAXED, STORE, LOAD, ADD)],
        *[(use, FENCED) for use in (ARRIVE, STORE, ADD)],
        (ARRIVE, AWAITED), (ARRIVE_RELAXED, AWAITED), (LOAD, RELAXED), (ARRIVE, RELAXED + AWAITED),
        (ARRIVE, RELAXED + ORDERED),
    ],
)  # fmt: skip
def test_it_is_known_that_the_other_is_there(use: str, end: str, schedule: str) -> None:
    assert verdict(use + end, schedule) == "GREEN"


@pytest.mark.parametrize("schedule", ["eager", "reversed", "seeded:3"])
@pytest.mark.parametrize(
    ("use", "end", "why"),
    [
        *[(use, "", "a barrier.cluster at its end is missing") for use in (ARRIVE, STORE, LOAD, ADD)],
        *[(use, RELAXED, "is relaxed") for use in (ARRIVE, ARRIVE_RELAXED, STORE, ADD)],
        (ARRIVE, RELAXED_TWICE, "is relaxed"), (STORE, AWAITED.replace("0;", "1;"), "is missing"),
    ],
)  # fmt: skip
def test_it_may_have_exited(use: str, end: str, why: str, schedule: str) -> None:
    said = verdict(use + end, schedule)
    assert said.startswith("race: use of the shared memory of CTA rank")
    assert why in said


def test_only_arrivals_that_were_waited_for_are_over() -> None:
    first = ARRIVE_RELAXED + AWAITED + RELAXED
    again = AWAITED.replace("waiting", "again").replace("0;", "1;")
    assert verdict(first + ARRIVE_RELAXED + again, "eager") == "GREEN"
    assert "has exited" in verdict(first + ARRIVE_RELAXED, "eager")
    assert "is relaxed" in verdict(first + ARRIVE_RELAXED + RELAXED, "eager")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("mbarrier.try_wait.parity.shared::cta.b64 %done, [%other], 0;", "a wait"),
        ("mbarrier.test_wait.parity.shared.b64 %done, [%other], 0;", "a wait"),
        ("@%p mbarrier.init.shared::cta.b64 [%other], 1;", "mbarrier.init"),
        ("@%p mbarrier.inval.shared::cta.b64 [%other];", "mbarrier.inval"),
        ("@%p mbarrier.arrive.shared::cta.b64 _, [%other];", "mbarrier.arrive without .shared::cluster"),
        (".reg .b64 %s; @%p mbarrier.arrive.shared::cluster.b64 %s, [%other];", "that returns a state"),
        ("@%p mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%other], 4;", "mbarrier.complete_tx without"),
        ("@%p mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%other], 4;", "mbarrier.expect_tx without"),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%other];", "cp.async.mbarrier.arrive"),
    ],
)
def test_what_a_cta_may_do_with_its_own_mbarriers_alone(use: str, said: str) -> None:
    found = verdict(use + ORDERED, "eager")
    assert said in found
    assert "at the mbarrier of another CTA" in found
    own = use.replace("%other", "%bar")
    assert "another CTA" not in verdict(own + ORDERED, "eager")


def test_bytes_are_counted_at_the_mbarrier_of_another_cta() -> None:
    expect = "@%p mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%other], 4;"
    assert verdict(expect + expect.replace("expect", "complete") + ORDERED, "eager") == "GREEN"


@pytest.mark.parametrize("refused", ["init", "inval", "test_wait.parity", "try_wait.parity"])
def test_ptx_has_no_such_instruction_on_a_cluster(refused: str) -> None:
    done, rest = ("%done, ", ", 0") if "wait" in refused else ("", ", 1" if refused == "init" else "")
    with pytest.raises(CandidateError, match=r"shared::cluster"):
        verdict(f"mbarrier.{refused}.shared::cluster.b64 {done}[%bar]{rest};", "eager")
