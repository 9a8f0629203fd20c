"""Store events in the bucket for reports. The loop never reads them, so none of them affects a decision."""

import threading
from collections.abc import Callable
from dataclasses import replace

from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.object_names import EVENTS
from orchestrator.domain.events import Event, EventKind, Sink
from orchestrator.domain.ports import Store
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.bucket.bounded_read import read_first
from orchestrator.errors import UNFORESEEN, TpuctlError

PASSING = frozenset({EventKind.WAITING, EventKind.PROGRESS, EventKind.FAILURE})


class EventLog:
    """
    Pass each event on, and store those worth keeping; a bucket that refuses them only shortens the report.

    *usable* returns whether the bucket is known to exist and to be ours.
    """

    def __init__(self, store: Store, onward: Sink, usable: Callable[[], bool]) -> None:
        self._store = store
        self._onward = onward
        self._usable = usable
        self._lock = threading.Lock()
        self._pending: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Pass *event* on, then queue it for the bucket."""
        # Shown first: the user must see it even if the bucket refuses it.
        self._onward(event)
        if event.kind in PASSING:
            return
        with self._lock:
            self._pending.append(event)

    def flush(self) -> None:
        """Store the queued events; those that fail stay queued for the next time."""
        if not self._usable():
            return
        with self._lock:
            waiting, self._pending = self._pending, []
        for number, event in enumerate(waiting):
            try:
                # The counter separates events of the same millisecond.
                self._store.write(
                    f"{EVENTS}{event.at * 1000:.0f}-{number:02d}-{event.stored_kind}.json", event.to_json()
                )
            except TpuctlError:
                with self._lock:
                    # Keep the order: new events go behind those that could not be stored.
                    self._pending = [*waiting[number:], *self._pending]
                return


def read_events(store: Store) -> list[Event]:
    """Return all stored events in order of time; unreadable ones are left out. Raise TpuctlError."""
    return new_events(store, set())


def new_events(store: Store, known: set[str]) -> list[Event]:
    """Return the stored events whose object names are not in *known*, and add these names to it."""
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
    return replace(event, kind=cut(event.kind, 40), message=cut(event.message)) if fits else None
