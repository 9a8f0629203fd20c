"""Watch a fleet: its deployments as `watch --all` does, and its queue."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, Style
from orchestrator.app.deployment.session import Session
from orchestrator.app.fleet.sessions import Fleet, for_each
from orchestrator.app.fleet.size import Sizing
from orchestrator.app.fleet.usage import UsageReader, reckon
from orchestrator.app.loop.on_vm import nothing_to_watch
from orchestrator.app.loop.watch import turn
from orchestrator.app.loop.watch_all import WatchAll
from orchestrator.domain import names
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import FailedChange, Kind, Verb
from orchestrator.domain.wait import Wait
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.engine.loop.loop import run
from orchestrator.engine.loop.many_loops import Member, PeriodicTask
from orchestrator.engine.reconcile.observe import PASS_ERRORS, as_error
from orchestrator.errors import LeaseHeldError, RemoteError, TpuctlError
from orchestrator.planning.fleet.deployments import SlurmController
from orchestrator.planning.update_record import LACKING

TEND_SECONDS = 15.0
"""Seconds between two checks of the queue; a lost node wakes it at once."""
REFUSED_SECONDS = 60.0
"""Between two lines about the same zone that refuses, which is told when more nodes have met it."""
RECKON_SECONDS = 60.0
"""Seconds between two sums of the users' spending, each of which reads the history of all jobs."""


class LostFleetNodes:
    """Collects nodes that lost their machine until Slurm has been told."""

    def __init__(self) -> None:
        self._lost: set[tuple[str, int]] = set()
        self._reported: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self.wake = threading.Event()

    def take(self, node: str, result: Pass) -> None:
        """Record the machine that a pass deletes and that therefore does no more work."""
        for change in result.plan.changes:
            if change.kind is Kind.NODE and change.verb is Verb.DELETE:
                number = names.incarnation_of(change.name, {})
                with self._lock:
                    if number is not None and (node, number) not in self._reported:
                        self._lost.add((node, number))
                        self.wake.set()

    def report(self, slurm: Slurm) -> None:
        """Report all of them to Slurm. Raise TpuctlError; the rest is kept for the next call."""
        with self._lock:
            waiting = sorted(self._lost)
        for node, number in waiting:
            slurm.lost(node, number)
            with self._lock:
                self._lost.discard((node, number))
                self._reported.add((node, number))


