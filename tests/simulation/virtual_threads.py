"""
Virtual time for whole processes: threads that run one at a time, in an order that only the seed decides.

Each process of the simulation is a thread (or several), but only one of them runs at a time. Waiting
means: hand control back and be resumed at a later virtual time. So the real loop, the real lease thread
and the real waits run unchanged, interleaved at every wait and every slow call, and the same in every run.
"""

import heapq
import threading

from orchestrator.clock import VirtualClock

NEVER = 10 * 366 * 86400.0
"""Seconds that no run lasts: who waits so long is woken by somebody."""


class ProcessKilled(BaseException):
    """The process is dead: nothing in it may catch this, and nothing of it acts any more."""


class Scheduler:
    """Let the events of virtual time happen in order; equal times keep the order of planning."""

    def __init__(self):
        self.clock = VirtualClock()
        self.current = None
        self._heap, self._order, self._until = [], 0, 0.0

    def now(self):
        return self.clock.now()

    def after(self, seconds, event):
        """Plan *event* (a function) for *seconds* from now."""
        self._order += 1
        heapq.heappush(self._heap, (self.now() + max(0.0, seconds), self._order, event))

    def run_until(self, when, stop=lambda: False):
        """Let time pass up to *when*, or until *stop* says so after an event."""
        self._until = when
        while self._heap and self._heap[0][0] <= when:
            due, _, event = heapq.heappop(self._heap)
            self.clock.advance(max(0.0, due - self.now()))
            event()
            if stop():
                return
        self.clock.advance(max(0.0, when - self.now()))

    def skip(self, seconds):
        """
        Let *seconds* pass at once if nothing else happens in them; say whether they did.

        So the only one who acts keeps control: handing it back and forth was a tenth of a run.
        """
        due = self.now() + max(0.0, seconds)
        if due > self._until or (self._heap and self._heap[0][0] <= due):
            return False
        self.clock.advance(max(0.0, due - self.now()))
        return True


class VirtualProcess:
    """One process on one computer: its threads die and pause together. *skew* is how wrong its wall clock is."""

    def __init__(self, scheduler, name, computer, skew=0.0):
        self.scheduler, self.name, self.computer = scheduler, name, computer
        self.skew, self.dead, self.paused_until, self.ended = skew, False, 0.0, False
        self.calls_to_live = None
        self.threads = []

    def start(self, body, at_end=lambda error: None):
        """Run *body* in a first thread; *at_end* gets the exception it ended with, or None."""

        def ended(error):
            self.ended = True
            at_end(error)

        Thread(self, body, ended).start()

    def kill(self):
        """Kill all threads where they stand; each finds out when it would run next."""
        self.dead = True
        for thread in list(self.threads):
            thread.wake()

    def step(self):
        """Count one call to the outside; die when the last one allowed has been made."""
        if self.dead:
            raise ProcessKilled
        if self.calls_to_live is not None:
            self.calls_to_live -= 1
            if self.calls_to_live < 0:
                self.kill()
                raise ProcessKilled


class Thread:
    """A thread of a process; it has the interface of threading.Thread as far as our code uses it."""

    def __init__(self, process, body, at_end=lambda error: None):
        self.process, self._body, self._at_end = process, body, at_end
        self._joining = []
        self._scheduler = process.scheduler
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._ticket, self.alive, self.failure = 0, True, None
        process.threads.append(self)

    def start(self):
        threading.Thread(target=self._run, daemon=True).start()
        self.wake()

    def join(self, timeout=None):
        while self.alive:
            wait_in(self._joining, self._scheduler, NEVER)

    def wake(self, seconds=0.0):
        """Plan to run on in *seconds*, instead of whatever was planned."""
        self._ticket += 1
        self._scheduler.after(seconds, lambda ticket=self._ticket: self._resume(ticket))

    def sleep(self, seconds):
        """Hand control back for *seconds*; called in the thread itself."""
        if self.process.dead:
            raise ProcessKilled
        if self.process.paused_until <= self._scheduler.now() and self._scheduler.skip(seconds):
            self._ticket += 1
            return
        self.wake(seconds)
        self._back.release()
        self._go.acquire()
        if self.process.dead:
            raise ProcessKilled

    def _resume(self, ticket):
        """Hand control to the thread and take it back; called by the scheduler."""
        if ticket != self._ticket or not self.alive:
            return
        pause = self.process.paused_until - self._scheduler.now()
        if pause > 0 and not self.process.dead:
            self.wake(pause)
            return
        self._scheduler.current = self
        self._go.release()
        self._back.acquire()
        self._scheduler.current = None
        if not self.alive:
            self.process.threads.remove(self)
            wake_all(self._joining)
            self._at_end(self.failure)

    def _run(self):
        self._go.acquire()
        try:
            if not self.process.dead:
                self._body()
        except BaseException as error:
            self.failure = error
        self.alive = False
        self._back.release()


def sleep(scheduler, seconds):
    """Wait in the thread that runs now; outside of all threads no time passes."""
    if scheduler.current is not None:
        scheduler.current.sleep(seconds)


def wait_in(queue, scheduler, seconds):
    """Wait for *seconds*, or until somebody wakes those in *queue*."""
    me = scheduler.current
    queue.append(me)
    try:
        sleep(scheduler, seconds)
    finally:
        queue.remove(me)


def wake_all(queue):
    """Wake all threads that wait in *queue*."""
    for thread in queue:
        thread.wake()


class HostClock:
    """
    The clock of one process: virtual time, wrong by its skew; waiting passes control on.

    *longer* says by how many seconds a wait grows.
    """

    def __init__(self, process, longer=lambda seconds: 0.0):
        self._process, self._scheduler, self._longer = process, process.scheduler, longer

    def now(self):
        return self._scheduler.now() + self._process.skew

    def monotonic(self):
        return self._scheduler.clock.monotonic()

    def wait(self, seconds, wake=None):
        if wake is not None and wake.is_set():
            return
        seconds = max(0.0, seconds + self._longer(seconds))
        wait_in([] if wake is None else wake.waiting, self._scheduler, seconds)


class VirtualEvent:
    """An event of virtual time: to set it wakes who waits for it on the clock of a computer."""

    def __init__(self):
        self._set, self.waiting = False, []

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        wake_all(self.waiting)

    def clear(self):
        self._set = False


class Lock:
    """A reentrant lock that waits in virtual time."""

    def __init__(self, scheduler):
        self._scheduler, self._owner, self._depth, self._waiting = scheduler, None, 0, []

    def __enter__(self):
        me = self._scheduler.current
        while self._owner is not None and self._owner is not me and self._owner.alive:
            wait_in(self._waiting, self._scheduler, NEVER)
        self._owner, self._depth = me, self._depth + 1
        return self

    def __exit__(self, *_):
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            wake_all(self._waiting)


class Threading:
    """Stand in for the module `threading` where our code starts threads or waits for locks and events."""

    Event = VirtualEvent

    def __init__(self, scheduler):
        self._scheduler = scheduler

    def Thread(self, target, args=(), **_):
        return Thread(self._scheduler.current.process, lambda: target(*args))

    def RLock(self):
        return Lock(self._scheduler)

    Lock = RLock
