"""How far compilers run ahead of evaluators: as far as these need."""

from __future__ import annotations

from obedient import ObedientSpec, awaited, candidate, rest, run

from evo.evaluate.lead import FEWEST, LATEST, RESERVE, Lead
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
        awaited(pool, 2)


def test_a_lead_is_what_compilers_have_in_hand_while_evaluators_are_busy() -> None:
    lead = Lead(most=40, evaluators=4)
    assert (lead.count, lead.held_back) == (20, False), "nothing is known"
    for _ in range(FEWEST):
        lead.learn(ahead_s=0.5, busy_s=0.2)
    assert lead.count == 4 / 0.2 * 0.5 + 4 * RESERVE
    assert lead.held_back
    for _ in range(LATEST):
        lead.learn(ahead_s=1.0, busy_s=0.1)
    assert (lead.count, lead.held_back) == (40, False), "evaluators could do more than compilers"
    for _ in range(LATEST):
        lead.learn(ahead_s=0.1, busy_s=1.0)
    assert lead.count == 4 + 2, "each has the next one at hand"


def test_one_slow_candidate_does_not_empty_the_compilers() -> None:
    lead = Lead(most=40, evaluators=4)
    for _ in range(FEWEST):
        lead.learn(ahead_s=0.5, busy_s=0.2)
    count = lead.count
    lead.learn(ahead_s=0.5, busy_s=20.0)
    assert lead.count == count


def test_few_workers_do_what_they_can() -> None:
    lead = Lead(most=3, evaluators=4)
    for _ in range(LATEST):
        lead.learn(ahead_s=0.1, busy_s=1.0)
    assert (lead.count, lead.held_back) == (3, False)
