"""Code that is pushed reaches the present TPU, and what its machines reported before does not count."""

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.planning.decide import decide
from orchestrator.planning.job import AFTER_PUSH, REACH, decide_job, heartbeat_interval
from tests.planning.worlds import NOW, heartbeat, node, record, spec, world

UPDATE = [(Kind.JOB, Verb.UPDATE)]


@pytest.mark.parametrize(
    ("pushed", "reported", "changes"),
    [
        # The buggy code that TPU #1 had got is pushed to #2, which runs the mended one.
        ("1:b", "other", UPDATE),
        ("1:b", "b", []),
        ("1:b", None, []),  # It boots, and gets the code from the bucket.
        ("2:b", "other", []),  # It is being restarted.
        ("2:other", "b", UPDATE),  # The report is from before that other code was sent.
        ("1:other", "b", []),
    ],
)
def test_what_an_earlier_tpu_got_says_nothing_of_this_one(pushed, reported, changes):
    """Else a push is said to be done and the old code trains on."""
    reports = () if reported is None else (heartbeat(incarnation=2, bundle=reported),)
    observed = world(nodes=Present((node(incarnation=2),)), heartbeats=Present(reports))
    found = decide_job(spec(), observed, record(incarnation=2, pushed=pushed)).changes
    assert [(one.kind, one.verb) for one in found] == changes


SENT = NOW + AFTER_PUSH - 10  # The next try over SSH, for a push that ended 10 s ago.


@pytest.mark.parametrize(
    ("changed", "reported", "failed"),
    [
        ({"pushed": "1:other"}, {"bundle": "other"}, False),
        ({"settings_due": True}, {}, False),
        ({"ssh_next_try_at": SENT}, {"updated": NOW - 11}, False),
        ({"ssh_next_try_at": SENT}, {"updated": NOW - 9}, True),
        ({"ssh_next_try_at": NOW - 1}, {"updated": NOW - 60}, True),
        ({"pushed": "1:other", "ssh_failed_since": NOW - 9e3}, {"bundle": "other"}, True),
        ({}, {}, True),
    ],
    ids=[
        "not sent yet", "settings not sent yet", "before the push", "after it", "long ago", "out of reach",
        "no push",
    ],
)  # fmt: skip
def test_a_job_that_gave_up_on_the_code_before_a_push_starts_again(changed, reported, failed):
    """The push of the mended code meets the last failure: its TPU must not be deleted for that."""
    last = heartbeat(phase=Phase.FAILED, message="5 attempts", **reported)
    assert REACH * heartbeat_interval(spec()) < 9e3
    plan = decide(spec(), world(heartbeats=Present((last,))), record(**changed))
    assert (plan.outcome is Outcome.FAILED) is failed
    assert any(one.kind is Kind.NODE for one in plan.changes) is failed


def test_a_push_is_done_when_the_machines_have_reported_again():
    """A report from before would let it say that the new code runs."""
    for age, waits in ((11, True), (9, False)):
        observed = world(heartbeats=Present((heartbeat(phase=Phase.STOPPED, updated=NOW - age),)))
        assert bool(decide_job(spec(), observed, record(ssh_next_try_at=SENT)).waiting) is waits
