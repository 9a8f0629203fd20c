"""One pass: look, learn, decide, act."""

from dataclasses import dataclass, replace

from orchestrator.domain.events import Event
from orchestrator.domain.maintenance import maintenance_text
from orchestrator.domain.observation import Phase, Present, Unknown, World
from orchestrator.domain.plan import Outcome, Plan
from orchestrator.domain.record import TERMINAL, History, current_node, noted
from orchestrator.engine.all_zone_list import WideLook
from orchestrator.engine.apply import Actor, Failure
from orchestrator.engine.budget_step import tell_stockouts, with_budget
from orchestrator.engine.capacity_memory import CapacityMemory
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.heartbeats import Heartbeats
from orchestrator.engine.observe import observe, unforeseen
from orchestrator.engine.race_claim import winner
from orchestrator.errors import UNFORESEEN
from orchestrator.planning.decide import decide
from orchestrator.planning.invariants import broken
from orchestrator.planning.queued_tpu import has_failed, loss_text
from orchestrator.planning.stale_list import not_older
from orchestrator.planning.termination import expiry
from orchestrator.planning.unclaimed import has_no_steps, lost_text
from orchestrator.planning.update_record import learn


@dataclass(frozen=True)
class Pass:
    """Hold what one pass saw, decided and failed at."""

    world: World
    plan: Plan
    failures: tuple[Failure, ...] = ()


