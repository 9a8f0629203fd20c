"""A job that fails again and again: it runs between two failures, and `status` and `watch` say that it fails."""

from dataclasses import replace

from orchestrator.app.up import Goal, Up
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.job_progress import ProgressLine
from orchestrator.cli.views.status import status_rows
from orchestrator.cli.views.up import show as show_up
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Present
from orchestrator.domain.status import DeploymentState
from orchestrator.domain.text.hints import MEND_JOB
from orchestrator.planning.failing import failing_text
from tests.cli.test_status_view import body
from tests.cli.test_views import SPEC, T0, lines, observed
from tests.planning.worlds import heartbeat

WHY = "the job exited with status 1: ValueError: shapes do not match"
SHORT = "ValueError: shapes do not match"
SAID = f"3 of 5 attempts in a row brought no progress (job.failures); the last: {WHY}"
FAILS = {"failures": 3, "failure_message": WHY, "failure_line": SHORT}
ASIDE = "step 1000 is set aside, not deleted: 2 attempts in a row from it failed alike"


def test_the_reason_stays_while_the_next_attempt_runs():
    """Of several workers the one with the most failures counts; a job that has ended has its own message."""
    assert failing_text((heartbeat(), heartbeat(worker=1, **FAILS)), 5) == SAID
    once = failing_text((heartbeat(failures=1, failure_message=WHY),), 5)
    assert once.startswith(
        "1 of 5 attempts in a row brought no progress (job.failures); the last: the job exited"
    )
    assert failing_text((heartbeat(failure_message=WHY),), 5) == ""
    assert failing_text((heartbeat(phase=Phase.FAILED, **FAILS),), 5) == ""


def test_status_says_that_the_job_fails_and_to_mend_it():
    """The state is that of a job that runs; nothing to do would be wrong, also during a setup that fails."""

    def shown(**more):
        """Return the state and what is next."""
        rows = [row.text for row in status_rows(body(**more), unbilled=True, width=0)]
        return [row for row in rows if row.startswith(("state", "next"))]

    assert shown()[0] == "state        running"
    assert shown(failing_message=SAID) == [f"state        the job fails: {SAID}", f"next         {MEND_JOB}"]
    waits = [{"what": "job", "message": "not running yet"}]
    assert f"next         {MEND_JOB}" in shown(failing_message=SAID, state="starting", waits_for=waits)
    alone = shown(failing_message=SAID, watcher=None, next_pass_in_s=None)
    assert alone[1:] == [f"next         {MEND_JOB}", "next         run: tpuctl watch"]


def test_watch_says_it_in_the_live_line_first_and_in_its_lines(capsys):
    """How often, the live line also why; nothing of a machine that is gone."""
    printer = EventPrinter()
    ProgressLine(printer, SPEC).show(observed(T0, step=45, rate=2.0, **FAILS), 0.1, 0.2)
    assert printer.line_text(T0).startswith(f"failed 3 of 5 times: {SHORT}, ")
    assert lines(capsys)[0].endswith(", TPU #1, failed 3 of 5 times in a row")
    ProgressLine(printer, SPEC).show(observed(T0, message=WHY, **FAILS), 0.1, 0.2)
    assert SHORT not in lines(capsys)[0], "the event of the next attempt has it"
    gone = observed(T0, step=45, **FAILS)
    ProgressLine(printer, SPEC).show(type(gone)(_without_tpus(gone.world), gone.plan), 0.1, 0.2)
    assert SHORT not in printer.line_text(T0) + lines(capsys)[0]


def test_the_phases_between_two_failures_are_no_lines_of_watch(capsys):
    """Each would say again that it fails; the end of it is one, and so is the job's first line on another TPU."""
    line = ProgressLine(EventPrinter(), SPEC)
    for one in [
        observed(T0, step=45),
        observed(T0, phase=Phase.RESTORE, message=WHY, failure_message=WHY),
        observed(T0, phase=Phase.RESTORE, message=WHY, **FAILS),
        observed(T0, step=40, **FAILS),
        observed(T0, phase=Phase.RESTORE, message=WHY, **FAILS),
        observed(T0, step=40, **FAILS),
        observed(T0, step=55),
    ]:
        line.show(one, 0.1, 0.2)
    first, last = lines(capsys)
    assert ("step 45" in first, "step 55" in last) == (True, True)
    ProgressLine(EventPrinter(), SPEC).show(observed(T0, phase=Phase.RESTORE, **FAILS), 0.1, 0.2)
    assert "the job starts again" in lines(capsys)[0]


def test_status_says_how_the_job_fails_once_and_what_is_set_aside_beside_the_checkpoint():
    """Not once more as what its worker says."""
    workers = [{**worker, "message": WHY, "phase": "restore"} for worker in body().as_dict()["workers"]]
    shown = " ".join(
        row.text
        for row in status_rows(
            body(failing_message=SAID, aside_message=ASIDE, workers=workers), unbilled=True, width=0
        )
    )
    assert shown.count(SHORT) == 1
    assert f"; {ASIDE}" in shown
    assert shown.count("starts again") == 1 + len(workers)


def test_up_that_ends_while_the_job_fails_names_the_log(capsys):
    """To watch it would only show how it fails again."""
    done = Up("demo", "bucket", 3, DeploymentState.RUNNING, None, "", (), on_vm=False)
    show_up(done, Goal.JOB, as_json=False)
    show_up(replace(done, failing=SAID), Goal.JOB, as_json=False)
    up, fails = (
        " ".join(capsys.readouterr().err.split()).replace("demo is up", "\ndemo is up").splitlines()[1:]
    )
    assert up.strip() == "demo is up. Next: tpuctl watch"
    assert fails == f"demo is up, but the job fails: {SAID}. Next: tpuctl logs"


def _without_tpus(world):
    """Return the world without a TPU."""
    return type(world)(world.bucket, world.vm, Present(()), world.heartbeats, observed_at=world.observed_at)
