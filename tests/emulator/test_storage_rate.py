"""The rate at which one object may change: about once a second on the real service."""

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions


def test_an_object_changes_once_in_an_interval():
    """Each way to change it counts, others are not held up, and what is refused changes nothing."""
    clock = VirtualClock()
    storage = Storage(clock, object_interval=1.0)
    objects, free = storage.objects, Preconditions()
    first = objects.insert("b", "x", b"1", {}, free)
    objects.insert("b", "y", b"1", {}, free)
    for change in (
        lambda: objects.insert("b", "x", b"2", {}, free),
        lambda: objects.patch("b", "x", {"metadata": {"a": "b"}}, free),
        lambda: objects.delete("b", "x", None, free),
    ):
        with pytest.raises(StorageError) as refused:
            change()
        assert (refused.value.status, refused.value.reason) == (429, "rateLimitExceeded")
    assert objects.get("b", "x") == first
    clock.advance(1.0)
    assert objects.insert("b", "x", b"2", {}, free).generation > first.generation
    clock.advance(1.0)
    objects.delete("b", "x", None, free)
