"""What a deployment has cost, and for what."""

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.app.choice import Choice
from orchestrator.app.expired import sweep_expired
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session, open_session
from orchestrator.app.status import observe_now
from orchestrator.domain.observation import Present
from orchestrator.engine.heartbeats import read_heartbeats
from orchestrator.errors import TpuctlError
from orchestrator.pricing.spending import Spending, StoredAmount, spending


@dataclass(frozen=True)
class Cost:
    """Hold what a deployment has cost up to now."""

    name: str
    preemptions: int
    spending: Spending

    def as_dict(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        body = asdict(self.spending)
        prices = body.pop("prices")
        return {
            "name": self.name,
            "preemptions": self.preemptions,
            **body,
            "wasted_usd": self.spending.wasted_usd,
            "price_dates": dict(prices["dates"]),
            "hourly": [line.as_dict() for line in self.spending.prices.lines],
        }


def cost_of(choice: Choice, name: str | None, reporter: Reporter) -> Cost:
    """Observe a deployment once and sum up what it has cost."""
    session = open_session(choice, name, reporter)
    sweep_expired(session)
    with reporter:
        # Counted up to this observation; machines that are gone by now are known from the record only.
        now = observe_now(session)
        # All incarnations: those that are gone have cost something too.
        found = read_heartbeats(session.cloud.store, None)
        beats = found.value if isinstance(found, Present) else ()
        # An adopted bucket holds objects of other people, whose storage is not this deployment's cost.
        ours = isinstance(now.world.bucket, Present) and not session.spec.bucket.adopt
        stored = _stored(session) if ours else ()
        spent = spending(session.spec, session.catalog, now.record, beats, now.world.observed_at, stored)
    return Cost(session.spec.name, now.record.node.preemptions, spent)


def _stored(session: Session) -> tuple[StoredAmount, ...]:
    """List what the bucket holds now; nothing when it cannot be listed, which is said."""
    try:
        return tuple(StoredAmount(one.size / 2**30, one.updated) for one in session.cloud.store.list(""))
    except TpuctlError as error:
        session.reporter.say(f"storage is left out: {error.message}")
        return ()
