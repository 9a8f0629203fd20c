"""Store and send notifications. A failure here neither ends nor delays the loop."""

import contextlib
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.clock import Clock
from orchestrator.contract.backoff import Backoff, ConsecutiveFailures
from orchestrator.domain.events import Event, EventKind, Sink
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.ports import Store
from orchestrator.engine.deployment import Deployment
from orchestrator.errors import LeaseHeldError, PreconditionError, TpuctlError
from orchestrator.planning.notifications import Notification, current_id, due, stopped

OUTBOX = ".tpuctl/outbox/"
SENT = ".tpuctl/outbox-sent/"
PAUSES = Backoff(2.0, 300.0, jitter=0.5)
"""Before a notification is sent again; random in half, so that those of many deployments spread."""
MAX_TRIES = 60
"""Tries for one receiver, about four hours; after that it is skipped."""


class Receiver(Protocol):
    """Send notifications to one address."""

    @property
    def name(self) -> str:
        """Return the name to show to users; it contains no secret."""

    def wants(self, notification: Notification) -> bool:
        """Return whether this receiver is configured for notifications of its kind."""

    def send(self, notification: Notification) -> None:
        """Send *notification* within seconds; raise TpuctlError, whose text contains no secret."""


@dataclass
class _Waiting:
    """A notification, the receivers that still lack it, and the time of the next try."""

    notification: Notification
    receivers: dict[str, Receiver]
    failures: ConsecutiveFailures = field(default_factory=lambda: ConsecutiveFailures(PAUSES))
    next_at: float = 0.0


@dataclass
class Outbox:
    """
    Store notifications in the bucket, then send them. *say* gets an event for each receiver that refuses.

    After a crash a notification may be sent again, with the same id. If the bucket refuses to store one, the
    next pass tries again.
    """

    store: Store
    receivers: Sequence[Receiver]
    clock: Clock
    say: Sink
    random: Callable[[], float] = random.random
    _known: set[str] = field(default_factory=set)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loaded: bool = False

    def add(self, notifications: Sequence[Notification]) -> None:
        """Store the new notifications. If the bucket refuses, the next pass adds them again."""
        with contextlib.suppress(TpuctlError):
            self._load()
            for notification in notifications:
                if notification.id not in self._known:
                    self._write(notification)

    def deliver(self) -> float | None:
        """Send what is due; return the seconds until the next try, or None if nothing is waiting."""
        with self._lock:
            waiting = [one for one in self._waiting.values() if one.next_at <= self.clock.monotonic()]
        for one in waiting:
            self._notify(one)
        with self._lock:
            times = [one.next_at for one in self._waiting.values()]
        return max(0.0, min(times) - self.clock.monotonic()) if times else None

    @property
    def unsent(self) -> tuple[Notification, ...]:
        """Return the notifications that at least one receiver still lacks."""
        with self._lock:
            return tuple(one.notification for one in self._waiting.values())

    def _load(self) -> None:
        """Read, once, the notifications that an earlier process stored and did not send."""
        if self._loaded:
            return
        sent = {found.name.removeprefix(SENT) for found in self.store.list(SENT)}
        names = [found.name for found in self.store.list(OUTBOX)]
        for name in names:
            held = self.store.read(name)
            # An unreadable notification stays in the bucket and must not block the others.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if held is not None and name.removeprefix(OUTBOX) not in sent:
                    self._keep(Notification.from_json(held.data))
        # An end that an earlier tpuctl has stored is not sent again under its id of today.
        self._known |= {current_id(one) for one in (*sent, *(name.removeprefix(OUTBOX) for name in names))}
        self._loaded = True

    def _write(self, notification: Notification) -> None:
        with contextlib.suppress(PreconditionError):
            # With "must not exist": the id is the same in every pass, so a second loop finds the
            # first one's object.
            self.store.write(OUTBOX + notification.id, notification.to_json(), 0)
        self._known.add(notification.id)
        self._keep(notification)

    def _keep(self, notification: Notification) -> None:
        receivers = {one.name: one for one in self.receivers if one.wants(notification)}
        with self._lock:
            self._waiting.setdefault(notification.id, _Waiting(notification, receivers))

    def _notify(self, one: _Waiting) -> None:
        for name, receiver in list(one.receivers.items()):
            try:
                receiver.send(one.notification)
            # Apprise is foreign code: no exception of it may end the thread that serves the other receivers.
            except Exception as error:
                if one.failures.count == 0 or one.failures.count + 1 >= MAX_TRIES:
                    # Of a foreign error only the type is shown: its text may contain the address, which
                    # is a secret.
                    text = f"{name}: {type(error).__name__}"
                    message = error.message if isinstance(error, TpuctlError) else text
                    text = f"no notification of {one.notification.kind} was sent: {message}"
                    self.say(Event(self.clock.now(), EventKind.FAILURE, text))
            else:
                del one.receivers[name]
        if one.receivers:
            one.failures.failed()
        if not one.receivers or one.failures.count >= MAX_TRIES:
            self._finish(one)
        else:
            # With jitter, so that many deployments do not call a recovered receiver at the same moment.
            one.next_at = self.clock.monotonic() + one.failures.pause(self.random())

    def _finish(self, one: _Waiting) -> None:
        """Mark the notification as sent, then delete it."""
        try:
            # In this order: after a kill between the two, the next process does not send it again.
            self.store.write(SENT + one.notification.id, b"")
            self.store.delete(OUTBOX + one.notification.id)
        # Kept in memory: the next try marks it again, without sending it.
        except TpuctlError:
            one.next_at = self.clock.monotonic() + PAUSES.longest
            return
        with self._lock:
            self._waiting.pop(one.notification.id, None)


