"""A replacement whose job begins at step 0: said once, with the time at which it was."""

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.events import EventKind
from orchestrator.domain.observation import Present, Unknown
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.events import start_from_zero
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, heartbeat, node, record, spec, world

AGAIN = record(incarnation=2, preemptions=1, requested_at=NOW - 600)


def shown(*reports):
    """Return what is observed of the second TPU with these reports."""
    return world(nodes=Present((node(incarnation=2),)), heartbeats=Present(reports))


def report(**more):
    """Return a report of a job on the second TPU that has begun 45 s ago, without a checkpoint."""
    return heartbeat(incarnation=2, **{"phase": Phase.RUN, "timings": {"spawned": NOW - 45}, **more})


def test_a_start_from_zero_has_the_time_at_which_it_was():
    """No watcher ran then; meanwhile the job may have saved, so it is said as what was."""
    observed = shown(report(step=440, committed_step=400))
    event = start_from_zero(spec(), AGAIN, update_record(AGAIN, observed), observed)
    assert (event.kind, event.at) == (EventKind.STARTED_OVER, NOW - 45)
    assert event.message == "TPU #2 began at STEP 0: no checkpoint was saved before"


def test_a_start_from_zero_is_said_once_also_by_the_next_watch():
    """A loop that was killed goes on from its record, in which it stays also while the job starts again."""
    first = shown(report())
    was = decode(encode(update_record(AGAIN, first), "demo"), "demo")
    assert start_from_zero(spec(), was, update_record(was, first), first) is None
    for between in (shown(report(phase=Phase.SETUP)), world(nodes=Unknown("503"), heartbeats=Unknown("503"))):
        later = update_record(was, between)
        assert start_from_zero(spec(), later, update_record(later, first), first) is None


@pytest.mark.parametrize(
    ("was", "reports"),
    [
        (record(incarnation=2, requested_at=NOW - 600), (report(),)),
        (AGAIN, (report(resumed_from=100),)),
        (AGAIN, (report(), report(worker=1, workers=2, resumed_from=100))),
        (AGAIN, (report(phase=Phase.SETUP),)),
        (AGAIN, ()),
    ],
    ids=["the first TPU", "resumed", "one has resumed", "before it runs", "no report"],
)
def test_nothing_is_said_of_a_job_that_goes_on_or_is_the_first(was, reports):
    """There is nothing that it has lost."""
    observed = shown(*reports)
    assert start_from_zero(spec(), was, update_record(was, observed), observed) is None


@pytest.mark.parametrize(
    ("spawned", "at"), [(NOW + 90, NOW), (NOW - 5000, NOW - 600)], ids=["a clock ahead", "a clock behind"]
)
def test_a_wrong_clock_of_the_machine_moves_the_start_no_further_than_it_can_be(spawned, at):
    """It lies between the request of the TPU and now."""
    observed = shown(report(timings={"spawned": spawned}))
    assert start_from_zero(spec(), AGAIN, update_record(AGAIN, observed), observed).at == at
