"""Inject faults at chosen moments of a rehearsal."""

import contextlib
import math
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from orchestrator.advice.rehearsal.run import Fault, InjectedFault, Moment, Trigger, come
from orchestrator.app.rehearsal.evidence import RunEvidence, newest_step
from orchestrator.app.rehearsal.sandbox import Sandbox
from orchestrator.clock import Clock, wait_until
from orchestrator.contract.bucket.object_names import CHECKPOINTS
from orchestrator.contract.phase import Phase
from orchestrator.domain import names
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import NodeState, Present, VmState, World
from orchestrator.domain.record import current_node
from orchestrator.emulator import control
from orchestrator.engine.reconcile.observe import observe
from orchestrator.errors import TpuctlError

T = TypeVar("T")
TIMEOUT = 900.0
"""Seconds without progress after which waiting for a moment fails."""
POLL_SECONDS = 0.3
"""Seconds between two polls; saves are polled more often."""
AGAIN = Moment(Trigger.TIME, 1.0)
"""The moment to preempt a new machine again if the job reports no steps."""


class JobOverError(Exception):
    """The job ended before the next fault."""


class Injector:
    """
    Inject faults into a rehearsed deployment while `watch` runs it.

    The rehearsal runs real processes, so the *clock* is the system's.
    """

    def __init__(
        self, sandbox: Sandbox, watcher: "subprocess.Popen[bytes]", evidence: RunEvidence, chance: random.Random,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._sandbox = sandbox
        self._watcher = watcher
        self._evidence = evidence
        self._chance = chance
        self._clock = clock
        self._struck = ""

    def inject(self, fault: Fault, moment: Moment) -> InjectedFault:
        """
        Wait for *moment* and for that of *fault*, then inject the fault.

        Raise JobOverError if the job ends before, TpuctlError if the moment does not come.
        """
        # Not the node preempted last: striking it again would be no second preemption.
        node, heartbeat = self._running(moment, other_than=self._struck)
        if fault is Fault.VM:
            self._stop_vm()
            return self._injected(fault, heartbeat)
        if fault is Fault.SAVE:
            heartbeat = self._at_a_save() or heartbeat
        elif fault in {Fault.NOTICE, Fault.NO_NOTICE}:
            # A random delay, so that each fault meets the job at another point of a step.
            self._clock.wait(self._chance.uniform(0, 1.0))
        self._preempt(node, notice=fault is Fault.NOTICE)
        injected = self._injected(fault, heartbeat)
        if fault is Fault.TWICE:
            steps = bool(self._evidence.steps)
            again, _ = self._running(Moment(Trigger.STEP) if steps else AGAIN, other_than=node)
            self._preempt(again, notice=False)
        if fault is Fault.RESTORE:
            self._preempt(self._restoring(node), notice=False)
        return injected

    def until_over(self) -> int:
        """Wait for the end of `watch` while observing the job; return its exit status."""

        def over() -> bool:
            if self._watcher.poll() is not None:
                return True
            self._evidence.observe()
            return False

        wait_until(over, self._clock, math.inf, POLL_SECONDS, longest=POLL_SECONDS)
        return self._watcher.returncode

    def _preempt(self, node: str, *, notice: bool) -> None:
        # Before the call: even if its answer is lost, this node is not taken for the next one.
        self._struck = node
        words = ["local", "preempt", node, *([] if notice else ["--no-notice"])]
        self._sandbox.say(f"$ tpuctl {' '.join(words)}", style="command")
        control.call("preempt", {"name": node, "notice": notice})

    def _injected(self, fault: Fault, heartbeat: Heartbeat) -> InjectedFault:
        return InjectedFault(
            fault, heartbeat.incarnation, self._clock.now(), heartbeat.step, heartbeat.committed_step
        )

    def _running(self, moment: Moment, other_than: str = "") -> tuple[str, Heartbeat]:
        """Wait until the job trains on a READY node and *moment* has come."""

        def ready(world: World) -> tuple[str, Heartbeat] | None:
            node = current_node(world, self._sandbox.session.records.current)
            heartbeats = world.known_heartbeats
            running = [b for b in heartbeats if b.phase is Phase.RUN]
            if node is None or node.state is not NodeState.READY or node.name == other_than or not running:
                return None
            slowest = min(running, key=newest_step)
            return (node.name, slowest) if come(moment, self._evidence.shown(running, moment)) else None

        return self._wait(ready, f"the moment {moment} did not come")

    def _restoring(self, old: str) -> str:
        """Wait until the node after *old* prepares the job."""

        def booting(world: World) -> str | None:
            node = current_node(world, self._sandbox.session.records.current)
            heartbeats = world.known_heartbeats
            awake = any(b.phase in {Phase.BOOT, Phase.SETUP, Phase.RESTORE, Phase.RUN} for b in heartbeats)
            return node.name if node is not None and node.name != old and awake else None

        return self._wait(booting, "no new machine restored the job")

    def _at_a_save(self) -> Heartbeat | None:
        """Return as soon as a checkpoint file changes, which is in the middle of a save."""
        before = self._traces()

        def changed() -> bool:
            self._check_watcher()
            return self._traces() != before

        # A save may last only milliseconds.
        return self._heartbeat() if wait_until(changed, self._clock, TIMEOUT, 0.02, longest=0.02) else None

    def _traces(self) -> tuple[object, ...]:
        """Return values that a save changes: names and sizes in the machines' checkpoint folders or the bucket."""
        spec, session = self._sandbox.session.spec, self._sandbox.session
        if spec.job.checkpoint.dir == "bucket":
            return tuple(o.name for o in session.cloud.store.list(CHECKPOINTS))
        return tuple(_files(self._sandbox.cloud / "machines"))

    def _heartbeat(self) -> Heartbeat | None:
        heartbeats = self._observe().heartbeats
        found = heartbeats.value if isinstance(heartbeats, Present) else ()
        return min(found, key=newest_step, default=None)

    def _stop_vm(self) -> None:
        """Stop the VM, as a preemption or a user might, and wait until `watch` has started it again."""
        session = self._sandbox.session
        vm, zone = names.vm_name(session.spec), names.vm_zone(session.spec)
        self._sandbox.say(f"the VM {vm} is stopped from outside", style="command")
        session.cloud.vms.stop(vm, zone)

        def state(wanted: bool) -> Callable[[World], bool | None]:
            def reached(world: World) -> bool | None:
                running = isinstance(world.vm, Present) and world.vm.value.state is VmState.RUNNING
                return True if running is wanted else None

            return reached

        self._wait(state(wanted=False), "the VM did not stop")
        self._wait(state(wanted=True), "the VM was not started again")

    def _wait(self, ask: Callable[[World], T | None], what: str) -> T:
        """Poll until *ask* returns a value, as long as machines report news. Raise TpuctlError."""
        signs, end = None, self._clock.monotonic() + TIMEOUT
        while self._clock.monotonic() < end:
            self._check_watcher()
            self._evidence.observe()
            found = ask(self._observe())
            if found is not None:
                return found
            now = tuple(b.updated for b in self._evidence.heartbeats)
            if now != signs:
                # A long setup that keeps reporting is waited for; only silence ends the rehearsal.
                signs, end = now, self._clock.monotonic() + TIMEOUT
            self._clock.wait(POLL_SECONDS)
        raise TpuctlError(
            what,
            hint="run it again with --keep and look at `tpuctl logs`",
            changed="the deployment itself was not touched",
        )

    def _observe(self) -> World:
        session = self._sandbox.session
        # Read only: a second writer of the record would disturb the rehearsed `watch`.
        with contextlib.suppress(TpuctlError):
            session.records.load()
        return observe(
            session.cloud,
            session.spec,
            session.records.current,
            session.blueprint.bucket,
            session.clock.now(),
        )

    def _check_watcher(self) -> None:
        if self._watcher.poll() is not None:
            raise JobOverError


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.glob("*/opt/tpuctl/checkpoints/**/*")):
        try:
            yield str(path), path.stat().st_size
        except OSError:
            continue
