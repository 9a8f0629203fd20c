"""A job that is started again on the same TPU: an event for each attempt that is observed, once."""

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.events import EventKind
from orchestrator.domain.observation import Present, Unknown
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.events import MAX_ATTEMPT, events_of
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, heartbeat, node, record, world

CRASHED = "the job exited with status 1: CUDA: out of memory"
GOING_BACK = "checkpoint: 2 attempts in a row from step 1000 failed alike, so this one is from step 950"
ASIDE = "step 1000 is set aside, not deleted: 2 attempts in a row from it failed alike"


def shown(attempt, **more):
    """Return a world in which worker 0 reports this attempt."""
    return world(heartbeats=Present((heartbeat(**{"attempt": attempt, "resumed_from": 950, **more}),)))


def said(before, *worlds):
    """Return the events of attempts of consecutive passes over *worlds*."""
    found = []
    for one in worlds:
        after = update_record(before, one)
        found += [event for event in events_of(before, after, one, 5) if event.kind == EventKind.ATTEMPT]
        before = decode(encode(after, "demo"), "demo")
    return found


def test_how_an_attempt_failed_is_said_of_that_attempt_and_before_the_next_one():
    """How often of `job.failures`, and how; then where the next one began. A long reason leaves room for that."""
    first, second, third, fourth = said(
        record(),
        shown(2, ended_message=CRASHED),
        shown(3, ended_message=CRASHED, ended_failures=2, failures=3, aside_message=ASIDE),
        shown(4, ended_message="x" * 2000, ended_failures=3, resumed_from=None),
        shown(5, attempt_message="new code was installed"),
    )
    assert first.message == f"attempt 1 failed on TPU #1: {CRASHED}; attempt 2 started from step 950"
    began = f"attempt 3 started from step 950 ({ASIDE})"
    assert second.message == f"attempt 2 failed (2 of 5) on TPU #1: {CRASHED}; {began}"
    assert third.message.endswith("x...; attempt 4 started from the beginning")
    assert fourth.message == "attempt 5 of the job began on TPU #1, from step 950: new code was installed"


def test_each_new_attempt_is_an_event_with_its_reason():
    """By an older agent: how the last one failed, and why it goes back to an older checkpoint."""
    first, second = said(
        record(),
        shown(1),
        shown(2, failure_message=CRASHED, phase=Phase.RESTORE),
        shown(2, failure_message=CRASHED),
        shown(3, failure_message=CRASHED, message=GOING_BACK),
    )
    assert first.message == f"attempt 2 of the job began on TPU #1, from step 950: {CRASHED}"
    assert (first.at, first.data) == (NOW, {"incarnation": 1, "attempt": 2})
    assert second.message == f"attempt 3 of the job began on TPU #1, from step 950: {CRASHED}; {GOING_BACK}"


@pytest.mark.parametrize(
    "between",
    [
        world(nodes=Unknown("503"), heartbeats=Unknown("503")),
        world(heartbeats=Present(())),
        shown(0, phase=Phase.BOOT),
    ],
    ids=["nothing can be read", "no report", "the machine boots"],
)
def test_an_attempt_is_reported_once(between):
    """Also by the next `watch`, and after a pass that saw no report of it."""
    assert len(said(record(), shown(2), between, shown(2), shown(2))) == 1


def test_the_first_attempt_on_a_tpu_is_no_event_of_its_own():
    """The TPU has its events; another worker of the slice adds none."""
    other = world(heartbeats=Present((heartbeat(attempt=1, workers=2), heartbeat(1, attempt=2, workers=2))))
    replaced = world(
        nodes=Present((node(incarnation=2),)), heartbeats=Present((heartbeat(incarnation=2, attempt=1),))
    )
    assert said(record(), shown(1), other) == []
    assert said(record(incarnation=2), replaced) == []


def test_an_attempt_says_where_it_began_and_a_long_reason_is_cut():
    """After a push nothing has failed; an older agent does not say why."""
    (new,) = said(record(), shown(2, attempt_message="new code was installed", message=GOING_BACK))
    assert new.message == "attempt 2 of the job began on TPU #1, from step 950: new code was installed"
    (pushed,) = said(record(), shown(2, resumed_from=None))
    assert pushed.message == "attempt 2 of the job began on TPU #1, at the beginning"
    (long,) = said(record(), shown(2, failure_message="x" * 2000))
    assert (len(long.message) < MAX_ATTEMPT + 10, long.message[-3:]) == (True, "...")