class Refusals:
    """Tell what zones refuse to all nodes: a line for each zone and cause, and again when it has gone on."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter, self._lock = reporter, threading.Lock()
        self._nodes: dict[tuple[str, str], set[str]] = {}
        self._said_of: dict[tuple[str, str], tuple[int, float]] = {}

    def take(self, node: str, zone: str, cause: str, at: float) -> None:
        """Count one refusal, *at* some time in seconds."""
        key = (zone, cause)
        with self._lock:
            nodes = self._nodes.setdefault(key, set())
            nodes.add(node)
            before, said_at = self._said_of.get(key, (0, 0.0))
            # More nodes are news, more refusals of the same ones are not.
            if before and (len(nodes) == before or at - said_at < REFUSED_SECONDS):
                return
            self._said_of[key] = (len(nodes), at)
            count = len(nodes)
        many = f"{count} node{'' if count == 1 else 's'}"
        self._reporter.say(f"{zone}: {cause}, refused to {many}; why: tpuctl explain {node}", style="warning")


class _FleetNodeReporter(Reporter):
    """Pass on what a node tells, but for refusals, which are counted for the fleet."""

    def __init__(self, node: str, onward: Reporter, refusals: Refusals) -> None:
        self._node, self._onward, self._refusals = node, onward, refusals

    def __call__(self, event: Event) -> None:
        if event.kind == EventKind.REFUSED:
            self._refusals.take(self._node, str(event.data["zone"]), str(event.data["retry"]), event.at)
        else:
            self._onward(event)

    def say(self, text: str, *, style: Style = "") -> None:
        self._onward.say(text, style=style)

    def waiting(self, waits: Sequence[Wait], at: float) -> None:
        self._onward.waiting(waits, at)

    def failure(self, failure: FailedChange, at: float) -> None:
        # A refusal is an event too.
        if failure.change.kind is not Kind.NODE or failure.error.retry not in LACKING:
            self._onward.failure(failure, at)


class _FleetNodeScreen:
    """Shows nothing of a node's job, which is Slurm, except lost machines."""

    def __init__(self, node: str, lost: LostFleetNodes) -> None:
        self._node, self._lost = node, lost

    def show(self, result: Pass, usd: float, upper_usd: float) -> None:
        self._lost.take(self._node, result)

    def graceful_stop(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()


def _counted(reporter_of: Callable[[str], Reporter], refusals: Refusals) -> Callable[[str], Reporter]:
    return lambda name: _FleetNodeReporter(name, reporter_of(name), refusals)


class FleetWatch(WatchAll[Reporter]):
    """Watches all nodes and the VM of one fleet, and tells Slurm what it cannot know or has forgotten."""

    def __init__(
        self, choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter], *,
        on_vm: bool = False,
    ) -> None:  # fmt: skip
        if not choice.as_json:
            # A program gets each event.
            reporter_of = _counted(reporter_of, Refusals(reporter))
        self._fleet, self._reporter, lost = Fleet(choice, reporter, reporter_of), reporter, LostFleetNodes()
        self._lost, self._said, self._wrong = lost, "", dict[str, str]()
        self._choice, self._reckon_at = choice, 0.0
        self._reader: UsageReader | None = None

        def screen(_: Reporter, session: Session) -> _FleetNodeScreen:
            return _FleetNodeScreen(session.spec.name, lost)

        name, known = self._fleet.spec.name, self._fleet.known()
        periodic = PeriodicTask(self._tend, TEND_SECONDS, lost.wake)
        super().__init__(choice, reporter_of, screen, {name, *known}, periodic, on_vm=on_vm)
        size = self._fleet.spec.fleet
        # A fleet of a fixed size is as `fleet up` has made it; but its nodes may have to come together in one zone.
        changes = size and (size.min_idle is not None or (len(self._fleet.spec.tpu.zones) > 1 and not on_vm))
        self._sizing = Sizing(self._fleet, self) if changes else None
        # What nodes have cost that are not there now counts for the budget of all.
        self._together[name] = self._fleet.together
        for_each({one: partial(self._count, one) for one in known if one not in self.names})

    def run(self) -> None:
        """Run passes, and tend the queue in parallel; the loop on the VM stops that VM when all has ended."""
        if self._on_vm and nothing_to_watch(self._fleet.head):
            return
        try:
            super().run()
        finally:
            if self._sizing is not None:
                self._sizing.end()
        if self._on_vm and not self.stopped and not any(one.error for one in self.ended):
            # By their common cost, as before.
            spec = self._fleet.spec
            head = Session(self._choice, self._reporter, spec, together=self._together.get(spec.name))
            run(turn(head, _FleetNodeScreen("", self._lost), None, threading.Event(), on_vm=True))

    def _count(self, name: str) -> None:
        session = self._fleet.node(name, SlurmController("", 0, ""))
        session.upper_cost(session.records.current, session.clock.now())

    def _note(self, member: Member, end: Pass | TpuctlError) -> None:
        super()._note(member, end)
        # Another command may change the set of nodes; end here, so that cron restarts with the new set.
        if self._on_vm and isinstance(end, LeaseHeldError):
            self.stop()

    def _tend(self) -> None:
        try:
            slurm = self._fleet.slurm()
            self._lost.report(slurm)
            slurm.tend()
            if self._fleet.head.clock.monotonic() >= self._reckon_at:
                self._reader = self._reader or UsageReader(self._choice, Reporter())
                reckon(self._reader)
                self._reckon_at = self._fleet.head.clock.monotonic() + RECKON_SECONDS
            self._report_errors(self._fleet.submit_missing(slurm))
            if self._sizing is not None:
                self._sizing.observe(slurm)
            self._said = ""
        except (*PASS_ERRORS, OSError) as caught:
            # The VM may be coming back; what was not reported now is reported then.
            error = as_error(caught)
            if error.message != self._said:
                self._reporter.say(f"the queue: {error.message}", style="warning")
            self._said = error.message
            if isinstance(error, RemoteError) and self._restart_slurm():
                self._lost.wake.set()

    def _report_errors(self, wrong: Mapping[str, TpuctlError]) -> None:
        """Say once what is wrong with a job; all others go on."""
        now = {name: f"{error.message}; {error.next_step}" for name, error in wrong.items()}
        for name, text in now.items():
            if self._wrong.get(name) != text:
                self._reporter.say(text, style="warning")
        self._wrong = now

    def _restart_slurm(self) -> bool:
        """Install Slurm on a VM that was recreated or lacks its files; return whether it runs."""
        try:
            slurm_controller = self._fleet.start_slurm(timeout=0.0)
        except TpuctlError:
            return False  # The next call reports why Slurm does not answer.
        self._reporter.say(f"the queue is at {slurm_controller.address}:{slurm_controller.port} again")
        return True
