"""
Watch many deployments in one process, each as if it were alone.

Its passes are made when they are due. Between them one shared list of TPUs shows which deployments have lost
something: those go first. The rest may come late when there are too many for one process, and then nothing but
time is lost: what a pass decides, it decides from what it sees itself.
"""

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from orchestrator import threads
from orchestrator.clock import Clock
from orchestrator.engine.loop import Passes, Pause
from orchestrator.engine.observe import FAULTS, as_error
from orchestrator.engine.reconcile import Pass
from orchestrator.errors import UNFORESEEN, TpuctlError

AT_ONCE = 16
"""Deployments that act side by side: one that pushes code for minutes keeps no other waiting."""
TICK = 1.0
"""Seconds between two looks at who is due."""
CALLS_A_SECOND = 50.0
"""Wake objects that are read in a second; with many deployments each is read less often."""
CHANGED, WOKEN, DUE = range(3)
"""Why a pass is due, in order of priority."""


class Member:
    """Hold one of many deployments: its passes, and when the next one is due."""

    def __init__(self, name: str, passes: Passes) -> None:
        self.name = name
        self.passes = passes
        self.pause: Pause | None = None
        self.busy = False
        self.due = self.calm_until = self.read_wake_at = float("-inf")

    def rests(self, pause: Pause, now: float) -> None:
        """Take the pause after a pass, which begins *now*."""
        self.pause, self.due = pause, now + pause.seconds
        self.calm_until = now + max(pause.seconds, pause.calm)


@dataclass
class Chore:
    """Hold what is done beside the passes: *work*, each *seconds*, and at once when *wake* is set."""

    work: Callable[[], None]
    seconds: float
    wake: threading.Event = field(default_factory=threading.Event)
    busy: bool = False
    due: float = float("-inf")

    def do(self, clock: Clock) -> None:
        """Do it once; what it raises is for *work* itself to say."""
        # Before it: what comes meanwhile is done next.
        self.wake.clear()
        try:
            self.work()
        finally:
            self.due, self.busy = clock.monotonic() + self.seconds, False


class ManyLoops:
    """
    Make the passes of *members*, and a *chore* beside them, until all have ended or *stop* is set.

    *ended* is called with each member's last pass or error. *poll* is the seconds between two reads of the
    list of TPUs.
    """

    def __init__(
        self, clock: Clock, poll: float, members: Iterable[Member],
        ended: Callable[[Member, Pass | TpuctlError], None], chore: Chore | None = None,
    ) -> None:  # fmt: skip
        self._clock, self._poll, self._ended, self._chore = clock, poll, ended, chore
        self._members = list(members)
        # Spread over the interval, or all wake objects would be read at once.
        for number, member in enumerate(self._members):
            member.read_wake_at = clock.monotonic() + number / CALLS_A_SECOND
        self._todo: queue.PriorityQueue[tuple[int, float, int, Member]] = queue.PriorityQueue()
        self._count = self._workers = 0
        self._lock = threading.Lock()
        self._listed_at = float("-inf")
        self.stop = threading.Event()

    def run(self) -> None:
        """Make passes; on every way out each member's lease is given back."""
        # One more than may act: passes that take long do not keep the chore waiting.
        with threads.pool(AT_ONCE + 1) as pool:
            try:
                while self._members and not self.stop.is_set():
                    self.tick(pool)
                    self._clock.wait(TICK, self.stop)
            finally:
                self.stop.set()
        # After the first pool: a pass that has begun is never left in the middle.
        with threads.pool(AT_ONCE) as pool:
            list(pool.map(lambda member: member.passes.close(), self._members))

    def add(self, member: Member) -> None:
        """Make the passes of one more."""
        with self._lock:
            self._members = [*self._members, member]

    def remove(self, name: str) -> None:
        """Make no further pass of a member and give its lease back; a pass that has begun ends first."""
        with self._lock:
            gone = [one for one in self._members if one.name == name]
            self._members = [one for one in self._members if one.name != name]
        for member in gone:
            while member.busy:
                self._clock.wait(TICK / 10)
            member.passes.close()

    def tick(self, pool: Executor) -> int:
        """Submit all members that are due to *pool*; return how many of them run a pass."""
        now = self._clock.monotonic()
        lists = now - self._listed_at >= self._poll
        self._listed_at = now if lists else self._listed_at
        read_wake_every = len(self._members) / CALLS_A_SECOND
        found = 0
        for member in self._members:
            rank = None if member.busy else self._rank(member, now, read_wake_every, lists=lists)
            if rank is None:
                continue
            found += rank != WOKEN
            member.busy = True
            self._count += 1
            self._todo.put((rank, member.due, self._count, member))
        # By what waits, not by what was found now: a worker that was about to leave may have missed something.
        for _ in range(min(self._todo.qsize(), AT_ONCE - self._workers)):
            with self._lock:
                self._workers += 1
            pool.submit(self._work)
        chore = self._chore
        if chore is not None and not chore.busy and (chore.wake.is_set() or now >= chore.due):
            chore.busy = True
            pool.submit(chore.do, self._clock)
        return found

    def _rank(self, member: Member, now: float, read_wake_every: float, *, lists: bool) -> int | None:
        """Return how urgent a turn of *member* is, None when it is not its turn."""
        pause = member.pause
        if pause is None or now >= member.calm_until:
            return DUE
        if now >= member.due and lists and _differs(pause):
            return CHANGED
        if pause.incarnation and now >= member.read_wake_at:
            member.read_wake_at = now + max(pause.watcher.wake_interval, read_wake_every)
            return WOKEN
        return None

    def _work(self) -> None:
        """Give turns until nobody waits for one."""
        while not self.stop.is_set():
            try:
                rank, _, _, member = self._todo.get_nowait()
            except queue.Empty:
                break
            self._turn(member, only_if_woken=rank == WOKEN)
        with self._lock:
            self._workers -= 1

    def _turn(self, member: Member, *, only_if_woken: bool) -> None:
        pause = member.pause
        try:
            if only_if_woken and pause is not None and not pause.watcher.woken(pause.incarnation):
                return
            member.rests(next(member.passes), self._clock.monotonic())
        except StopIteration as end:
            self._leave(member, end.value)
        except (*FAULTS, OSError) as fault:
            # One that breaks ends alone: the others are still watched.
            self._leave(member, as_error(fault))
        finally:
            member.busy = False

    def _leave(self, member: Member, end: Pass | TpuctlError) -> None:
        # A new list: `tick` may be walking over the one before.
        with self._lock:
            self._members = [one for one in self._members if one is not member]
        self._ended(member, end)


def _differs(pause: Pause) -> bool:
    try:
        return pause.watcher.differs()
    except UNFORESEEN:
        # The pass meets the same fault, and says so.
        return True