class OutboxThread:
    """Run an outbox in a thread of its own until `end`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._inbox: queue.SimpleQueue[Sequence[Notification]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def add(self, notifications: Sequence[Notification]) -> None:
        """Queue *notifications* to be stored and sent; return at once."""
        self._inbox.put(notifications)
        self._wake.set()

    def end(self, timeout: float) -> tuple[Notification, ...]:
        """Wait up to *timeout* seconds for the last sends; return what is left for the next loop to send."""
        self._over.set()
        self._wake.set()
        self._thread.join(timeout)
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


LAST_TIMEOUT = 15.0
"""Seconds that a command waits at its end for the last notifications."""


class Notifier:
    """
    Send the notifications of each pass; do nothing without receivers.

    *deployment* and *receivers* are called at the first pass, because they read secrets. If that fails, it is
    reported once and the loop continues without notifications. *say* gets the kinds of unsent notifications.
    """

    def __init__(
        self, deployment: Callable[[], Deployment], receivers: Callable[[], Sequence[Receiver]],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._deployment = deployment
        self._receivers = receivers
        self._talk = say
        self._postman: OutboxThread | None = None
        self._tried = False

    def __enter__(self) -> "Notifier":  # noqa: PYI034 (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def take_pass(self, result: Pass) -> None:
        """Queue the notifications that are due after a pass. Never raise: the loop must continue."""
        try:
            self._notify(result)
        # No failure here may end the loop, which enforces budget and ttl.
        except Exception as error:  # Any error, because Apprise is foreign code.
            self._say(f"no notification can be sent: {type(error).__name__}")
            self._postman = None

    def _notify(self, result: Pass) -> None:
        postman = self._open()
        if postman is None:
            return
        deployment, plan, world = self._deployment(), result.plan, result.world
        record = deployment.records.current
        usd_so_far = deployment.usd_so_far(record, world.observed_at)
        postman.add(due(deployment.spec, world, record, plan.outcome, plan.message, usd_so_far))

    def stopped(self, error: TpuctlError) -> None:
        """Notify that the loop ends with *error*, unless another tpuctl holds the lease now."""
        if self._postman is not None and not isinstance(error, LeaseHeldError):
            deployment = self._deployment()
            now = deployment.clock.now()
            self._postman.add([stopped(deployment.spec, deployment.records.current, error, now)])

    def end(self) -> None:
        """Wait LAST_TIMEOUT for the last sends, and report what the next `tpuctl watch` will send."""
        unsent = self._postman.end(LAST_TIMEOUT) if self._postman else ()
        self._postman, self._tried = None, False
        if unsent:
            names = ", ".join(notification.kind for notification in unsent)
            self._talk(
                f"not sent yet: {names}; the next `tpuctl watch` sends it (to test: tpuctl notify test)"
            )

    def _say(self, text: str) -> None:
        deployment = self._deployment()
        deployment.sink(Event(deployment.clock.now(), EventKind.FAILURE, text))

    def _open(self) -> OutboxThread | None:
        if self._tried:
            return self._postman
        self._tried = True
        try:
            found = self._receivers()
        except TpuctlError as error:
            self._say(f"no notification can be sent: {error.message} ({error.code})")
            return None
        if found:
            deployment = self._deployment()
            self._postman = OutboxThread(
                Outbox(deployment.cloud.store, found, deployment.clock, deployment.sink)
            )
        return self._postman
