"""`up` says now and then that it is at work, where it would be silent for long."""

import time

import pytest

from orchestrator.cli.views import still_waiting
from orchestrator.cli.views.event_lines import EventPrinter
from orchestrator.cli.views.still_waiting import SILENCE, StillWaiting
from orchestrator.domain.wait import Wait
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def printer():
    """Return a printer that waits for a TPU."""
    found = EventPrinter()
    found.spoke_at = time.monotonic()
    return found


def said(capsys):
    """Return what was printed, without the time of day."""
    return [line[10:] for line in capsys.readouterr().err.splitlines()]


def test_after_a_silence_a_line_says_what_is_waited_for(printer, capsys):
    """And again after another one, not at each look."""
    one, now = StillWaiting(printer), time.monotonic()
    for seconds in range(1, int(2 * SILENCE) + 3):
        one.remind(now + seconds)
    first, second = said(capsys)
    assert first.startswith("still at work after 1")
    assert second.startswith("still at work after 3")
    printer.waiting((Wait("TPU: CREATING"),), time.time())
    capsys.readouterr()
    one.remind(now + 3 * SILENCE + 3)
    assert said(capsys)[0].endswith("s: TPU: CREATING")


def test_neither_beside_other_lines_nor_into_a_question(printer, capsys):
    """A line is news enough, and a prompt must stay the last thing on the screen."""
    one, now = StillWaiting(printer), time.monotonic()
    printer.spoke_at = now + SILENCE
    one.remind(now + SILENCE + 1)
    with one.asking():
        one.remind(now + 3 * SILENCE)
    one.remind(time.monotonic() + SILENCE - 1)
    assert said(capsys) == []


def test_without_a_wait_it_says_what_the_command_is_at(printer, capsys):
    """As `down`, which plans nothing and so waits for nothing by a plan."""
    printer.now("being deleted: TPU mine-tpu-g1 (DELETING)")
    StillWaiting(printer).remind(time.monotonic() + SILENCE + 1)
    assert said(capsys)[0].endswith("s: being deleted: TPU mine-tpu-g1 (DELETING)")


def test_up_push_and_down_watch_over_their_own_silence(tmp_path, monkeypatch):
    """From the first call to the last, also without an event or a wait."""
    monkeypatch.setattr(still_waiting, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(still_waiting, "SILENCE", -1.0)
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud)
        said = user.up()
        ends = {"push": user.run("push"), "down": user.down()}
    assert "still at work after 0 s" in said.err
    assert "still" not in said.err.rpartition("is up. Next")[2], "the thread has ended"
    assert {name for name, end in ends.items() if "still at work after 0 s" in end.err} == {"push", "down"}
