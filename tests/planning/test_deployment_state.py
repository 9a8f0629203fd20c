"""In which state a deployment is, for each world that people meet."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Absent, NodeState, Present, Unknown
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.record import Span, unused_incarnations
from orchestrator.domain.spec import WatchSpec
from orchestrator.domain.status import DeploymentState
from orchestrator.planning.decide import decide
from orchestrator.planning.deployment_outcome import wind_down
from orchestrator.planning.deployment_state import deployment_state, resuming_command
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, heartbeat, node, record, spec, world

GONE = {"nodes": Present(()), "vm": Absent(), "heartbeats": Present(())}
LOST = {"nodes": Present((node(state=NodeState.PREEMPTED),))}
SPANS = (Span(Kind.NODE, "demo-tpu-g1", "us-central1-a", NOW - 900, NOW - 60),)
SECOND = {"incarnation": 2, "spans": SPANS, "highest": 2}
DOWN = record(bundle="", started_at=0.0, spans=SPANS, accepted=False, requested_at=0.0)

NO_TPU = {"nodes": Present(()), "heartbeats": Present(())}
NEVER = record(bundle="", started_at=0.0, incarnation=0, accepted=False)


def reports(phase, **fields):
    """Return the report of the only worker."""
    return {"heartbeats": Present((heartbeat(phase=phase, **fields),))}


CASES = {
    "a job that reports": (record(), {}, "running"),
    "a TPU that was taken": (record(), LOST, "replacing"),
    "one that has vanished": (record(**SECOND), NO_TPU, "replacing"),
    "a first request that waits": (record(incarnation=0, accepted=False), NO_TPU, "starting"),
    "a first machine that boots": (record(), reports(Phase.BOOT, step=None), "starting"),
    "a machine that restores": (
        record(), reports(Phase.RESTORE, resumed_from=10, committed_step=10), "resuming",
    ),
    "one that saves because of its notice": (record(), reports(Phase.STOPPING, preempted=True), "preempting"),
    "a list that failed": (record(), {"nodes": Unknown("503")}, "unknown"),
    "reports that could not be read": (record(), {"heartbeats": Unknown("503")}, "unknown"),
    "a job that is done": (record(), reports(Phase.DONE), "done"),
    "a job that has failed": (record(), reports(Phase.FAILED), "failed"),
    "before up": (NEVER, {**GONE, "bucket": Absent()}, "not-up"),
    "after down": (DOWN, GONE, "down"),
    "after down, which could not list": (DOWN, {**GONE, "vm": Unknown("503")}, "unknown"),
    "after a down that left machines": (DOWN, {}, "machines-remain"),
    "after down of a job that was done": (replace(DOWN, outcome=Outcome.DONE), GONE, "done"),
}  # fmt: skip


def state_of(was, shown, *, watched=True, deleted=False):
    """Return the state for a world and a record."""
    now = world(**shown)
    known = update_record(was, now)
    return deployment_state(
        spec(), now, known, decide(spec(), now, known, 0.0), watched=watched, deleted=deleted
    )


@pytest.mark.parametrize("case", CASES)
def test_the_state_is_that_of_the_world(case):
    """With a watcher, which carries the plan out."""
    was, shown, value = CASES[case]
    assert state_of(was, shown).value == value


def test_without_a_watcher_no_tpu_is_requested():
    """A lost TPU, and a request that nobody repeats, are told apart from those that are being replaced."""
    assert state_of(record(), LOST, watched=False) is DeploymentState.TPU_LOST
    was, shown, _ = CASES["a first request that waits"]
    assert state_of(was, shown, watched=False) is DeploymentState.NO_TPU
    assert state_of(record(), {}, watched=False) is DeploymentState.RUNNING


def test_deleted_data_is_not_the_same_as_never_up():
    """The bill says that there was a deployment."""
    was, shown, _ = CASES["before up"]
    assert state_of(was, shown, deleted=True) is DeploymentState.DELETED


def test_phrases_differ_and_fit_a_column():
    """Two states with one phrase would be one state for people."""
    phrases = [state.phrase for state in DeploymentState]
    assert len(set(phrases)) == len(phrases)
    assert max(map(len, phrases)) <= 21


@pytest.mark.parametrize(
    ("was", "command", "on_vm"),
    [
        (record(), "tpuctl watch", "tpuctl watch --on-vm"),
        (record(bundle=""), "tpuctl up", "tpuctl up"),
        (record(outcome=Outcome.DONE), "tpuctl up", "tpuctl up"),
    ],
    ids=["up", "not up", "ended"],
)
def test_watch_goes_on_with_what_up_has_recorded(was, command, on_vm):
    """Before that, and after an end, `watch` would refuse or leave at once."""
    assert resuming_command(spec(), was) == command
    assert resuming_command(spec(watch=WatchSpec(on_vm=True)), was) == on_vm


def test_numbers_that_no_tpu_ever_had_are_known():
    """A refused request uses its number up; an adopted TPU's name does not tell its own."""
    third = (*SPANS, Span(Kind.NODE, "demo-tpu-g4", "us-central1-a", NOW - 30, None))
    assert unused_incarnations(record(incarnation=4, spans=third)) == (2, 3)
    assert unused_incarnations(record(spans=SPANS)) == ()
    adopted = (Span(Kind.NODE, "their-tpu", "us-central1-a", NOW - 900, NOW - 60), third[-1])
    assert unused_incarnations(record(incarnation=4, spans=adopted)) == ()


@pytest.mark.parametrize(
    ("outcome", "ended", "phrase"),
    [
        (Outcome.DONE, "the job is done", "done"),
        (Outcome.UNCOMMITTED, "the job has ended without a checkpoint", "ended without a checkpoint"),
        (Outcome.FAILED, "the job has failed", "failed"),
        (Outcome.LIMIT_REACHED, "its budget or ttl is used up", "budget or ttl used up"),
    ],
)
def test_an_end_is_worded_for_people(outcome, ended, phrase):
    """The values are for programs: a job is not limit-reached."""
    plan = wind_down(world(), record(), outcome, "x")
    assert {change.message for change in plan.changes} == {ended}
    assert outcome.phrase == phrase
