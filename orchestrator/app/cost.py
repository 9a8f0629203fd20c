"""Sum up what a deployment has cost and for what."""

from contextlib import suppress

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import Cost, earlier_costs, every_earlier_cost
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session, open_session
from orchestrator.app.status.status import observe_now, state_of, watcher_of
from orchestrator.contract.bucket.object_names import CACHES
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.names import is_given_back
from orchestrator.domain.observation import Present, World
from orchestrator.domain.record import Record
from orchestrator.engine.bucket.heartbeats import read_heartbeats
from orchestrator.errors import UNFORESEEN, TpuctlError, UsageError
from orchestrator.pricing.cost_breakdown import CostBreakdown, StoredAmount, cost_breakdown


def cost_of(choice: Choice, name: str | None, reporter: Reporter) -> Cost:
    """Observe a deployment once and sum up its cost; a deleted one is taken from its stored cost."""
    try:
        session = open_session(choice, name, reporter)
    except UsageError:
        # Other commands need the deployment itself; only this one finds a deleted deployment by its name.
        earlier = every_earlier_cost(choice.cloud, name) if name else ()
        if not earlier:
            raise
        return _with_earlier(earlier[-1], earlier[:-1])
    end_expired(session)
    earlier = earlier_costs(session)
    record = session.records.current
    if earlier and not (record.started_at or record.spans):
        return _with_earlier(earlier[-1], earlier[:-1])
    with reporter:
        # Up to this observation; machines deleted since are known from the record only.
        now = observe_now(session)
        stored = stored_now(session, now.world)
        cost = breakdown_of(session, now.record, now.world.observed_at, stored)
        state = state_of(session, now, watcher_of(session, now.world))
    return Cost(session.spec.name, now.record.node.preemptions, cost, earlier=earlier, state=state)


def breakdown_of(
    session: Session, record: Record, now: float, stored: tuple[StoredAmount, ...] = ()
) -> CostBreakdown:
    """Return the cost of all incarnations, including deleted ones."""
    return cost_breakdown(session.spec, session.catalog, record, _reports(session), now, stored)


def known_reports(session: Session) -> tuple[Heartbeat, ...]:
    """Return the last heartbeats of all incarnations for a deletion."""
    # Nothing that is unreadable may prevent it.
    with suppress(TpuctlError, *UNFORESEEN):
        return _reports(session) if session.records.current.spans else ()
    return ()


def known_cost(session: Session, reports: tuple[Heartbeat, ...] | None = None) -> CostBreakdown | None:
    """
    Return the total cost for a deletion, None if this computer knows of nothing billed.

    The heartbeats are read unless they are given as *reports*.
    """
    record = session.records.current
    # Neither unreadable reports nor a failing price calculation may prevent the deletion.
    with suppress(TpuctlError, *UNFORESEEN):
        if record.spans:
            found = _reports(session) if reports is None else reports
            return cost_breakdown(session.spec, session.catalog, record, found, session.clock.now())
    return None


def _reports(session: Session) -> tuple[Heartbeat, ...]:
    found = read_heartbeats(session.cloud.store, None)
    return found.value if isinstance(found, Present) else ()


def _with_earlier(cost: Cost, earlier: tuple[Cost, ...]) -> Cost:
    return Cost(cost.name, cost.preemptions, cost.breakdown, cost.deleted_at, earlier)


def stored_now(session: Session, world: World) -> tuple[StoredAmount, ...]:
    """Return what the bucket stores now; report a failure and return nothing."""
    bucket = world.bucket
    # An adopted bucket holds objects of others, whose storage is not this deployment's cost.
    if not isinstance(bucket, Present) or session.spec.bucket.adopt or is_given_back(bucket.value.labels):
        return ()
    try:
        return tuple(
            StoredAmount(one.size / 2**30, one.updated, one.name.startswith(CACHES))
            for one in session.cloud.store.list("")
        )
    except TpuctlError as error:
        session.reporter.say(f"storage is left out: {error.message}")
        return ()
