"""
The outbox in the bucket: what is to be told is written there first, and marked when everybody was told.

Nothing here holds a pass up: sending is a thread's work, and a bucket that refuses is asked again by the
next pass. Whoever is told may be told again after a crash; the id is then the same.
"""

import contextlib
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.clock import Clock
from orchestrator.contract.backoff import Backoff
from orchestrator.domain.events import Event, Sink
from orchestrator.domain.ports import Store
from orchestrator.errors import PreconditionError, TpuctlError
from orchestrator.planning.notices import Notice

OUTBOX = ".tpuctl/outbox/"
SENT = ".tpuctl/outbox-sent/"
PAUSES = Backoff(2.0, 300.0, jitter=0.5)
MOST_TRIES = 60
"""Tries for one receiver, about four hours, after which it is left out."""


class Receiver(Protocol):
    """Be told something."""

    @property
    def name(self) -> str:
        """Return what people may see of it, which holds no secret."""

    def wants(self, event: str) -> bool:
        """Say whether it is told of this kind of event."""

    def send(self, notice: Notice) -> None:
        """Tell it within seconds. Raise TpuctlError without any secret in its text."""


@dataclass
class _Waiting:
    """Hold a notice with the receivers that do not have it yet, and when to try again."""

    notice: Notice
    left: dict[str, Receiver]
    tries: int = 0
    next_at: float = 0.0


@dataclass
class Outbox:
    """Keep what is to be told, and tell it. *say* is told of receivers that refuse."""

    store: Store
    receivers: Sequence[Receiver]
    clock: Clock
    say: Sink
    random: Callable[[], float] = random.random
    _known: set[str] = field(default_factory=set)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loaded: bool = False

    def add(self, notices: Sequence[Notice]) -> None:
        """Write down what is new. What cannot be written now comes again with the next pass."""
        with contextlib.suppress(TpuctlError):
            self._load()
            for notice in notices:
                if notice.id not in self._known:
                    self._write(notice)

    def deliver(self) -> float | None:
        """Tell what is due; return in how many seconds there is more to do, None for nothing."""
        with self._lock:
            waiting = [one for one in self._waiting.values() if one.next_at <= self.clock.monotonic()]
        for one in waiting:
            self._tell(one)
        with self._lock:
            times = [one.next_at for one in self._waiting.values()]
        return max(0.0, min(times) - self.clock.monotonic()) if times else None

    @property
    def unsent(self) -> tuple[Notice, ...]:
        """Return what is not told yet."""
        with self._lock:
            return tuple(one.notice for one in self._waiting.values())

    def _load(self) -> None:
        """Take up what an earlier loop has left."""
        if self._loaded:
            return
        sent = {found.name.removeprefix(SENT) for found in self.store.list(SENT)}
        left = [found.name for found in self.store.list(OUTBOX)]
        for name in left:
            held = self.store.read(name)
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if held is not None and name.removeprefix(OUTBOX) not in sent:
                    self._keep(Notice.from_json(held.data))
        self._known |= sent | {name.removeprefix(OUTBOX) for name in left}
        self._loaded = True

    def _write(self, notice: Notice) -> None:
        with contextlib.suppress(PreconditionError):
            self.store.write(OUTBOX + notice.id, notice.to_json(), 0)
        self._known.add(notice.id)
        self._keep(notice)

    def _keep(self, notice: Notice) -> None:
        left = {one.name: one for one in self.receivers if one.wants(notice.event)}
        with self._lock:
            self._waiting.setdefault(notice.id, _Waiting(notice, left))

    def _tell(self, one: _Waiting) -> None:
        for name, receiver in list(one.left.items()):
            try:
                receiver.send(one.notice)
            except TpuctlError as error:
                if one.tries == 0 or one.tries + 1 >= MOST_TRIES:
                    self.say(
                        Event(self.clock.now(), "failure", f"not told of {one.notice.event}: {error.message}")
                    )
            else:
                del one.left[name]
        one.tries += 1
        if not one.left or one.tries >= MOST_TRIES:
            self._finish(one)
        else:
            one.next_at = self.clock.monotonic() + PAUSES.after(one.tries, self.random())

    def _finish(self, one: _Waiting) -> None:
        """Mark a notice as told, first that and then its end, so that a crash between them tells nobody twice."""
        try:
            self.store.write(SENT + one.notice.id, b"")
            self.store.delete(OUTBOX + one.notice.id)
        except TpuctlError:
            one.next_at = self.clock.monotonic() + PAUSES.longest
            return
        with self._lock:
            self._waiting.pop(one.notice.id, None)


class Postman:
    """Run an outbox in a thread of its own until `end`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._inbox: queue.SimpleQueue[Sequence[Notice]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def add(self, notices: Sequence[Notice]) -> None:
        """Have written down and told what is new; return at once."""
        self._inbox.put(notices)
        self._wake.set()

    def end(self, seconds: float) -> tuple[Notice, ...]:
        """Give the last notices up to *seconds* to go out, and return those that the next loop will tell."""
        self._over.set()
        self._wake.set()
        self._thread.join(seconds)
        return self._outbox.unsent

    def _run(self) -> None:
        while True:
            while not self._inbox.empty():
                self._outbox.add(self._inbox.get())
            pause = self._outbox.deliver()
            if self._over.is_set() and not self._wake.is_set():
                return
            self._outbox.clock.wait(60.0 if pause is None else pause, self._wake)
            self._wake.clear()
