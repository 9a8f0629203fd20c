"""What `watch` shows of a running job between two passes, and of one that is asked to stop."""

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.deployment.session import Session
from orchestrator.cli.views import event_lines
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.job_progress import ProgressLine, live_texts
from orchestrator.contract.phase import Phase
from tests.cli.test_views import SPEC, T0, lines, observed


def test_the_live_line_counts_the_remaining_time_down_between_two_passes():
    """Two commands beside each other, `watch` and `status`, must not differ by the age of a pass."""
    printer = EventPrinter()
    assert printer.bar(T0) is None
    ProgressLine(printer, SPEC).show(observed(T0, step=200, rate=2.0), 0.1, 0.2)
    assert printer.bar(T0) == (0.5, "step 200 of 400, 1 min 40 s left")
    assert printer.bar(T0 + 15) == (0.5, "step 200 of 400, 1 min 25 s left")


@pytest.mark.parametrize(
    ("step", "age", "text"),
    [
        (394, 1.5, "1 s left"),
        (394, 2.5, "3 s left at the last heartbeat"),
        (200, 500, "1 min 40 s left at the last heartbeat"),
        (399, 0.0, "less than 1 s left"),
        (399, 9.0, "less than 1 s left at the last heartbeat"),
    ],
)
def test_a_job_is_not_done_because_its_report_is_old(step, age, text):
    """The heartbeat with the last steps has not come yet, or the job has become slower: nobody knows."""
    printer = EventPrinter()
    ProgressLine(printer, SPEC).show(observed(T0, step=step, rate=2.0), 0.1, 0.2)
    assert printer.bar(T0 + age) == (step / 400, f"step {step} of 400, {text}")


def test_a_stop_has_its_reason_beside_it_and_tpuctl_does_not_claim_it(capsys):
    """The machine is being taken away: far apart, the two read as two facts."""
    why = "the machine is being taken away"
    stops = observed(T0, step=180, phase=Phase.STOPPING, message=why)
    ProgressLine(EventPrinter(), SPEC).show(stops, 0.1, 0.2)
    assert lines(capsys) == [
        f"the job was asked to stop: {why}, step 180 of 400, 0.1000 to 0.2000 USD so far, TPU #1"
    ]
    (report,) = stops.world.heartbeats.value
    assert live_texts(report, SPEC, 0.1, 0.2)[0].startswith(f"the job was asked to stop: {why}")


def test_ages_in_the_live_line_are_by_the_clock_of_the_heartbeats(monkeypatch):
    """They are times of the bucket; this computer's clock may be minutes before or behind."""
    monkeypatch.setattr(event_lines, "wanted", lambda: True)
    printer = EventPrinter()
    Session(Choice(None, (), "local"), printer, SPEC).clock.set(T0 + 7.2)
    with printer:
        ProgressLine(printer, SPEC).show(observed(T0, step=200, rate=2.0), 0.1, 0.2)
        drawn = printer._line.__rich__().plain
    assert "last heartbeat 7 s ago" in drawn
    assert "step 200 of 400, 1 min 32 s left" in drawn
