"""The time of steps that were made more than once: the last ones count, the others are lost or repeated."""

from itertools import pairwise

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.pricing.use_spans import use_spans
from orchestrator.report.summary import summarise

T = 1_800_000_000.0


def tpu(number, trained, saved=None, phase=Phase.RUN):
    """Return a TPU that existed for 100 s and its report; *trained* has (begin, end, from, to) of each attempt."""
    since = T + 100 * (number - 1)
    attempts = [
        Training(n, since + began, since + until, start, step)
        for n, (began, until, start, step) in enumerate(trained, 1)
    ]
    last = attempts.pop()
    heartbeat = Heartbeat(
        number, 0, phase, since + 90, step=last.to_step, resumed_from=last.from_step, attempt=last.attempt,
        from_step=last.from_step, progress_at=last.until, committed_step=saved and saved[1],
        committed_at=saved and since + saved[0], trained=tuple(attempts), timings={"first_step": last.began_at},
    )  # fmt: skip
    return Span(Kind.NODE, f"a-tpu-g{number}", "z", since, since + 100), heartbeat


def uses(tpus, up_times=(), now=T + 300):
    """Return the uses of the time with their seconds, those of the same use after one another as one."""
    spans, heartbeats = [one for one, _ in tpus], [one for _, one in tpus]
    found = use_spans(spans, heartbeats, now, up_times)
    assert all(a.until == b.since for a, b in pairwise(found))
    return [(one.use.value, one.until - one.since) for one in found]


def redone(tpus, begun=()):
    """Return the steps redone."""
    found = summarise(
        [one for _, one in tpus], (), preemptions=0, wall=300, usd=1.0, on_demand_usd=3.0, begun=begun
    )
    return found.steps_redone


IGNORES = [
    tpu(1, [(20, 80, 0, 60)], saved=(70, 50)),
    tpu(2, [(20, 90, 0, 70)], saved=(70, 50)),
    tpu(3, [(20, 90, 0, 70)], saved=(90, 70), phase=Phase.DONE),
]


def test_a_job_that_ignores_its_checkpoints_has_trained_in_vain():
    """What each lost TPU had saved was made again by the next one: only the training of the last one counts."""
    assert uses(IGNORES) == [
        ("starting", 20), ("lost", 50), ("lost", 30), ("recovering", 20), ("lost", 50), ("lost", 30),
        ("recovering", 20), ("training", 70), ("idle", 10),
    ]  # fmt: skip
    assert redone(IGNORES) == 60 + 70


def test_a_later_tpu_may_make_the_steps_of_all_before_it_again():
    """The second one resumed, the third one began anew."""
    tpus = [IGNORES[0], tpu(2, [(20, 90, 50, 120)], saved=(70, 100)), tpu(3, [(20, 90, 30, 170)])]
    assert uses(tpus)[:3] == [("starting", 20), ("training", 30), ("lost", 20)]
    assert [use for use, _ in uses(tpus)].count("training") == 2
    assert redone(tpus) == 10 + 90


GOES_BACK = [(10, 30, 0, 100), (40, 50, 50, 100), (60, 70, 50, 100)]
WHOLE = tpu(1, GOES_BACK[:1], saved=(30, 100), phase=Phase.DONE)


@pytest.mark.parametrize(
    ("tpus", "up_times", "first", "steps"),
    [
        (
            [tpu(1, GOES_BACK, phase=Phase.FAILED)],
            (),
            [
                ("starting", 10), ("training", 10), ("repeated", 10), ("starting", 10), ("repeated", 10),
                ("starting", 10), ("training", 10), ("idle", 30),
            ],
            50 + 50,
        ),
        (
            [WHOLE, tpu(2, [(10, 40, 80, 140)], phase=Phase.DONE)],
            (T, T + 100),
            [("starting", 10), ("training", 16), ("repeated", 4), ("idle", 70), ("starting", 10), ("training", 30)],
            20,
        ),
        (
            [WHOLE, tpu(2, [(10, 40, 0, 60)], phase=Phase.DONE)],
            (T, T + 100),
            [("starting", 10), ("training", 20), ("idle", 70), ("starting", 10), ("training", 30)],
            0,
        ),
    ],
    ids=["a crash that goes back twice", "after up", "another job after up"],
)  # fmt: skip
def test_steps_made_again_without_a_preemption_are_repeated(tpus, up_times, first, steps):
    """No TPU was lost, so preemptions do not pay for it; each round counts as steps redone."""
    now = T + 100 * len(tpus)
    assert uses(tpus, up_times, now)[: len(first)] == first
    assert redone(tpus, {1, 2} if up_times else ()) == steps
