"""Share one list of a zone's TPUs among all deployments of one process."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from orchestrator.google.answer_hooks import KnownNodes

NEVER = float("-inf")


@dataclass
class _Zone:
    """The nodes of one zone, by label and value, and when they were listed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked_at: float = NEVER
    by_label: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    before: KnownNodes = field(default_factory=KnownNodes)

    def with_label(self, label: str, value: str) -> list[Any]:
        """Return the nodes with the label; they are grouped by it at the first call."""
        if label not in self.by_label:
            self.by_label[label] = _grouped(self.nodes, label)
        return self.by_label[label].get(value, [])


class ZoneLists:
    """
    Share the lists of zones between deployments, because the API has no filter and lists whole zones.

    The nodes are kept unparsed; the caller parses those that it needs. A node that has not changed since the
    list before is the same object.

    A list is requested once in *seconds*; other callers wait for it and share it. Failures are not kept. A
    caller that has changed something asks for lists *since* then.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._lock = threading.Lock()
        self._zones: defaultdict[str, _Zone] = defaultdict(_Zone)

    def labelled(
        self, parent: str, label: str, value: str, ask: Callable[[KnownNodes], Iterable[Any]],
        since: float = NEVER,
    ) -> list[Any]:  # fmt: skip
        """Return the nodes of *parent* with the label; *ask* lists all of them, given the last list."""
        with self._lock:
            zone = self._zones[parent]
        # One lock for each zone: callers wait for the list under way without blocking other zones.
        with zone.lock:
            now = self._now()
            if now - zone.asked_at >= self._seconds or zone.asked_at <= since:
                # `ask` first: if it fails, nothing is stored, and the next caller asks again.
                zone.nodes, zone.by_label, zone.asked_at = list(ask(zone.before)), {}, now
            return zone.with_label(label, value)

    def outdate(self) -> None:
        """Share no list that was requested before now."""
        with self._lock:
            zones = list(self._zones.values())
        for zone in zones:
            # Without its lock: a list under way began just now and may be shared.
            zone.asked_at = NEVER

    def moment(self) -> float:
        """Return the time that tells lists before a change from lists after it."""
        return self._now()

    def known(self, parents: Iterable[str], label: str, value: str, since: float = NEVER) -> list[Any] | None:
        """Return the nodes of all *parents* with the label, or None if one of them must be listed."""
        found: list[Any] = []
        for parent in parents:
            zone = self._zones.get(parent)
            if zone is None or self._now() - zone.asked_at >= self._seconds or zone.asked_at <= since:
                return None
            with zone.lock:
                found += zone.with_label(label, value)
        return found


def _grouped(nodes: Iterable[Any], label: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for node in nodes:
        if label in node.labels:
            found.setdefault(node.labels[label], []).append(node)
    return found