class Reconciler:
    """Run passes for one deployment. Every pass may be killed and repeated."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._record = deployment.record
        self._sink = deployment.sink
        self._actor = Actor(deployment)
        self._memory = CapacityMemory(deployment.cloud.store)
        self._reports = Heartbeats(deployment.cloud.store)
        self._wide = WideLook()
        self._alarm = ""
        self._told = 0.0
        self._disk = ""
        self._anew = 0

    def one_pass(self) -> Pass:
        """Look at the world, decide and act once."""
        parts, history = self._deployment, self._record.history
        parts.lease.keep()
        now = parts.clock.now()
        world = observe(parts.cloud, parts.spec, history, parts.bucket, now, self._reports, self._wide)
        world = not_older(world, history)
        history = noted(history, type=history.type or parts.spec.tpu.type)
        history = self._memory.recalled(history, world)
        world = with_budget(world, parts.budget, parts.spec.tpu.zones, history.type)
        world, learned = self._learned(history, world)
        self._tell(history, learned, world)
        learned = self._count_losses(history, learned, world)
        learned = noted(learned, expires_at=expiry(parts.spec, learned))
        self._record.note(lambda _: learned)
        if parts.lease.token is None and isinstance(world.bucket, Present):
            # The bucket is new. Of two first commands only the one that wrote the record comes this far.
            if not self._record.in_bucket:
                self._record.flush()
            parts.lease.acquire()
            self._record.note(lambda h: replace(h, fence=parts.lease.token or h.fence))
            learned = self._record.history
        world, plan = self._decided(world, learned)
        plan = self._guarded(plan, world, learned).making(parts.only)
        parts.approve(plan)
        failures = self._actor.act(plan, world)
        self._tell_of_the_disk(world.seen_at)
        self._memory.keep(self._record.history.places, world.seen_at)
        self._told = tell_stockouts(parts.budget, (self._record.history, learned), self._told)
        if plan.outcome not in {None, Outcome.REFUSED}:
            self._record.update(
                lambda h: replace(h, outcome=plan.outcome.value if plan.outcome else "", reason=plan.reason)
            )
        elif not self._record.rest():
            self._record.flush()
        return Pass(world, plan, failures)

    def _learned(self, history: History, world: World) -> tuple[World, History]:
        """Return what the record learns from a look; without the reports, where they bring about a fault."""
        try:
            learned = learn(history, world)
            claim = winner(self._deployment.cloud.store, learned, world)
            if claim != world.claim:
                world = replace(world, claim=claim)
                learned = learn(learned, world)
        except UNFORESEEN as error:
            world = self._without_reports(world, error)
            return world, learn(history, world)
        return world, learned

    def _decided(self, world: World, history: History) -> tuple[World, Plan]:
        """Return the plan; without the reports, where they bring about a fault: budget and ttl need none."""
        spec = self._deployment.spec
        spent = self._deployment.spent(history, world.seen_at)
        try:
            return world, decide(spec, world, history, spent)
        except UNFORESEEN as error:
            world = self._without_reports(world, error)
            return world, decide(spec, world, history, spent)

    def _without_reports(self, world: World, error: Exception) -> World:
        """Return the world without what machines have written, and say so; what has failed without it is raised."""
        if isinstance(world.heartbeats, Unknown) and isinstance(world.claim, Unknown):
            raise error
        text = unforeseen(error)
        if text != self._alarm:
            self._alarm = text
            self._sink(Event(world.seen_at, "failure", f"the machines' reports are left out: {text}"))
        return replace(world, heartbeats=Unknown(text), claim=Unknown(text), boots=())

    def _guarded(self, plan: Plan, world: World, history: History) -> Plan:
        """Return the plan, or one without changes when it would break a promise, which is said; looking goes on."""
        promise = broken(self._deployment.spec, plan, world, history)
        if not promise:
            return plan
        text = f"nothing is changed, because this tpuctl has a fault ({promise}); please report it"
        if text != self._alarm:
            self._alarm = text
            self._sink(Event(world.seen_at, "invariant", text, {"promise": promise}))
        return Plan(waiting=(text,))

    def _tell_of_the_disk(self, now: float) -> None:
        """Say once that record and journal are in the bucket only, and once that they are here again."""
        trouble = self._record.disk or self._deployment.journal.disk
        if bool(trouble) != bool(self._disk):
            text = (
                f"{trouble}; record and journal are kept in the bucket alone, all else goes on"
                if trouble
                else "this computer's disk takes record and journal again"
            )
            self._sink(Event(now, "disk", text))
        self._disk = trouble

    def _count_losses(self, before: History, after: History, world: World) -> History:
        """Count a preemption once: when the newest incarnation is first seen to have left or to be terminal."""
        node, key = current_node(world, after), f"node:{after.incarnation}:"
        words = ("left",) if self._deployment.spec.job.run_on == "tpu" else ()
        signs = {f"{key}{word}" for word in (*words, *(state.name.lower() for state in TERMINAL))}
        known = signs & set(before.sightings)
        if node is None or has_failed(node) or known or not signs & set(after.sightings):
            return after
        spec = self._deployment.spec
        what = "is being preempted"
        if node.state in TERMINAL:
            what = loss_text(spec, before, node, world.seen_at)
        work = lost_text(spec.job.checkpoint, world, after)
        text = f"TPU {node.name} {what}{f'; {work}' if work else ''}"
        self._sink(Event(world.seen_at, "preempted", text, {"incarnation": node.incarnation}))
        return replace(after, preemptions=after.preemptions + 1)

    def _tell(self, before: History, after: History, world: World) -> None:
        """Say what is news: a ready node, a refusal, an operation that ended."""
        self._tell_of_step_0(after, world)
        key = f"node:{after.incarnation}:ready"
        if key in after.sightings and key not in before.sightings:
            text = f"TPU of incarnation {after.incarnation} is READY in {after.zone}"
            self._sink(Event(world.seen_at, "ready", text, {"incarnation": after.incarnation}))
        key, node = f"node:{after.incarnation}:maintenance", current_node(world, after)
        if key in after.sightings and key not in before.sightings and node is not None:
            text = f"TPU {node.name}: {maintenance_text(node.maintenance)}; it is kept as long as it works"
            self._sink(Event(world.seen_at, "maintenance", text, {"incarnation": node.incarnation}))
        for refusal in after.refusals[len(before.refusals) :]:
            text = f"refused in {refusal.zone} ({refusal.retry.value}): {refusal.message}"
            self._sink(Event(world.seen_at, "refused", text, {"zone": refusal.zone}))

    def _tell_of_step_0(self, history: History, world: World) -> None:
        """Say once for each replacement that its job begins at step 0: what was trained before is gone."""
        beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
        runs = [b for b in beats if b.incarnation == history.incarnation and b.phase is Phase.RUN]
        if history.preemptions and history.incarnation > self._anew and runs:
            self._anew = history.incarnation
            stepless = has_no_steps(self._deployment.spec.job.checkpoint)
            if not stepless and all(b.resumed_from is None for b in runs):
                text = f"incarnation {history.incarnation} begins at STEP 0: nothing was committed before"
                self._sink(Event(world.seen_at, "anew", text, {"incarnation": history.incarnation}))


def blind(result: Pass) -> Unknown | None:
    """Return what the pass could not see for a reason that waiting does not cure, or None."""
    from orchestrator.errors import Retry

    sights = (result.world.nodes, result.world.vm, result.world.bucket)
    return next((s for s in sights if isinstance(s, Unknown) and s.retry is Retry.PERMANENT), None)
