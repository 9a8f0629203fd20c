"""Notifications of what passes find. They never end the loop, nor hold it up: the job matters more."""

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
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.reconcile import Pass
from orchestrator.errors import LeaseHeldError, PreconditionError, TpuctlError
from orchestrator.planning.notices import Notice, due, stopped

OUTBOX = ".tpuctl/outbox/"
SENT = ".tpuctl/outbox-sent/"
PAUSES = Backoff(2.0, 300.0, jitter=0.5)
MOST_TRIES = 60
"""Tries for one receiver, about four hours, after which it is left out."""


class Receiver(Protocol):
    """Receive notices."""

    @property
    def name(self) -> str:
        """Return what people may see of it, which holds no secret."""

    def wants(self, event: str) -> bool:
        """Say whether it receives this kind of event."""

    def send(self, notice: Notice) -> None:
        """Tell it within seconds. Raise TpuctlError without any secret in its text."""


@dataclass
class _Waiting:
    """Hold a notice with the receivers that do not have it yet, and when to try again."""

    notice: Notice
    receivers: dict[str, Receiver]
    tries: int = 0
    next_at: float = 0.0


@dataclass
class Outbox:
    """
    Store notices in the bucket, then send them. *say* gets a text about each receiver that refuses.

    A notice may be sent again after a crash; its id is then the same. A bucket that refuses is asked again by
    the next pass.
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
            self._notify(one)
        with self._lock:
            times = [one.next_at for one in self._waiting.values()]
        return max(0.0, min(times) - self.clock.monotonic()) if times else None

    @property
    def unsent(self) -> tuple[Notice, ...]:
        """Return the notices that were not sent yet."""
        with self._lock:
            return tuple(one.notice for one in self._waiting.values())

    def _load(self) -> None:
        """Take up what an earlier loop has left."""
        if self._loaded:
            return
        sent = {found.name.removeprefix(SENT) for found in self.store.list(SENT)}
        names = [found.name for found in self.store.list(OUTBOX)]
        for name in names:
            held = self.store.read(name)
            # A notice that cannot be read is left where it is, and keeps no other from its receiver.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if held is not None and name.removeprefix(OUTBOX) not in sent:
                    self._keep(Notice.from_json(held.data))
        self._known |= sent | {name.removeprefix(OUTBOX) for name in names}
        self._loaded = True

    def _write(self, notice: Notice) -> None:
        with contextlib.suppress(PreconditionError):
            # Must not exist: the id is the same in every pass, so a second loop finds the first one's notice.
            self.store.write(OUTBOX + notice.id, notice.to_json(), 0)
        self._known.add(notice.id)
        self._keep(notice)

    def _keep(self, notice: Notice) -> None:
        receivers = {one.name: one for one in self.receivers if one.wants(notice.event)}
        with self._lock:
            self._waiting.setdefault(notice.id, _Waiting(notice, receivers))

    def _notify(self, one: _Waiting) -> None:
        for name, receiver in list(one.receivers.items()):
            try:
                receiver.send(one.notice)
            # Foreign code sends too. Whatever it raises must not end the thread that tells the others.
            except Exception as error:
                if one.tries == 0 or one.tries + 1 >= MOST_TRIES:
                    # Of a foreign error only its type: its text may hold the address, which is a secret.
                    text = f"{name}: {type(error).__name__}"
                    why = error.message if isinstance(error, TpuctlError) else text
                    text = f"no notification of {one.notice.event} was sent: {why}"
                    self.say(Event(self.clock.now(), "failure", text))
            else:
                del one.receivers[name]
        one.tries += 1
        if not one.receivers or one.tries >= MOST_TRIES:
            self._finish(one)
        else:
            # Random, so that many deployments do not call one receiver that was down at the same moment.
            one.next_at = self.clock.monotonic() + PAUSES.after(one.tries, self.random())

    def _finish(self, one: _Waiting) -> None:
        """Mark a notice as sent before it is deleted, so that a crash between the two sends nothing twice."""
        try:
            # First the mark, then the deletion: killed in between, the notice is known to be sent.
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
        """Queue what is new, to be stored and sent; return at once."""
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


LAST_SECONDS = 15.0
"""Seconds that the end of a command waits for the last notices."""


class Notifier:
    """
    Tell what passes find. Without anybody to tell it does nothing.

    *deployment* and *receivers* are asked for at the first pass: secrets are read then. When they cannot be,
    that is said once and the loop goes on without notifications. *say* gets what was not sent.
    """

    def __init__(
        self, deployment: Callable[[], Deployment], receivers: Callable[[], Sequence[Receiver]],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._deployment = deployment
        self._receivers = receivers
        self._talk = say
        self._postman: Postman | None = None
        self._tried = False

    def __enter__(self) -> "Notifier":  # noqa: PYI034 (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def take_pass(self, result: Pass) -> None:
        """Take one pass. Never raises: a fault in telling must not end the loop."""
        try:
            self._notify(result)
        # Nothing in here is worth the loop that keeps budget and ttl.
        except Exception as error:  # Whatever it is, the job matters more.
            self._say(f"no notification can be sent: {type(error).__name__}")
            self._postman = None

    def _notify(self, result: Pass) -> None:
        postman = self._open()
        if postman is None:
            return
        deployment, plan, world = self._deployment(), result.plan, result.world
        record = deployment.records.current
        spent = deployment.spent(record, world.observed_at)
        postman.add(due(deployment.spec, world, record, plan.outcome, plan.reason, spent))

    def stopped(self, error: TpuctlError) -> None:
        """Tell that the loop ends with *error*; that another command has taken over is no news."""
        if self._postman is not None and not isinstance(error, LeaseHeldError):
            deployment = self._deployment()
            now = deployment.clock.now()
            self._postman.add([stopped(deployment.spec, deployment.records.current, error, now)])

    def end(self) -> None:
        """Give the last notices a moment to go out, and say what is left for the next loop."""
        unsent = self._postman.end(LAST_SECONDS) if self._postman else ()
        self._postman, self._tried = None, False
        if unsent:
            names = ", ".join(notice.event for notice in unsent)
            self._talk(
                f"not sent yet: {names}; the next `tpuctl watch` sends it (to test: tpuctl notify test)"
            )

    def _say(self, text: str) -> None:
        deployment = self._deployment()
        deployment.sink(Event(deployment.clock.now(), "failure", text))

    def _open(self) -> Postman | None:
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
            self._postman = Postman(Outbox(deployment.cloud.store, found, deployment.clock, deployment.sink))
        return self._postman
