"""How everything waits and tries again: growing pauses, one loop over tries, a machine that boots."""

import pytest

from orchestrator.app.machines.workers import PAUSE, booting, when_reached
from orchestrator.clock import VirtualClock, wait_until
from orchestrator.contract.backoff import MOST_DOUBLINGS, Backoff, growing, retried
from orchestrator.errors import HostKeyError, NotFoundError, RemoteError, TpuctlError, UsageError


@pytest.fixture
def clock():
    """A clock that jumps."""
    return VirtualClock()


def test_pauses_double_up_to_the_longest():
    """Also after more failures than a float could double."""
    pauses = Backoff(0.5, 15.0)
    assert [pauses.after(count) for count in (1, 2, 3, 6, MOST_DOUBLINGS * 100)] == [
        0.5,
        1.0,
        2.0,
        15.0,
        15.0,
    ]
    assert Backoff(8.0, 8.0, jitter=0.5).after(1, 1.0) == 4.0


def test_a_look_comes_less_often_the_longer_it_is_waited():
    """A twentieth of the time, and never more often than the first pause."""
    assert [growing(2.0, waited) for waited in (0.0, 40.0, 600.0)] == [2.0, 2.0, 30.0]


def test_a_call_is_tried_until_it_succeeds():
    """What is told of a failure is its number in a row; errors of other kinds end the tries."""
    answers, told = [OSError("1"), OSError("2"), 7], []

    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retried(call, (OSError,), lambda count, error: told.append((count, str(error)))) == 7
    assert told == [(1, "1"), (2, "2")]
    answers[:] = [ValueError("other")]
    with pytest.raises(ValueError, match="other"):
        retried(call, (OSError,), lambda *_: None)


def test_a_condition_is_waited_for_until_the_time_is_over(clock):
    """The answer says which of the two it was."""
    begun = clock.monotonic()
    assert wait_until(lambda: clock.monotonic() >= begun + 30, clock, 100.0, 1.0)
    assert not wait_until(lambda: False, clock, 100.0, 1.0)
    assert 130 <= clock.monotonic() - begun <= 140


def boots(clock, *errors, until=60.0, hopeless=lambda error: not booting(error)):
    """Ask a machine that answers with *errors* first; return the value, what was said, and the seconds."""
    left, said, begun = list(errors), [], clock.now()

    def ask():
        if left:
            raise left.pop(0)
        return "here"

    return when_reached(clock, ask, until, hopeless, said.append), said, clock.now() - begun


def test_a_machine_that_boots_is_waited_for_and_each_reason_is_reported_once(clock):
    """The same error again is no news."""
    refused, absent = RemoteError("connection refused"), NotFoundError("no VM yet")
    value, said, seconds = boots(clock, absent, refused, refused, absent)
    assert (value, said, seconds) == ("here", ["no VM yet", "connection refused", "no VM yet"], 4 * PAUSE)


@pytest.mark.parametrize("error", [HostKeyError("another key"), UsageError("no such worker")])
def test_what_no_boot_can_end_is_raised_at_once(clock, error):
    """An unknown host key stays refused."""
    begun = clock.now()
    with pytest.raises(TpuctlError, match=error.message):
        boots(clock, error)
    assert clock.now() == begun


def test_after_its_time_the_last_reason_is_raised(clock):
    """Nobody waits for ever."""
    begun = clock.now()
    with pytest.raises(RemoteError, match="connection refused"):
        boots(clock, *[RemoteError("connection refused")] * 100)
    assert 60 < clock.now() - begun <= 60 + 2 * PAUSE
