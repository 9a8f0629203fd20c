"""Repeat passes. This is the only place where the controller sleeps between them."""

import contextlib
import threading
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.contract.backoff import Backoff, ConsecutiveFailures
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.names import DEPLOYMENT_LABEL
from orchestrator.domain.observation import Node, NodeState, Present
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.record import current_node
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.loop.wake_object import SHORT, WakeObject
from orchestrator.engine.outcome_errors import raise_blind, raise_bucket_gone
from orchestrator.engine.reconcile.observe import unforeseen
from orchestrator.engine.reconcile.reconciler import Reconciler
from orchestrator.engine.records.record_store import WRITE_INTERVAL
from orchestrator.errors import (
    UNFORESEEN,
    LeaseHeldError,
    Retry,
    TpuctlError,
    TransientError,
    disk_error,
)
from orchestrator.planning.safety_nets import safety_nets
from orchestrator.planning.steady import steady_until

T = TypeVar("T")

SHORTEST_PAUSE = 0.2
"""Seconds between two passes at least: decisions that wake the loop at once must not fill a core."""
FIRST_REPAIR = 15.0
"""Longest first pause after a broken pass, in seconds, never more than a poll; it doubles with each try."""
MAX_REPAIR = 60.0
"""Longest pause between tries in seconds, or the poll if that is longer."""
FIRST_REMARK = 2
"""Failed tries before the user is told what to expect: a single failure is mostly cured by the next try."""
BROKEN_PASSES = 5
"""Consecutive passes that may fail because of a bug of ours before the command ends with it."""
OUTAGE_TIMEOUT = 900.0
"""Seconds that `up` and `push` wait for a cloud or network that does not answer; `watch` waits for ever."""
BLIND_PASSES = 2
"""Consecutive passes that may observe nothing for a permanent reason before the command stops."""


@dataclass(frozen=True)
class Pause:
    """
    When the next pass is due: after *seconds*, or when a worker of *incarnation* (0: none) wakes the loop.

    For *steady* seconds only a change in the list of TPUs can change the plan: a loop over many deployments may
    delay the pass that long, and read only the list meanwhile.
    """

    loop: "Loop"
    seconds: float
    incarnation: int = 0
    steady: float = 0.0

    def wait(self) -> None:
        """Wait for *seconds* or the wake-up."""
        self.loop.wait(self)


SO_FAR = "changes made before this error remain; `tpuctl status` shows them"
WHEN_IT_ANSWERS = "run the same command again when it answers"
Passes = Generator[Pause, None, Pass]
"""A generator of passes: it yields the pauses between them and returns the last pass."""


