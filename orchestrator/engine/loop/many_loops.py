"""
Watch many deployments in one process, each as if it were alone.

Passes are made when they are due. Between them one shared list of TPUs shows which deployments have lost a
TPU; these go first. With too many deployments for one process the others are late, which costs only time:
each pass decides from its own observation.
"""

import math
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from orchestrator import threads
from orchestrator.clock import Clock, wait_until
from orchestrator.domain.one_pass import Pass
from orchestrator.engine.loop.loop import Passes, Pause
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error
from orchestrator.errors import UNFORESEEN, TpuctlError

AT_ONCE = 16
"""Passes that run in parallel; one that uploads code for minutes does not delay the others."""
TICK = 1.0
"""Seconds between two checks for due passes."""
BUSY = 0.1
"""Seconds between two checks whether a pass under way has ended."""
CALLS_A_SECOND = 50.0
"""Wake objects read per second; with many deployments each object is read less often."""
CHANGED, WOKEN, DUE = range(3)
"""Why a pass is due, highest priority first."""


class Member:
    """One of many deployments: its passes, and when the next one is due."""

    def __init__(self, name: str, passes: Passes) -> None:
        self.name = name
        self.passes = passes
        self.pause: Pause | None = None
        self.busy = False
        self.due = self.steady_until = self.read_wake_at = float("-inf")

    def rests(self, pause: Pause, now: float) -> None:
        """Begin the *pause* after a pass at *now*."""
        self.pause, self.due = pause, now + pause.seconds
        self.steady_until = now + max(pause.seconds, pause.steady)


@dataclass
class PeriodicTask:
    """Work beside the passes: call *work* every *seconds*, and at once when *wake* is set."""

    work: Callable[[], None]
    seconds: float
    wake: threading.Event = field(default_factory=threading.Event)
    busy: bool = False
    due: float = float("-inf")

    def do(self, clock: Clock) -> None:
        """Do the work once; *work* itself reports its errors."""
        # Clear before the work: a request that arrives during it leads to another turn.
        self.wake.clear()
        try:
            self.work()
        # Also after an error of *work*: otherwise it would never run again.
        finally:
            self.due, self.busy = clock.monotonic() + self.seconds, False


class ManyLoops:
    """
    Run the passes of *members*, and a *periodic* task beside them, until all have ended or *stop* is set.

    *ended* is called with each member's last pass or error. *poll* is the seconds between two reads of the
    list of TPUs, and *before_poll* is called before each of them.
    """

    def __init__(
        self, clock: Clock, poll: float, members: Iterable[Member],
        ended: Callable[[Member, Pass | TpuctlError], None], periodic: PeriodicTask | None = None,
        before_poll: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._before_poll = before_poll
        self._clock, self._poll, self._ended, self._periodic = clock, poll, ended, periodic
        self._members = list(members)
        # Spread over the interval, or all wake objects would be read at the same moment.
        for number, member in enumerate(self._members):
            member.read_wake_at = clock.monotonic() + number / CALLS_A_SECOND
        self._todo: queue.PriorityQueue[tuple[int, float, int, Member]] = queue.PriorityQueue()
        self._count = self._workers = 0
        self._lock = threading.Lock()
        self._listed_at = float("-inf")
        self.stop = threading.Event()

    def run(self) -> None:
        """Run passes; on every way out release each member's lease."""
        # One thread more than AT_ONCE, so that long passes do not delay the periodic task.
        with threads.pool(AT_ONCE + 1) as pool:
            try:
                while self._members and not self.stop.is_set():
                    self.tick(pool)
                    self._clock.wait(TICK, self.stop)
            finally:
                self.stop.set()
        # The leases go after the pool has ended, because a pass under way is never cut off.
        with threads.pool(AT_ONCE) as pool:
            list(pool.map(lambda member: member.passes.close(), self._members))

    def add(self, member: Member) -> None:
        """Add a member and run its passes."""
        with self._lock:
            self._members = [*self._members, member]

    def remove(self, name: str) -> None:
        """Stop the passes of a member and release its lease; a pass under way ends first."""
        with self._lock:
            gone = [one for one in self._members if one.name == name]
            self._members = [one for one in self._members if one.name != name]
        wait_until(lambda: not any(member.busy for member in gone), self._clock, math.inf, BUSY, longest=BUSY)
        for member in gone:
            member.passes.close()

    def tick(self, pool: Executor) -> int:
        """Submit all due members to *pool*; return the number of passes that run now."""
        now = self._clock.monotonic()
        lists = now - self._listed_at >= self._poll
        if lists:
            self._listed_at = now
            self._before_poll()
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
        # Count the waiting members, not those found now: a worker that was about to end may have missed one.
        for _ in range(min(self._todo.qsize(), AT_ONCE - self._workers)):
            with self._lock:
                self._workers += 1
            pool.submit(self._work)
        periodic = self._periodic
        if periodic is not None and not periodic.busy and (periodic.wake.is_set() or now >= periodic.due):
            periodic.busy = True
            pool.submit(periodic.do, self._clock)
        return found

    def _rank(self, member: Member, now: float, read_wake_every: float, *, lists: bool) -> int | None:
        """Return how urgent a pass of *member* is, None if none is due."""
        pause = member.pause
        if pause is None or now >= member.steady_until:
            return DUE
        # Also within the pause: a preemption right after a pass would otherwise wait for the poll after the next.
        if lists and pause.steady > pause.seconds and _differs(pause):
            return CHANGED
        if pause.incarnation and now >= member.read_wake_at:
            member.read_wake_at = now + max(pause.loop.wake_interval, read_wake_every)
            return WOKEN
        return None

    def _work(self) -> None:
        """Run passes until no member waits for one."""
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
            if only_if_woken and pause is not None and not pause.loop.woken(pause.incarnation):
                return
            member.rests(next(member.passes), self._clock.monotonic())
        except StopIteration as end:
            self._leave(member, end.value)
        except (*PASS_ERRORS, OSError) as caught:
            # A member that fails ends alone; the others are still watched.
            self._leave(member, as_error(caught))
        finally:
            member.busy = False

    def _leave(self, member: Member, end: Pass | TpuctlError) -> None:
        # A new list, because `tick` may be iterating over the old one.
        with self._lock:
            self._members = [one for one in self._members if one is not member]
        self._ended(member, end)


def _differs(pause: Pause) -> bool:
    try:
        return pause.loop.differs()
    except UNFORESEEN:
        # The pass meets the same error and reports it.
        return True
