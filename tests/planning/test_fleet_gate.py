"""When the tasks of a job may begin, and what is sent to Slurm for it."""

import pytest

from orchestrator.planning.fleet.gate import (
    Correction,
    Gate,
    Hold,
    corrections,
    dependencies,
    gate,
    under_wrong_account,
)
from orchestrator.planning.fleet.tasks import After, SlurmTask, TaskState, again_of
from tests.planning.test_fleet import a_submission

OPEN, HELD = Gate(), Gate(Hold.ASKED)


def queued(job, array, number=0, state="PENDING", **more):
    """Return a task in Slurm's queue."""
    return SlurmTask(job, number, state, str(array), **more)


@pytest.mark.parametrize(
    ("how", "ends", "cancelled", "wanted"),
    [
        ("ok", {}, (), Gate(waits={"first": "ok"})),
        ("ok", {0: TaskState.DONE}, (), Gate(waits={"first": "ok"})),
        ("ok", {0: TaskState.DONE, 1: TaskState.UNCOMMITTED}, (), OPEN),
        ("ok", {0: TaskState.FAILED}, (), Gate(Hold.AFTER, "first")),
        ("ok", {0: TaskState.DONE}, (1,), Gate(Hold.AFTER, "first")),
        ("ok", {0: TaskState.DONE, 1: TaskState.DONE}, (1,), OPEN),
        ("any", {0: TaskState.FAILED}, (), Gate(waits={"first": "any"})),
        ("any", {0: TaskState.FAILED}, (1,), OPEN),
    ],
)
def test_a_job_begins_when_those_before_it_have_ended(how, ends, cancelled, wanted):
    """With `ok` only when all of their tasks have ended well; a task that was done before its cancel has."""
    first, then = (
        a_submission("first", tasks=2, cancelled=cancelled),
        a_submission("then", after={"first": how}),
    )
    assert gate(then, {"first": first, "then": then}, {"first": ends, "then": {}}) == wanted


def test_a_job_that_cannot_be_read_has_not_ended():
    """Its submission may be unreadable: unknown is not done."""
    then = a_submission("then", after={"first": "any"})
    assert gate(then, {"then": then}, {}) == Gate(Hold.AFTER, "first")


def test_what_was_asked_for_comes_first():
    """A release shows again what else a job waits for."""
    then = a_submission("then", after={"first": "ok"}, held=True)
    assert gate(then, {}, {}) == HELD


def test_slurm_waits_for_every_array_of_the_job_before():
    """Tasks that were submitted again have another array."""
    waits = Gate(waits={"first": "ok", "other": "any"})
    queue = [queued("first", 7), queued("first", 9, 1), queued("other", 8), queued("then", 10)]
    assert dependencies(waits, queue) == (
        After("afterany", "8"),
        After("afterok", "7"),
        After("afterok", "9"),
    )


@pytest.mark.parametrize(
    ("wanted", "queue", "reported"),
    [
        (OPEN, [queued("a", 7)], ()),
        (HELD, [queued("a", 7), queued("a", 7, 1)], (Correction("hold", ("7",)),)),
        (HELD, [queued("a", 7, held=True), queued("a", 8, 1)], (Correction("hold", ("8",)),)),
        (HELD, [queued("a", 7, held=True)], ()),
        (HELD, [queued("a", 7, state="RUNNING")], ()),
        (OPEN, [queued("a", 7, held=True)], (Correction("release", ("7",)),)),
        (OPEN, [queued("a", 7, after=(After("afterok", "3"),))], (Correction("after", ("7",)),)),
        (
            Gate(waits={"b": "ok"}), [queued("b", 5), queued("a", 7, held=True, after=(After("afterok", "3"),))],
            (Correction("after", ("7",), (After("afterok", "5"),)), Correction("release", ("7",))),
        ),
        (Gate(waits={"b": "ok"}), [queued("b", 5), queued("a", 7, after=(After("afterok", "5"),))], ()),
        (Gate(waits={"b": "ok"}), [queued("a", 7)], (Correction("hold", ("7",)),)),
    ],
)  # fmt: skip
def test_slurm_gets_what_differs_and_nothing_else(wanted, queue, reported):
    """A task that runs is never held; what a task waits for is set before its release."""
    assert corrections({"a": wanted}, queue) == reported


def test_foreign_tasks_are_not_touched():
    """Slurm's queue may hold what somebody has submitted by hand."""
    assert corrections({"a": HELD}, [queued("theirs", 7)]) == ()


def test_only_what_has_failed_or_was_cancelled_is_tried_again():
    """A task that was done before it was cancelled has its result."""
    submission = a_submission(tasks=5, cancelled=(3, 4))
    ended = {0: TaskState.DONE, 1: TaskState.FAILED, 2: TaskState.UNCOMMITTED, 4: TaskState.DONE}
    assert again_of(submission, ended, range(5)) == (1, 3)
    assert again_of(submission, ended, [0]) == ()


def test_a_budget_that_is_spent_closes_the_jobs_of_that_user():
    """Those of others go on."""
    mine, theirs = a_submission("mine", user="alice"), a_submission("theirs", user="bob")
    assert gate(mine, {}, {}, {"alice"}) == Gate(Hold.OVER_BUDGET, "alice")
    assert gate(theirs, {}, {}, {"alice"}) == OPEN


def test_a_task_that_waits_under_a_wrong_account_is_submitted_again():
    """It was queued before the fleet had users; what runs is left alone."""
    accounts = {"a": ("alice", "urgent")}
    queue = [
        queued("a", 7), queued("a", 7, 1, state="RUNNING"), queued("theirs", 9),
        queued("a", 8, 2, account="alice", priority="urgent"),
        queued("a", 8, 3, account="alice", priority="normal"),
    ]  # fmt: skip
    assert [one.number for one in under_wrong_account(accounts, queue)] == [0, 3]
