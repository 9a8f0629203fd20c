"""Decisions about the job: when it is pushed, restarted, waited for."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Absent, NodeState, Present, Unknown, VmState, Worker
from orchestrator.domain.plan import Kind, LoopRule, Verb
from orchestrator.domain.spec import JobSpec, WatchSpec
from orchestrator.domain.text.units import Duration
from orchestrator.planning.job import (
    BOOT_GRACE,
    POLL_SOON,
    SILENCE,
    decide_job,
    heartbeat_interval,
    push_mark,
)
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, heartbeat, node, record, spec, vm, world


@pytest.mark.parametrize(("poll", "interval"), [(0.5, 2.0), (5, 10.0), (15, 30.0), (600, 30.0)])
def test_heartbeats_come_every_two_polls_within_2_to_30_seconds(poll, interval):
    """Fast enough for the loop, slow enough for the bucket."""
    assert heartbeat_interval(spec(watch=WatchSpec(poll=Duration(poll)))) == interval


@pytest.mark.parametrize("state", [s for s in NodeState if s is not NodeState.READY])
def test_nothing_is_pushed_to_a_node_that_is_not_ready(state):
    """The job waits for the TPU."""
    silent = Present((heartbeat(updated=NOW - 900),))
    odd = world(nodes=Present((node(state=state),)), heartbeats=silent)
    step = decide_job(spec(), odd, record(pushed=""))
    assert step.changes == ()
    assert step.waiting == "starts when the TPU is READY", "after `waiting: job:`, which says that it waits"


@pytest.mark.parametrize(
    "change", [{"heartbeats": Unknown("503")}, {"bucket": Absent()}, {"bucket": Unknown("503")}]
)
def test_nothing_is_pushed_while_its_bucket_or_its_reports_cannot_be_read(change):
    """Unknown is not silent, and code without a bucket could save nothing."""
    step = decide_job(spec(), world(**change), record())
    assert step.changes == ()
    assert step.waiting


@pytest.mark.parametrize("state", [VmState.TERMINATED, VmState.STAGING])
def test_a_job_on_the_vm_waits_for_the_vm(state):
    """The TPU alone is not enough for the style of 2020."""
    on_vm = spec(job=JobSpec(command="x", run_on="vm"))
    step = decide_job(on_vm, world(vm=Present(vm(state=state))), record(pushed=""))
    assert step.changes == ()
    assert push_mark(record()) == "1:b"


def test_silence_counts_after_four_heartbeats_and_not_before():
    """One late report is no silence."""
    limit = SILENCE * heartbeat_interval(spec())
    for age, silent in ((limit - 1, False), (limit + 1, True)):
        step = decide_job(spec(), world(heartbeats=Present((heartbeat(updated=NOW - age),))), record())
        assert bool(step.changes) is silent


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.FAILED])
def test_who_has_finished_may_be_silent(phase):
    """An agent that has said its last word is not woken again."""
    last = heartbeat(updated=NOW - 9e5, phase=phase)
    assert decide_job(spec(), world(heartbeats=Present((last,))), record()).changes == ()


def test_a_machine_gets_time_to_boot_before_its_silence_counts():
    """A worker that has never reported is looked after only after the grace of its boot."""
    two = world(nodes=Present((node(workers=(Worker(0, "a"), Worker(1, "b"))),)))
    for age, pushed in ((BOOT_GRACE - 5, False), (BOOT_GRACE + 5, True)):
        step = decide_job(spec(), two, record(first_seen={"node:1:ready": NOW - age}))
        assert bool(step.changes) is pushed


def test_a_failed_push_is_not_repeated_at_once():
    """The next try has its time."""
    late = world(heartbeats=Present((heartbeat(updated=NOW - 500),)))
    step = decide_job(spec(), late, record(ssh_next_try_at=NOW + 3))
    assert step.changes == ()
    assert step.wake_in == pytest.approx(3)


@pytest.mark.parametrize(
    ("heartbeats", "text"),
    [
        ((), "not running yet; no machine has reported"),
        (
            (
                heartbeat(phase=Phase.RESTORE, workers=2),
                heartbeat(1, phase=Phase.SETUP, workers=2, message="restoring Python packages"),
            ),
            "not running yet; worker 1: restoring Python packages",
        ),
        (
            (
                heartbeat(phase=Phase.RUN, workers=2),
                heartbeat(1, phase=Phase.RESTORE, workers=2, message="status 1", failure_message="status 1"),
            ),
            "runs on 1 of 2 workers; worker 1: the job failed and starts again",
        ),
        (
            tuple(
                heartbeat(n, phase=Phase.RESTORE, workers=2, message="status 1", failure_message="status 1")
                for n in range(2)
            ),
            "starts again after a failure",
        ),
    ],
    ids=["no report", "a message", "a failure", "all failed"],
)
def test_a_start_tells_what_is_waited_for(heartbeats, text):
    """Half a minute of "0 of 1" does not show whether anything happens."""
    two = world(
        nodes=Present((node(workers=(Worker(0, "10.0.0.1", ""), Worker(1, "10.0.0.2", ""))),)),
        heartbeats=Present(heartbeats),
    )
    assert decide_job(spec(), two, record(first_seen={"node:1:ready": NOW - 1})).waiting == text


def test_machines_that_boot_are_looked_at_again_soon():
    """A push to them fails without a word, and a whole poll without a look would hide all phases of the start."""
    boots = world(heartbeats=Present(()))
    step = decide_job(spec(), boots, record(pushed="", first_seen={"node:1:ready": NOW - 1}))
    assert [change.kind for change in step.changes] == [Kind.JOB]
    assert step.wake_in == POLL_SOON
    known = decide_job(spec(), world(), record(pushed="", settings_due=True))
    assert [change.kind for change in known.changes] == [Kind.JOB]
    assert known.wake_in is None


@pytest.mark.parametrize(
    ("reported", "age", "again"),
    [
        ({}, 31, True),  # What was sent during its boot came too late for the agent that had begun.
        ({}, 29, False),  # It is being restarted.
        ({"phase": Phase.STOPPING}, 31, False),
        ({"phase": Phase.DONE}, 31, False),
        ({"bundle": "b"}, 31, False),
        ({"updated": NOW - 31}, 31, False),  # Older than what was sent, perhaps.
    ],
)
def test_a_worker_that_goes_on_with_other_code_gets_it_once_more(reported, age, again):
    """Sent once is not enough: the machine would wait for a bundle that never comes, or train old code."""
    observed = world(
        heartbeats=Present((heartbeat(**{"phase": Phase.RESTORE, "bundle": "old", **reported}),))
    )
    first = update_record(record(pushed="1:b"), replace(observed, observed_at=NOW - age))
    step = decide_job(spec(), observed, update_record(first, observed))
    assert [(c.kind, c.verb) for c in step.changes] == ([(Kind.JOB, Verb.UPDATE)] if again else [])


@pytest.mark.parametrize(
    ("shown", "soon"),
    [
        ({"step": None, "timings": {"spawned": NOW - 5}}, POLL_SOON),
        ({"step": None, "timings": {"boot": NOW - 300, "setup_done": NOW - 5}}, POLL_SOON),
        ({"step": None, "timings": {"boot": NOW - 300, "spawned": NOW - 90}}, None),
        ({"step": None, "timings": {}}, None),
        ({"step": 3, "timings": {"spawned": NOW - 5}}, POLL_SOON),
        ({"step": 300, "timings": {"spawned": NOW - 40}}, 10.0),
        ({"step": 600, "timings": {"spawned": NOW - 60}}, None),
        ({"step": 3, "timings": {"spawned": NOW + 5}}, None),
    ],
    ids=[
        "just begun", "about to begin", "no step in a minute", "start not reported", "with a step", "young",
        "no more", "a clock ahead",
    ],
)  # fmt: skip
def test_the_steps_of_a_young_job_are_looked_for_as_often_as_it_reports(shown, soon):
    """Its machine reports every two seconds at first; a whole poll would show a watch that stands still."""
    step = decide_job(spec(), world(heartbeats=Present((heartbeat(**shown),))), record())
    assert step.rule is LoopRule.JOB_RUNS
    assert step.wake_in == soon