class Loop:
    """
    Repeat passes until *stop* is set, the deployment has ended, or *until* returns True.

    *outage_timeout* is the seconds without any answer after which the loop gives up; None means never, because a
    loop that protects a TPU must still run when the network is back. With *steady* the loop delays passes of a
    steady deployment, as a loop over many does.
    """

    def __init__(
        self, deployment: Deployment, outage_timeout: float | None = None, *, steady: bool = False
    ) -> None:
        self._outage_timeout = outage_timeout
        self._spec = deployment.spec
        self._deployment = deployment
        self.reconciler = Reconciler(deployment)
        self._clock = deployment.clock
        self._sink = deployment.sink
        self._records = deployment.records
        self._lease = deployment.lease
        self._poll = float(deployment.spec.watch.poll)
        self._name = deployment.spec.name
        first, last = min(self._poll, FIRST_REPAIR), max(self._poll, MAX_REPAIR)
        self._failures = ConsecutiveFailures(Backoff(first, last, jitter=0.5))
        self._reported: set[str] = set()
        self._wake_object = WakeObject(deployment.spec, deployment.cloud.store, deployment.clock)
        self._defers_steady = steady
        self._zone, self._listed = "", tuple[Node, ...]()
        self.wake = threading.Event()
        self.stop = threading.Event()

    def run(self, until: Callable[[Pass], bool], *after: Callable[[Pass], None]) -> Pass:
        """Run passes until *until* or the end, call *after* with each pass, and return the last pass."""
        return run(self.passes(until, *after))

    def passes(self, until: Callable[[Pass], bool], *after: Callable[[Pass], None]) -> Passes:
        """Run passes like `run`, but yield the pauses to the caller, who does the waiting."""
        try:
            return (yield from self._passes(until, after))
        finally:
            # Store what the last pass has done. If this write fails, no more is lost than by a kill.
            with contextlib.suppress(TpuctlError):
                self._records.flush()

    def _passes(self, until: Callable[[Pass], bool], after: tuple[Callable[[Pass], None], ...]) -> Passes:
        blind_passes = 0
        while True:
            result = self._attempt()
            if result is None:
                yield Pause(self, self._repair_pause())
                continue
            for show in after:
                self._shown(result, show)
            # After the pass was shown, so that the user sees the observation that ended the loop.
            raise_bucket_gone(result, self._records.current)
            # Several in a row, because a single refusal may be a passing error of the service.
            blind_passes = blind_passes + 1 if result.blind else 0
            if blind_passes >= BLIND_PASSES:
                raise_blind(result)
            ended = result.plan.outcome is not None and result.plan.settled
            if ended or until(result) or self.stop.is_set():
                return result
            # Yield to another command only between passes, never in the middle of one.
            self._lease.step_aside()
            yield from self._pauses(result)

    def wait(self, pause: Pause) -> None:
        """Wait until the next pass is due; for a steady deployment, poll the list of TPUs until it changes."""
        steady = pause.steady - pause.seconds if self._defers_steady else 0.0
        woken = self._wake_object.pause(max(SHORTEST_PAUSE, pause.seconds), self.wake, pause.incarnation)
        while steady > SHORT and not woken and not self.wake.is_set() and not self.differs():
            part = min(self._poll, steady)
            woken = self._wake_object.pause(part, self.wake, pause.incarnation)
            steady -= part

    def differs(self) -> bool:
        """Return whether the list of TPUs differs from the one of the last pass; False if it cannot be read."""
        spec = self._deployment.spec
        observed = self._deployment.cloud.nodes.labelled(DEPLOYMENT_LABEL, spec.name, (self._zone,))
        return isinstance(observed, Present) and observed.value != self._listed

    @property
    def wake_interval(self) -> float:
        """Return the seconds between two reads of the wake object (`watch.listen`)."""
        return float(self._deployment.spec.watch.listen)

    def woken(self, incarnation: int) -> bool:
        """Return whether a worker of *incarnation* has written the wake object, or a command wants the lease."""
        try:
            self._lease.step_aside()
        except LeaseHeldError:
            # Ignored here: the next pass is due now and meets the same error.
            return True
        return self._wake_object.written(incarnation)

    def _shown(self, result: Pass, after: Callable[[Pass], None]) -> None:
        """
        Call *after* with a pass.

        A bug in it stops neither the loop, which enforces budget and ttl, nor the other callbacks.
        """
        try:
            after(result)
        except UNFORESEEN as error:
            text = unforeseen(error)
            if text not in self._reported:
                self._reported.add(text)
                self._sink(
                    Event(self._clock.now(), EventKind.FAILURE, f"this pass could not be shown: {text}")
                )

    def _attempt(self) -> Pass | None:
        """Make one pass; return None if it failed for a passing reason, such as a bucket that does not answer."""
        try:
            result = self.reconciler.one_pass()
        except TpuctlError as error:
            self._broken_off(error)
            return None
        except OSError as error:
            on_disk = disk_error(error)
            if on_disk is None:
                raise
            self._broken_off(on_disk)
            return None
        except UNFORESEEN as error:
            # A bug of ours may depend on one odd answer of the cloud; one that repeats is raised.
            if self._failures.count >= BROKEN_PASSES:
                raise
            self._broken_off(TransientError(unforeseen(error), changed=SO_FAR))
            return None
        if self._failures.count > 1:
            now, failures = self._clock.now(), self._failures
            text = f"it works again after {now - failures.since:.0f} s and {failures.count} failed tries"
            self._sink(Event(now, EventKind.WAITING, text))
        self._failures.reset()
        return result

    def _broken_off(self, error: TpuctlError) -> None:
        """Report why a pass failed; raise *error* if repeating the pass cannot help."""
        if error.retry is Retry.TRANSIENT and self.stop.is_set():
            error.explain(hint=WHEN_IT_ANSWERS)
        # Only a passing error is cured by waiting, and after Ctrl-C not even that one is waited for.
        if error.retry is not Retry.TRANSIENT or self.stop.is_set():
            raise error
        now = self._clock.now()
        self._failures.failed(now)
        if self._outage_timeout is not None and now - self._failures.since >= self._outage_timeout:
            error.explain(hint=WHEN_IT_ANSWERS)
            raise error
        counted = {"tries": self._failures.count, "since": self._failures.since}
        self._sink(Event(now, EventKind.FAILURE, f"{error.message} ({error.code})", counted))
        if self._failures.count == FIRST_REMARK:
            self._sink(Event(now, EventKind.WAITING, self._outage_text()))

    def _outage_text(self) -> str:
        """Return the sentence that says how long the loop retries, and what protects the user meanwhile."""
        often = f"{max(self._poll, MAX_REPAIR):.0f} s"
        until = (
            "until it answers" if self._outage_timeout is None else f"for {self._outage_timeout / 60:.0f} min"
        )
        vm, node, _ = safety_nets(self._spec, self._records.current.started_at)
        also = (f"; VM: {vm.message}" if vm.active else "") + f"; TPU: {node.message}"
        return (
            f"trying again at least every {often}, {until}. Meanwhile tpuctl creates and deletes nothing, and "
            f"the job trains on{also}"
        )

    def _repair_pause(self) -> float:
        """
        Return the seconds until the next try.

        Jitter takes away up to half of them, so that many loops do not return to a bucket at the same moment.
        """
        chance = zlib.crc32(f"{self._name} {self._clock.now()!r}".encode()) / 2**32
        return self._failures.pause(chance)

    def _pauses(self, result: Pass) -> Generator[Pause, None, None]:
        """Yield the pauses before the next pass: none after a change or a wake-up, else the poll interval."""
        pause = self._poll if result.plan.wake_in is None else min(self._poll, result.plan.wake_in)
        # No poll after a quota that our own TPU held: until its deletion ends, the next pass only waits for that.
        failed = [failure for failure in result.failures if not failure.waiting]
        if result.plan.changes and not failed:
            pause = min(pause, 1.0)
        node = current_node(result.world, self._records.current)
        listening = node is not None and node.state is NodeState.READY and node.incarnation
        rest = self._records.rest()
        # Leave the write to the next pass if the object's rate limit would make this one wait.
        if rest and pause > rest + WRITE_INTERVAL:
            yield Pause(self, rest)
            pause -= rest
            # If the bucket refuses the write now, the next pass repeats it or reports why not.
            with contextlib.suppress(TransientError):
                self._records.flush()
        yield Pause(self, pause, listening or 0, self._steady(result))
        # Clear it after the pause: a wake-up that arrives during a pass must end the next pause at once.
        self.wake.clear()

    def _steady(self, result: Pass) -> float:
        """Return the seconds for which it is enough to read the list of TPUs."""
        spec, record, world = self._deployment.spec, self._records.current, result.world
        self._zone = record.node.zone
        self._listed = tuple(node for node in world.known_nodes if node.zone == self._zone)
        until = steady_until(
            spec, world, record, result.plan, lambda at: self._deployment.usd_so_far(record, at)
        )
        return until - world.observed_at


def run(passes: Generator[Pause, None, T]) -> T:
    """Run passes one after the other, wait between them, and return their result."""
    try:
        pause = next(passes)
        while True:
            try:
                pause.wait()
            except BaseException as error:
                pause = passes.throw(error)
            else:
                pause = next(passes)
    except StopIteration as end:
        result: T = end.value
        return result
