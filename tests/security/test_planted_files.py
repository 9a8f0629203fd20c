"""What a machine may leave for the ones that come after it, or beside it: nothing of it ends their agents."""

from types import SimpleNamespace

import pytest

from orchestrator.agent.agent import _count
from orchestrator.agent.agreement.attempts import Attempt, AttemptStore
from orchestrator.agent.attempt.peers import _has_ended
from orchestrator.contract.machine_errors import TransientError
from orchestrator.engine.loop import loop_on_vm
from orchestrator.errors import RemoteError

EVIL = (b"[" * 100_000, b"[]", b"1", b"null", b"\xff", b"{}", b'{"attempt": []}')

TEXT = b'{"attempt": 1, "resume_step": "x", "resume_incarnation": 1, "failures": 0, "reason": ""}'


class PlantedBucket:
    """Hold *data* in every object, and names whose numbers are digits that no number has."""

    def __init__(self, data=b""):
        self._data = data

    def read(self, name, timeout=0.0):
        """Return it."""
        return SimpleNamespace(data=self._data, generation=1)

    def level(self, prefix, timeout=0.0):
        """Show a folder of another script."""
        return [], [f"{prefix}\u00b2/", f"{prefix}1/"]

    def list(self, prefix, timeout=0.0):
        """Show an attempt of another script."""
        return [f"{prefix}\u00b2.json"]


def attempts_in_bucket(data=b""):
    """Return the attempts of incarnation 2."""
    return AttemptStore(SimpleNamespace(incarnation=2, bundle="b"), PlantedBucket(data))


def test_digits_that_are_no_number_name_no_incarnation_and_no_attempt():
    """Every later agent would end at its first look, and cron would start it for ever."""
    assert attempts_in_bucket().newer_incarnation() is None
    assert attempts_in_bucket().latest() is None


@pytest.mark.parametrize("data", [*EVIL, TEXT])
def test_what_is_no_attempt_is_reported(data):
    """The heartbeat says what is in the way; no verdict is one that nobody can read."""
    with pytest.raises(TransientError):
        attempts_in_bucket(data).read(1)
    assert attempts_in_bucket(data).verdict() is None


@pytest.mark.parametrize("data", EVIL)
def test_what_is_no_report_says_of_no_worker_that_it_has_ended(data):
    """One forged worker does not end the agents of the real ones."""
    parts = SimpleNamespace(bucket=PlantedBucket(data), settings=SimpleNamespace(incarnation=1))
    assert _has_ended(parts, 1, Attempt(1, None, None, 0, "", 0)) is False


@pytest.mark.parametrize("value", ["x", [], {}, -1, 1.5, True, None])
def test_what_is_no_count_is_none(value):
    """It stood in a report of this worker's name, which an earlier machine may have left."""
    assert _count(value) == 0


@pytest.mark.parametrize("said", ["[]", "1", "null", "[" * 100_000, "{}", ""])
def test_what_is_no_state_of_a_loop_is_an_error_and_no_bug(said):
    """A job with `run_on: vm` is root on the machine that reports it."""
    done = SimpleNamespace(exit_code=0, stdout=said, stderr="")
    with pytest.raises(RemoteError, match="cannot be read"):
        loop_on_vm.observe(SimpleNamespace(run_elevated=lambda *_: [done]), SimpleNamespace(name="vm"))
