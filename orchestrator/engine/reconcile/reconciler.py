"""Run one pass: observe, update the record, decide, apply."""

from dataclasses import replace

from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.observation import Present, Unknown, World
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Outcome, Plan
from orchestrator.domain.record import Record
from orchestrator.domain.updated import updated
from orchestrator.domain.wait import Wait
from orchestrator.engine.bucket.heartbeats import Heartbeats
from orchestrator.engine.bucket.race_claim import winner
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.reconcile.alarms import Alarms
from orchestrator.engine.reconcile.apply import Actor
from orchestrator.engine.reconcile.observe import WideList, observe, unforeseen
from orchestrator.engine.reconcile.shared_creates import share_stockouts, with_create_budget
from orchestrator.engine.records.capacity_history import SharedCapacityHistory
from orchestrator.errors import UNFORESEEN
from orchestrator.planning.decide import decide
from orchestrator.planning.deployment_outcome import self_delete_at
from orchestrator.planning.events import events_of, preemption, start_from_zero, with_preemption
from orchestrator.planning.invariants import broken
from orchestrator.planning.update_record import not_older, update_record


class Reconciler:
    """Run passes for one deployment. Every pass may be killed at any line and repeated."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._records = deployment.records
        self._sink = deployment.sink
        self._actor = Actor(deployment)
        self._capacity = SharedCapacityHistory(deployment.cloud.capacity_store)
        self._heartbeats = Heartbeats(deployment.cloud.store)
        self._wide = WideList()
        self._alarms = Alarms(deployment.sink)
        self._stockouts_shared = 0.0

    def one_pass(self) -> Pass:
        """Run one pass. Raise LeaseHeldError if another process has the lease."""
        # First of all: without the lease, not even what is observed may be stored.
        self._deployment.lease.keep()
        world, before = self._observe()
        world, after = self._record_and_report(before, world)
        # Not written yet: the first intent, or the end of the pass, writes the observation as well.
        self._records.update_later(lambda _: after)
        # Before deciding: once a bucket exists, two computers without a lease might both decide.
        if isinstance(world.bucket, Present):
            self._deployment.lease_in_new_bucket()
        record = self._records.current
        world, plan = self._decide(record, world)
        # Before the first change: an approved plan is compared with this one.
        self._deployment.approve(plan)
        # Failures are returned, not raised: a refusal in one zone must not stop the other changes.
        failures = self._actor.apply(plan, world)
        # Last, so that one write holds what was observed, intended and done.
        self._end_pass(record, world, plan)
        return Pass(world, plan, failures)

    def _observe(self) -> tuple[World, Record]:
        """Return the observation, and the record with the shared capacity history."""
        deployment, record = self._deployment, self._records.current
        now = deployment.clock.now()
        world = observe(
            deployment.cloud, deployment.spec, record, deployment.bucket, now, self._heartbeats, self._wide
        )
        # A list may be older than our own create, so a new TPU that it lacks is not absent.
        world = not_older(world, record)
        record = updated(record, node=updated(record.node, type=record.node.type or deployment.spec.tpu.type))
        # The capacity history has its own object, because a lost record must not lose it.
        record = self._capacity.recalled(record, world)
        return with_create_budget(
            world, deployment.create_budget, deployment.spec.tpu.zones, record.node.type
        ), record

    def _record_and_report(self, before: Record, world: World) -> tuple[World, Record]:
        """Return world and record with what this observation adds, and emit an event for each change."""
        world, after = self._next_record(before, world)
        spec, events = self._deployment.spec, []
        started_over = start_from_zero(spec, before, after, world)
        events += [started_over] if started_over is not None else []
        events += events_of(before, after, world, spec.job.failures)
        lost = preemption(spec, before, after, world)
        if lost is not None:
            events.append(lost)
            # Counted with its event, in the one pass that first observes it, so never twice.
            after = with_preemption(after)
        for event in events:
            self._sink(event)
        return world, updated(after, self_delete_at=self_delete_at(spec, after))

    def _next_record(self, record: Record, world: World) -> tuple[World, Record]:
        """
        Return world and record after the observation.

        If a heartbeat makes our code fail, both are computed without heartbeats.
        """
        try:
            after = update_record(record, world)
            # The record must contain its candidates before one of them is named the winner.
            claim = winner(self._deployment.cloud.store, after, world)
            if claim != world.claim:
                world = replace(world, claim=claim)
                after = update_record(after, world)
        except UNFORESEEN as error:
            world = self._without_heartbeats(world, error)
            return world, update_record(record, world)
        return world, after

    def _decide(self, record: Record, world: World) -> tuple[World, Plan]:
        """
        Return the world and the plan.

        If a heartbeat makes our code fail, the plan is made without heartbeats: budget and ttl need none.
        """
        spec = self._deployment.spec
        usd_so_far = self._deployment.usd_so_far(record, world.observed_at)
        try:
            plan = decide(spec, world, record, usd_so_far)
        except UNFORESEEN as error:
            world = self._without_heartbeats(world, error)
            plan = decide(spec, world, record, usd_so_far)
        parts = self._deployment
        return world, self._unless_broken(plan, world, record).creating_only(parts.only).without(parts.stays)

    def _without_heartbeats(self, world: World, error: Exception) -> World:
        """Return the world without what machines wrote, and report it once; raise *error* if it had none before."""
        if isinstance(world.heartbeats, Unknown) and isinstance(world.claim, Unknown):
            raise error
        text = unforeseen(error)
        text_of_event = f"the machines' reports are left out: {text}"
        self._alarms.bug(Event(world.observed_at, EventKind.FAILURE, text_of_event))
        return replace(world, heartbeats=Unknown(text), claim=Unknown(text), boot_heartbeats=())

    def _unless_broken(self, plan: Plan, world: World, record: Record) -> Plan:
        """Return the plan, or an empty one if it would break an invariant, which is reported once."""
        # The invariants share no code with the decisions, so a bug in a decision is caught here.
        found = broken(self._deployment.spec, plan, world, record)
        if found is None:
            return plan
        text = f"nothing is changed, because tpuctl has a bug ({found.text}); please report it"
        self._alarms.bug(Event(world.observed_at, EventKind.INVARIANT, text, {"promise": found.text}))
        return Plan(waits=(Wait(text),))

    def _end_pass(self, record: Record, world: World, plan: Plan) -> None:
        """Store the results of this pass; flush at once if the deployment has ended."""
        self._alarms.disk(self._records.disk or self._deployment.journal.disk, world.observed_at)
        self._capacity.keep(self._records.current.capacity_history, world.observed_at)
        # Both records: refusals of this pass, and those that operations showed at its beginning.
        records = (self._records.current, record)
        self._stockouts_shared = share_stockouts(
            self._deployment.create_budget, records, self._stockouts_shared
        )
        outcome = plan.outcome
        if outcome is not None and outcome is not Outcome.REFUSED:
            self._records.update(lambda record: replace(record, outcome=outcome, message=plan.message))
        elif not self._records.rest():
            self._records.flush()
