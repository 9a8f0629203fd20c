"""Keep events in the bucket, for reports. They are a story, not a truth: the loop never reads them."""

import threading
from collections.abc import Callable
from dataclasses import replace

from orchestrator.contract import limits
from orchestrator.contract.object_names import EVENTS
from orchestrator.domain.clean_text import cut
from orchestrator.domain.events import Event, Sink
from orchestrator.domain.ports import Store
from orchestrator.engine.bounded_read import read_first
from orchestrator.errors import UNFORESEEN, TpuctlError

PASSING = frozenset({"waiting", "progress", "failure"})


class EventLog:
    """
    Hand each event on, and store those worth keeping. A bucket that refuses loses the story only.

    *usable* says whether the bucket is known to be there and ours.
    """

    def __init__(self, store: Store, onward: Sink, usable: Callable[[], bool]) -> None:
        self._store = store
        self._onward = onward
        self._usable = usable
        self._lock = threading.Lock()
        self._pending: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Take one event."""
        # Shown first: people must learn of it also when no bucket takes it.
        self._onward(event)
        if event.kind in PASSING:
            return
        with self._lock:
            self._pending.append(event)

    def flush(self) -> None:
        """Store what has come since the last time; what cannot be stored now is kept for the next time."""
        if not self._usable():
            return
        with self._lock:
            waiting, self._pending = self._pending, []
        for number, event in enumerate(waiting):
            try:
                # The number keeps events of one millisecond apart.
                self._store.write(
                    f"{EVENTS}{event.at * 1000:.0f}-{number:02d}-{event.kind}.json", event.to_json()
                )
            except TpuctlError:
                with self._lock:
                    # In their order: what came meanwhile waits behind what could not be stored.
                    self._pending = [*waiting[number:], *self._pending]
                return


def read_events(store: Store) -> list[Event]:
    """Return all stored events in order of time; an unreadable one is left out."""
    return new_events(store, set())


def new_events(store: Store, known: set[str]) -> list[Event]:
    """Return the stored events whose objects are not in *known*, and add these to it."""
    fresh = [found for found in store.list(EVENTS) if found.name not in known]
    known.update(found.name for found in fresh)
    bodies = read_first(store, fresh[-limits.EVENTS.many :], limits.EVENTS)
    events = [_parse(body.data) for body in bodies.values() if body is not None]
    return sorted((e for e in events if e is not None), key=lambda e: e.at)


def _parse(data: bytes) -> Event | None:
    try:
        event = Event.from_json(data)
    except UNFORESEEN:
        return None
    fits = 0 <= event.at <= limits.LATEST_TIME
    return replace(event, kind=cut(event.kind, 40), text=cut(event.text)) if fits else None
