"""
One pass: look, learn, decide, act.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.clock import Clock
from orchestrator.core.decide import decide
from orchestrator.core.history import TERMINAL, History, current_node, learn
from orchestrator.core.plan import Plan
from orchestrator.core.spec import Spec
from orchestrator.core.world import Unknown, World
from orchestrator.engine.act import Actor, Failure
from orchestrator.core.events import Event, Sink
from orchestrator.engine.observe import observe
from orchestrator.engine.record import Record
from orchestrator.ports import Cloud


@dataclass(frozen=True)
class Pass:
    """
    Hold what one pass saw, decided and failed at.
    """

    world: World
    plan: Plan
    failures: tuple[Failure, ...] = ()


class Reconciler:
    """
    Run passes for one deployment. Every pass may be killed and repeated.
    """

    def __init__(
        self, cloud: Cloud, spec: Spec, bucket: str, record: Record, actor: Actor, clock: Clock, sink: Sink,
        spent: Callable[[History, float], float],
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._spec = spec
        self._bucket = bucket
        self._record = record
        self._actor = actor
        self._clock = clock
        self._sink = sink
        self._spent = spent

    def one_pass(self) -> Pass:
        """
        Look at the world, decide and act once.
        """
        history = self._record.history
        world = observe(self._cloud, self._spec, history, self._bucket, self._clock.now())
        learned = learn(history, world)
        self._tell(history, learned, world)
        learned = self._count_losses(history, learned, world)
        self._record.update(lambda _: learned)
        plan = decide(self._spec, world, learned, self._spent(learned, world.seen_at))
        failures = self._actor.act(plan, world)
        if plan.outcome is not None:
            self._record.update(
                lambda h: replace(h, outcome=plan.outcome.value if plan.outcome else "", reason=plan.reason)
            )
        return Pass(world, plan, failures)

    def _count_losses(self, before: History, after: History, world: World) -> History:
        """
        Count a preemption once: when the newest incarnation is first seen in a terminal state.
        """
        node = current_node(world, after)
        if node is None or node.state not in TERMINAL:
            return after
        key = f"node:{after.incarnation}:{node.state.name.lower()}"
        if key in before.sightings:
            return after
        text = f"TPU {node.name} is {node.state.name}"
        self._sink(Event(world.seen_at, "preempted", text, {"incarnation": node.incarnation}))
        return replace(after, preemptions=after.preemptions + 1)

    def _tell(self, before: History, after: History, world: World) -> None:
        """
        Say what is news: a ready node, a refusal, an operation that ended.
        """
        key = f"node:{after.incarnation}:ready"
        if key in after.sightings and key not in before.sightings:
            text = f"TPU of incarnation {after.incarnation} is READY in {after.zone}"
            self._sink(Event(world.seen_at, "ready", text, {"incarnation": after.incarnation}))
        for refusal in after.refusals[len(before.refusals) :]:
            text = f"refused in {refusal.zone} ({refusal.retry.value}): {refusal.message}"
            self._sink(Event(world.seen_at, "refused", text, {"zone": refusal.zone}))


def blind(result: Pass) -> Unknown | None:
    """
    Return what the pass could not see for a reason that waiting does not cure, or None.
    """
    from orchestrator.errors import Retry

    sights = (result.world.nodes, result.world.vm, result.world.bucket)
    return next((s for s in sights if isinstance(s, Unknown) and s.retry is Retry.PERMANENT), None)
