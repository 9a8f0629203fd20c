"""What `fleet queue` says of tasks that run and save nothing."""

from orchestrator.app.fleet.queue import Queue
from orchestrator.cli.views.fleet_usage import _queue_lines, queue_body
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.fleet_cost import FleetCost, FleetUsage
from orchestrator.planning.fleet.gate import Gate
from orchestrator.planning.fleet.tasks import JobRow, Submission, TaskRow, TaskState
from orchestrator.planning.fleet.use import JobHistory, TaskStart
from orchestrator.planning.fleet.users import FleetUsers
from tests.planning.worlds import NOW, heartbeat

HOUR = 3600.0


def queue_of(*states, **fields):
    """Return queue and usage of a fleet whose tasks trained for an hour, committed nothing and report *fields*."""
    submission = Submission("sweep", ({},) * len(states), JobSpec("x"), "b", "s", 0.0)
    shown = heartbeat(timings={"first_step": NOW - HOUR}, **fields)
    starts = {n: (TaskStart(n, 1, "demo-001", NOW - HOUR, shown),) for n in range(len(states))}
    history = JobHistory(submission, starts)
    tasks = tuple(TaskRow(n, state, {}) for n, state in enumerate(states))
    found = Queue((JobRow("sweep", 0.0, tasks),), "", {"sweep": Gate()}, {"sweep": submission}, FleetUsers())
    cost = FleetCost({}, {}, {})
    return found, FleetUsage("demo", 0.0, (history,), (), cost, frozenset(), {}, None, unbilled=False)


def test_tasks_that_run_and_save_nothing_are_named_while_they_can_still_be_saved():
    """In one line for a job: its tasks run the same program."""
    found, usage = queue_of(TaskState.WAITING, TaskState.RUNNING, TaskState.RUNNING, TaskState.DONE)
    said = [line for line in _queue_lines(found, usage, 0, tasks=False) if "has saved no checkpoint" in line]
    (line,) = said
    assert line.startswith(
        "sweep/1: the job has worked for more than 1 h and has saved no checkpoint (format "
    )
    assert line.endswith("; 1 more of its tasks too")
    texts = [task["uncommitted_message"] for task in queue_body(found, usage)["jobs"][0]["tasks"]]
    assert [bool(text) for text in texts] == [False, True, True, False]
