"""A job that fails again and again: it runs between two failures, and `status` and `watch` say that it fails."""

from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.job_progress import ProgressLine
from orchestrator.cli.views.status import status_rows
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Present
from orchestrator.domain.text.hints import MEND_JOB
from orchestrator.planning.failing import failing_text
from tests.cli.test_status_view import body
from tests.cli.test_views import SPEC, T0, lines, observed
from tests.planning.worlds import heartbeat

WHY = "the job exited with status 1: ValueError: shapes do not match"
FAILS = {"failures": 3, "failure_message": WHY}
SAID = f"3 attempts in a row failed without progress; the last: {WHY}; the job is given up after 5 (job.failures)"


def test_the_reason_stays_while_the_next_attempt_runs():
    """Of several workers the one with the most failures counts; a job that has ended has its own message."""
    assert failing_text((heartbeat(), heartbeat(worker=1, **FAILS)), 5) == SAID
    once = failing_text((heartbeat(failures=1, failure_message=WHY),), 5)
    assert once.startswith(f"the last attempt failed without progress: {WHY};")
    assert failing_text((heartbeat(failure_message=WHY),), 5) == ""
    assert failing_text((heartbeat(phase=Phase.FAILED, **FAILS),), 5) == ""


def test_status_says_that_the_job_fails_and_to_mend_it():
    """The state is that of a job that runs; nothing to do would be wrong, also during a setup that fails."""

    def shown(**more):
        """Return the state and what is next."""
        rows = [row.text for row in status_rows(body(**more), unbilled=True, width=0)]
        return [row for row in rows if row.startswith(("state", "next"))]

    assert shown()[0] == "state        running"
    assert shown(failing_message=SAID) == [f"state        running: {SAID}", f"next         {MEND_JOB}"]
    waits = [{"what": "job", "message": "not running yet"}]
    assert f"next         {MEND_JOB}" in shown(failing_message=SAID, state="starting", waits_for=waits)
    alone = shown(failing_message=SAID, watcher=None, next_pass_in_s=None)
    assert alone[1:] == [f"next         {MEND_JOB}", "next         run: tpuctl watch"]


def test_watch_says_it_in_the_live_line_first_and_in_its_lines(capsys):
    """How often, the live line also why; nothing of a machine that is gone."""
    printer = EventPrinter()
    ProgressLine(printer, SPEC).show(observed(T0, step=45, rate=2.0, **FAILS), 0.1, 0.2)
    assert printer.line_text(T0).startswith(f"failed 3 of 5 times in a row: {WHY}, ")
    assert lines(capsys)[0].endswith(", TPU #1, failed 3 of 5 times in a row")
    ProgressLine(printer, SPEC).show(observed(T0, message=WHY, **FAILS), 0.1, 0.2)
    assert WHY not in lines(capsys)[0], "the event of the next attempt has it"
    gone = observed(T0, step=45, **FAILS)
    ProgressLine(printer, SPEC).show(type(gone)(_without_tpus(gone.world), gone.plan), 0.1, 0.2)
    assert WHY not in printer.line_text(T0) + lines(capsys)[0]


def _without_tpus(world):
    """Return the world without a TPU."""
    return type(world)(world.bucket, world.vm, Present(()), world.heartbeats, observed_at=world.observed_at)
