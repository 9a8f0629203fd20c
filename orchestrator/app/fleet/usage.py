"""Read back from the bucket what a fleet has done and cost."""

from dataclasses import replace
from functools import partial

from orchestrator import threads
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.fleet.queue import Queue, ask_slurm, fleet_to_read, narrowed, queue
from orchestrator.app.fleet.sessions import Fleet, for_each
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record, Span
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.engine.fleet.history import FleetHistory
from orchestrator.engine.fleet.job_store import ReadSubmissions
from orchestrator.errors import TpuctlError
from orchestrator.planning.fleet.deployments import SlurmController, node_names
from orchestrator.planning.fleet.fleet_cost import Amount, FleetUsage, fleet_cost, jobs_remaining, running
from orchestrator.planning.fleet.use import FleetNodeFacts, Rates, lanes
from orchestrator.planning.fleet.users import over_budget, spending_of
from orchestrator.pricing.cost_breakdown import cost_breakdown

NODES_SECONDS = 30.0
"""Seconds for which the records of nodes are reused; each is a read."""


class UsageReader:
    """Reads a fleet's usage repeatedly; what cannot have changed is not read again."""

    def __init__(self, choice: Choice, reporter: Reporter) -> None:
        self.fleet = fleet_to_read(choice, reporter)
        self._history = FleetHistory(self.fleet.head.store)
        self._facts: tuple[float, list[FleetNodeFacts], tuple[str, ...], int] = (0.0, [], (), 0)

    def observe(self, submissions: ReadSubmissions | None = None) -> FleetUsage:
        """Return the present usage, of *submissions* if they have just been read."""
        head = self.fleet.head
        now = head.clock.now()
        if not self._facts[0] or now - self._facts[0] >= NODES_SECONDS:
            self._facts = (now, *_nodes(self.fleet))
        _, facts, unread, preemptions = self._facts
        submissions = submissions or job_store.read_all(head.store)
        jobs = self._history.read(submissions.jobs, {one.name for one in facts})
        jobs = tuple(sorted(jobs, key=lambda one: (one.submission.submitted_at, one.submission.name)))
        found = lanes(facts, jobs, now)
        costs, at_work = fleet_cost(found, _vm(head, now)), running(found, now)
        eta = jobs_remaining(jobs, costs, at_work, sum(lane.has_machine for lane in found))
        return FleetUsage(
            self.fleet.spec.name, now, jobs, found, costs, at_work, eta, self.fleet.spec.watch.budget_usd,
            self.fleet.choice.cloud == "local", unread, preemptions, tuple(submissions.unread),
        )  # fmt: skip


class QueueObserver:
    """Reads the queue repeatedly: all jobs, or the one of a name."""

    def __init__(self, choice: Choice, reporter: Reporter, name: str | None) -> None:
        self._reader, self._name = UsageReader(choice, reporter), name
        self.clock = self._reader.fleet.head.clock

    def observe(self) -> tuple[Queue, FleetUsage]:
        """Return the queue and the usage from Slurm and the bucket."""
        fleet, name = self._reader.fleet, self._name
        store = fleet.head.store
        read = job_store.read_all(store)
        wanted = read if name is None else narrowed(store, read, name)
        with threads.pool(1) as pool:
            # Slurm's answer comes over SSH, and takes as long as reading all the rest from the bucket.
            asked = pool.submit(ask_slurm, fleet, wanted.jobs)
            usage = self._reader.observe(read)
            return queue(store, wanted, name, asked.result()), usage


def reckon(reader: UsageReader) -> None:
    """Record which users' budgets are used up, so that no more of their tasks start."""
    store = reader.fleet.head.cloud.store
    fleet_users = user_store.read_users(store)
    if any(one.budget_usd is not None for one in fleet_users.users.values()):
        found = reader.observe()
        usd = {name: amount.usd for name, amount in found.cost.jobs.items()}
        user_store.write_over_budget(
            store, over_budget(fleet_users, spending_of((j.submission for j in found.jobs), usd))
        )
    else:
        user_store.write_over_budget(store, frozenset())


def fleet_usage(choice: Choice, reporter: Reporter) -> FleetUsage:
    """Return what a fleet has done and cost so far, without changes."""
    return UsageReader(choice, reporter).observe()


def _nodes(fleet: Fleet) -> tuple[list[FleetNodeFacts], tuple[str, ...], int]:
    nowhere = SlurmController("", fleet.port, "")
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known())))
    found = for_each({name: partial(_facts, fleet.node(name, nowhere)) for name in names})
    facts: list[FleetNodeFacts] = []
    unread, preemptions = [], 0
    for name, one in found.items():
        if isinstance(one, TpuctlError):
            unread.append(name)
            continue
        assert isinstance(one, tuple)  # noqa: S101 (what _facts returns)
        facts.append(one[0])
        preemptions += one[1]
    return facts, tuple(unread), preemptions


def _facts(session: Session) -> tuple[FleetNodeFacts, int]:
    record, full = session.records.current, _on_demand(session.spec)
    observed = read_heartbeats(session.store, None)
    heartbeats = (
        {heartbeat.incarnation: heartbeat for heartbeat in observed.value}
        if isinstance(observed, Present)
        else {}
    )
    spans = tuple(span for span in record.spans if span.kind is Kind.NODE)
    ready: dict[str, float] = {}
    for span in spans:
        heartbeat = heartbeats.get(incarnation_of(span.name, {}) or 0)
        if heartbeat is not None and "spawned" in heartbeat.timings:
            ready[span.name] = heartbeat.timings["spawned"]

    def rate(span: Span) -> Rates:
        # Price exactly one hour of this span, with the same tables and rules as any cost.
        hour = replace(record, spans=(replace(span, since=0.0, until=3600.0),), disks=())
        one, other = (
            cost_breakdown(spec, session.catalog, hour, (), 3600.0) for spec in (session.spec, full)
        )
        paid = (None, None) if one.unpriced else (one.usd, one.upper_usd)
        return (*paid, None if other.unpriced else other.usd)

    return FleetNodeFacts(session.spec.name, spans, ready, rate), record.node.preemptions


def _on_demand(spec: Spec) -> Spec:
    vm = replace(spec.vm, spot=False) if isinstance(spec.vm, VmSpec) else spec.vm
    return replace(spec, tpu=replace(spec.tpu, spot=False), vm=vm)


def _vm(head: Session, now: float) -> Amount:
    record: Record = head.records.current
    one = cost_breakdown(head.spec, head.catalog, record, (), now)
    seconds = sum((span.until or now) - span.since for span in record.spans if span.kind is Kind.VM)
    return Amount(seconds, one.usd, one.on_demand_usd, upper_usd=one.upper_usd)
