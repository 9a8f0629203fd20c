"""A job that did not load its checkpoint: watch, status, notifications and `fleet queue` say so at once."""

from dataclasses import replace

from orchestrator.app.status.text import LOAD_CHECKPOINT
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.fleet_usage import _queue_lines, queue_body
from orchestrator.cli.views.job_progress import ProgressLine
from orchestrator.cli.views.status import status_rows
from orchestrator.domain.observation import Present
from orchestrator.planning.fleet.tasks import TaskState
from orchestrator.planning.notifications import due
from tests.cli.test_fleet_queue_view import queue_of
from tests.cli.test_status_view import body
from tests.cli.test_views import SPEC, T0, lines, observed
from tests.planning.worlds import heartbeat, record, spec, world

SAID = "step 50 is restored, but the first step that the job reports is 20"
IGNORES = {"ignored_message": SAID, "resumed_from": 50, "began_step": 20}


def test_watch_says_it_once_for_each_start(capsys):
    """With what to do; the next start of the job may ignore it as well."""
    progress = ProgressLine(EventPrinter(), SPEC)
    progress.show(observed(T0, step=20), 0.1, 0.2)
    assert SAID not in "".join(lines(capsys))
    for seconds in (5, 10):
        progress.show(observed(T0 + seconds, step=40, **IGNORES), 0.1, 0.2)
    assert [line for line in lines(capsys) if SAID in line] == [f"{SAID}; {LOAD_CHECKPOINT}"]
    progress.show(observed(T0 + 15, step=40, attempt=2, **IGNORES), 0.1, 0.2)
    assert [line for line in lines(capsys) if SAID in line] == [f"{SAID}; {LOAD_CHECKPOINT}"]


def test_status_has_a_line_for_it_and_the_next_step_is_to_mend_the_script():
    """Not that there is nothing to do; without a watcher, its command comes first."""

    def shown(**more):
        """Return the lines after the cost."""
        rows = [row.text for row in status_rows(body(**more), unbilled=True, width=0)]
        return [row for row in rows if row.startswith(("not loaded", "next"))]

    assert "nothing to do while the job runs" in shown()[-1]
    assert shown(ignored_message=SAID) == [f"not loaded   {SAID}", f"next         {LOAD_CHECKPOINT}"]
    alone = shown(ignored_message=SAID, watcher=None, next_pass_in_s=None)
    assert alone[1:] == ["next         run: tpuctl watch", f"next         {LOAD_CHECKPOINT}"]


def test_a_notification_says_it_once_for_each_tpu_and_none_that_the_job_continues():
    """It is the one for work that a preemption takes."""
    was = record()
    was = replace(was, node=replace(was.node, preemptions=1))

    def sent(**fields):
        """Return what is due, by kind, with its id."""
        found = due(spec(), world(heartbeats=Present((heartbeat(**fields),))), was, None, "", 0.0)
        return {one.kind: (one.id.rpartition("-")[2], one.message) for one in found}

    assert sent(resumed_from=50)["resumed"][1].startswith("the job continues from step 50")
    found = sent(**IGNORES)
    assert found["stalled"] == ("1", f"{SAID}; {LOAD_CHECKPOINT}")
    assert found["resumed"][1].startswith("the job runs again in ")


def test_a_task_of_a_fleet_that_ignores_its_checkpoint_is_named():
    """In one line for a job: its tasks run the same program."""
    found, usage = queue_of(TaskState.WAITING, TaskState.RUNNING, TaskState.RUNNING, **IGNORES)
    assert f"sweep/1: {SAID}; 1 more of its tasks too" in _queue_lines(found, usage, 0, tasks=False)
    texts = [task["ignored_message"] for task in queue_body(found, usage)["jobs"][0]["tasks"]]
    assert texts == ["", SAID, SAID]
