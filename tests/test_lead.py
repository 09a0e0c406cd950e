"""How far compilers run ahead of evaluators: as far as these need."""

from __future__ import annotations

from obedient import ObedientSpec, awaited, candidate, rest, run

from evo.evaluate.lead import Lead
from evo.evaluate.pool import Pool
from evo.evaluate.supervised import AT_HAND


def test_fewer_are_compiled_where_evaluators_do_not_keep_up() -> None:
    with Pool(ObedientSpec(most=1, compile_s=0.0), workers=8) as pool:
        assert pool.capacity == 5 + AT_HAND
        awaited(pool, 1)
        submitted = finished = 0
        while pool.capacity > 3 + AT_HAND:
            assert submitted < 300
            while submitted - finished < pool.capacity:
                pool.submit(submitted, candidate("sleep 0.02"))
                submitted += 1
            finished += len(pool.wait(1.0))
        rest(pool, submitted - finished)
        assert pool.idle == 0, "it is short of work because fewer are compiled, not for want of compilers"


def test_all_compilers_work_where_evaluators_wait_for_them() -> None:
    with Pool(ObedientSpec(most=2, compile_s=0.3), workers=8) as pool:
        run(pool, ["green"] * 40)
        assert pool.capacity == 8 + 2 + 2 * AT_HAND
        assert pool.idle == 2


def test_a_lead_keeps_evaluators_busy_and_no_more() -> None:
    lead = Lead(most=20, evaluators=4)
    assert lead.count == 10
    lead.adjust(ready=5, short=False)
    assert (lead.count, lead.held_back) == (10, False), "so many may wait"
    for _ in range(2):
        lead.adjust(ready=6, short=False)
    assert (lead.count, lead.held_back) == (8, True)
    lead.adjust(ready=0, short=True)
    assert (lead.count, lead.held_back) == (9, True)
    for _ in range(30):
        lead.adjust(ready=0, short=True)
    assert (lead.count, lead.held_back) == (20, False)
    for _ in range(30):
        lead.adjust(ready=6, short=False)
    assert (lead.count, lead.held_back) == (4 + 2, True)


def test_few_workers_do_what_they_can() -> None:
    lead = Lead(most=3, evaluators=4)
    for _ in range(10):
        lead.adjust(ready=9, short=False)
    assert (lead.count, lead.held_back) == (3, False)
