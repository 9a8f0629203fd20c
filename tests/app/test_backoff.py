"""How everything waits and tries again: growing pauses, one loop over tries, a machine that boots."""

import pytest

from orchestrator.app.machines.workers import PAUSES, booting, when_reached
from orchestrator.clock import VirtualClock, wait_until
from orchestrator.contract.backoff import MAX_DOUBLINGS, Backoff, ConsecutiveFailures, growing, retried
from orchestrator.errors import HostKeyError, NotFoundError, RemoteError, TpuctlError, UsageError


@pytest.fixture
def clock():
    """A clock that jumps."""
    return VirtualClock()


def test_pauses_double_up_to_the_longest():
    """Also after more failures than a float could double."""
    pauses = Backoff(0.5, 15.0)
    assert [pauses.after(count) for count in (1, 2, 3, 6, MAX_DOUBLINGS * 100)] == [
        0.5,
        1.0,
        2.0,
        15.0,
        15.0,
    ]
    assert Backoff(8.0, 8.0, jitter=0.5).after(1, 1.0) == 4.0


def test_failures_are_counted_until_a_success():
    """The first one's time stays, and after a success the next one is the first again."""
    failures = ConsecutiveFailures(Backoff(4.0, 60.0))
    for at in (100.0, 104.0):
        failures.failed(at)
    assert (failures.count, failures.since, failures.pause()) == (2, 100.0, 8.0)
    failures.reset()
    assert failures.count == 0
    failures.failed(200.0)
    assert (failures.count, failures.since, failures.pause()) == (1, 200.0, 4.0)


def test_a_check_comes_less_often_the_longer_it_is_waited():
    """A twentieth of the time, and never more often than the first pause."""
    assert [growing(2.0, waited) for waited in (0.0, 40.0, 600.0)] == [2.0, 2.0, 30.0]


def test_a_call_is_tried_until_it_succeeds(clock):
    """Each failure is reported before its pause; an error of another kind ends the tries."""
    reported = []
    value, pauses = tried(
        clock, OSError("1"), OSError("2"), 7, failed=lambda error: reported.append(str(error))
    )
    assert (value, pauses, reported) == (7, [4.0, 8.0], ["1", "2"])
    with pytest.raises(ValueError, match="other"):
        tried(clock, ValueError("other"), 7)


def test_the_last_call_is_made_when_the_time_is_over(clock):
    """The pause before it is cut, and its error is raised."""
    pauses = []
    with pytest.raises(OSError, match="3"):
        tried(clock, *map(OSError, "1234"), timeout=10.0, pauses=pauses)
    assert pauses == [4.0, 6.0]


def test_tries_can_be_counted_and_a_report_can_end_them(clock):
    """What no waiting cures is raised by the report of it, without a pause."""
    pauses = []
    with pytest.raises(OSError, match="2"):
        tried(clock, *map(OSError, "123"), tries=2, pauses=pauses)
    assert pauses == [4.0]

    def hopeless(error):
        raise error

    with pytest.raises(OSError, match="1"):
        tried(clock, OSError("1"), 7, failed=hopeless, pauses=pauses)
    assert pauses == [4.0]


def tried(clock, *answers, pauses=None, **options):
    """Call what gives these *answers*, errors among them; return its value and the pauses, which begin at 4 s."""
    remaining, pauses = list(answers), [] if pauses is None else pauses

    def call():
        answer = remaining.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(seconds):
        pauses.append(seconds)
        clock.wait(seconds)

    return retried(call, (OSError,), Backoff(4.0, 60.0), now=clock.monotonic, wait=wait, **options), pauses


def test_a_condition_is_waited_for_until_the_time_is_over(clock):
    """The answer says which of the two it was."""
    begun = clock.monotonic()
    assert wait_until(lambda: clock.monotonic() >= begun + 30, clock, 100.0, 1.0)
    assert not wait_until(lambda: False, clock, 100.0, 1.0)
    assert 130 <= clock.monotonic() - begun <= 140


def test_the_answer_that_ended_the_wait_is_returned(clock):
    """The last one, also when the time is over; and one that is asked for longer is asked in steady pauses."""
    answers, asked = iter([[], [], ["found"]]), []
    assert wait_until(lambda: next(answers), clock, 100.0, 1.0) == ["found"]
    begun = clock.monotonic()
    assert (
        wait_until(lambda: asked.append(clock.monotonic() - begun) or [], clock, 100.0, 1.0, longest=1.0)
        == []
    )
    assert asked == [float(second) for second in range(101)]


def boots(clock, *errors, until=60.0, hopeless=lambda error: not booting(error)):
    """Ask a machine that answers with *errors* first; return the value, what was said, and the seconds."""
    rest, said, begun = list(errors), [], clock.now()

    def ask():
        if rest:
            raise rest.pop(0)
        return "here"

    return when_reached(clock, ask, until, hopeless, said.append), said, clock.now() - begun


def test_a_machine_that_boots_is_waited_for_and_each_reason_is_reported_once(clock):
    """The same error again is no news."""
    refused, absent = RemoteError("connection refused"), NotFoundError("no VM yet")
    value, said, seconds = boots(clock, absent, refused, refused, absent)
    assert (value, said, seconds) == (
        "here",
        ["no VM yet", "connection refused", "no VM yet"],
        4 * PAUSES.first,
    )


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
    assert clock.now() - begun == 60
