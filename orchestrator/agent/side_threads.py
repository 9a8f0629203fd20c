"""Run side threads that survive exceptions and report them."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from typing import Callable, Deque, Dict, Generic, List, Optional, Sequence, Tuple, TypeVar, Union

from orchestrator.contract.machine_errors import AgentError

T = TypeVar("T")
Item = TypeVar("Item")
Pause = Union[float, Callable[[], float]]


def say(text: str) -> None:
    """Print one line of the agent's log; an error such as a full disk is ignored."""
    try:
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)
    except OSError:
        return


class SideThread(threading.Thread, Generic[T]):
    """One call in a thread of its own, started at once; the process does not wait for it at exit."""

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        super().__init__(name=name, daemon=True)
        self._call = call
        self._returned: List[T] = []
        self.failed: Optional[BaseException] = None
        self.start()

    def run(self) -> None:
        """Store the call's result or exception for `result`."""
        try:
            self._returned.append(self._call())
        except BaseException as error:
            self.failed = error

    def result(self) -> T:
        """Return the call's result or raise its exception. Call this only after the thread has ended."""
        if self.failed is not None:
            raise self.failed
        return self._returned[0]


class Repeater(threading.Thread):
    """
    Calls *step* every *seconds*, which may change, or at once when *wake* is set; failures do not end it.

    *warn* gets the thread's name and the failure's text, "" after success.
    """

    def __init__(
        self, name: str, step: Callable[[], None], seconds: Pause, warn: Callable[[str, str], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.wake = threading.Event()
        self._step = step
        self._seconds = seconds
        self._warn = warn
        self._ended = threading.Event()

    def run(self) -> None:
        """Call *step* until `end`; an exception is reported and ends nothing."""
        while not self._ended.is_set():
            try:
                self._step()
                # Clears the failure of an earlier call in the heartbeat.
                self._warn(self.name, "")
            except (AgentError, OSError) as error:
                self._warn(self.name, str(error))
            except Exception as error:  # A side thread must survive bugs too; the traceback goes to the log.
                traceback.print_exc(file=sys.stdout)
                self._warn(self.name, repr(error))
            self.wake.wait(self._seconds() if callable(self._seconds) else self._seconds)
            self.wake.clear()

    def end(self) -> None:
        """Ask the thread to end after its current step."""
        self._ended.set()
        self.wake.set()


def each(
    call: Callable[[Item], T], items: Sequence[Item], workers: int, stop: Optional[threading.Event] = None
) -> List[T]:
    """
    Call for each item in parallel; the first failure stops the rest and is raised. Return early on *stop*.

    The process does not wait for these threads at exit: a notice leaves no time to finish a download.
    """
    stop = stop or threading.Event()
    queue: Deque[Tuple[int, Item]] = deque(enumerate(items))
    failed: List[BaseException] = []
    returned: Dict[int, T] = {}

    def work() -> None:
        while queue and not failed and not stop.is_set():
            try:
                number, item = queue.popleft()
            except IndexError:
                return
            try:
                returned[number] = call(item)
            except BaseException as error:
                # BaseException too, because the caller's thread raises it again.
                failed.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(0.1)
    if failed:
        raise failed[0]
    return [returned[number] for number in sorted(returned)]
