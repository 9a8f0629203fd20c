"""Sum up what a deployment has cost and for what; its bill is kept after its data is deleted."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.app.choice import Choice
from orchestrator.app.expired import sweep_expired
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session, open_session
from orchestrator.app.state_folders import state_folder
from orchestrator.app.status import observe_now
from orchestrator.contract.object_names import CACHES
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.names import is_given_back
from orchestrator.domain.observation import Present
from orchestrator.domain.record import Record
from orchestrator.engine.atomic_files import write_atomically
from orchestrator.engine.heartbeats import read_heartbeats
from orchestrator.engine.record_format import adapter
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.pricing.spending import Spending, StoredAmount, spending

BILLS = ".bills.json"
"""Suffix of the file beside a deployment's folder that keeps its bills when the folder is deleted."""
MOST_BILLS = 50
SCHEMA = 1


@dataclass(frozen=True)
class Cost:
    """
    The cost of a deployment so far.

    *deleted_at* is when it was deleted with its data, None while it exists. *earlier* are deleted deployments
    of the same name, the newest last.
    """

    name: str
    preemptions: int
    spending: Spending
    deleted_at: float | None = None
    earlier: tuple["Cost", ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the cost as in `--json`."""
        body = asdict(self.spending)
        prices = body.pop("prices")
        return {
            "name": self.name,
            "preemptions": self.preemptions,
            **body,
            "wasted_usd": self.spending.wasted_usd,
            "saved_usd": self.spending.saved_usd,
            "price_dates": dict(prices["dates"]),
            "hourly": [line.as_dict() for line in self.spending.prices.lines],
            "deleted_at": self.deleted_at,
            "earlier": [{"usd": one.spending.usd, "deleted_at": one.deleted_at} for one in self.earlier],
        }


def cost_of(choice: Choice, name: str | None, reporter: Reporter) -> Cost:
    """Observe a deployment once and sum up its cost; a deleted one is taken from its stored bill."""
    try:
        session = open_session(choice, name, reporter)
    except UsageError:
        # Other commands need the deployment itself; only this one finds a deleted deployment by its name.
        bills = _every_bill(choice.cloud, name) if name else ()
        if not bills:
            raise
        return _with_earlier(bills[-1], bills[:-1])
    sweep_expired(session)
    bills = read_bills(session)
    record = session.records.current
    if bills and not (record.started_at or record.spans):
        return _with_earlier(bills[-1], bills[:-1])
    with reporter:
        # Up to this observation; machines deleted since are known from the record only.
        now = observe_now(session)
        # An adopted bucket holds objects of others, whose storage is not this deployment's cost.
        bucket = now.world.bucket
        lent = session.spec.bucket.adopt or (
            isinstance(bucket, Present) and is_given_back(bucket.value.labels)
        )
        ours = isinstance(bucket, Present) and not lent
        stored = _stored(session) if ours else ()
        spent = spending_of(session, now.record, now.world.observed_at, stored)
    return Cost(session.spec.name, now.record.node.preemptions, spent, earlier=bills)


def spending_of(
    session: Session, record: Record, now: float, stored: tuple[StoredAmount, ...] = ()
) -> Spending:
    """Return the cost of all incarnations, including deleted ones."""
    found = read_heartbeats(session.cloud.store, None)
    beats = found.value if isinstance(found, Present) else ()
    return spending(session.spec, session.catalog, record, beats, now, stored)


def keep_bill(session: Session, spent: Spending) -> None:
    """Store the cost of a deployment on this computer before its data, and thus its record, is deleted."""
    bill = Cost(session.spec.name, session.records.current.node.preemptions, spent, session.clock.now())
    newest = (*read_bills(session), bill)[-MOST_BILLS:]
    bills = [
        {"deleted_at": one.deleted_at, "preemptions": one.preemptions,
         "spending": adapter(Spending).dump_python(one.spending, mode="json")}
        for one in newest
    ]  # fmt: skip
    write_atomically(_bills_path(session.folder), bytes_with_checksum({"schema": SCHEMA, "bills": bills}))


def read_bills(session: Session) -> tuple[Cost, ...]:
    """Return the bills of deleted deployments of this name, the newest last."""
    return _bills(_bills_path(session.folder))


def _bills_path(folder: Path) -> Path:
    return folder.with_name(folder.name + BILLS)


def _every_bill(cloud: str, name: str) -> tuple[Cost, ...]:
    """Return the bills of a name in all projects of this computer, the newest last."""
    paths = state_folder(cloud).glob(f"*/*{BILLS}")
    found = (bill for path in paths if path.name == name + BILLS for bill in _bills(path))
    return tuple(sorted(found, key=lambda bill: bill.deleted_at or 0.0))


def _bills(path: Path) -> tuple[Cost, ...]:
    try:
        body = verified(path.read_bytes())
        name = path.name.removesuffix(BILLS)
        return tuple(
            Cost(
                name, int(one["preemptions"]), adapter(Spending).validate_python(one["spending"]),
                float(one["deleted_at"]),
            )
            for one in {SCHEMA: body["bills"]}[body["schema"]]
        )  # fmt: skip
    # Damaged, or of another version. Old bills affect nothing, so no command fails because of them.
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def _with_earlier(bill: Cost, earlier: tuple[Cost, ...]) -> Cost:
    return Cost(bill.name, bill.preemptions, bill.spending, bill.deleted_at, earlier)


def _stored(session: Session) -> tuple[StoredAmount, ...]:
    """Return what the bucket stores now; report a failure and return nothing."""
    try:
        return tuple(
            StoredAmount(one.size / 2**30, one.updated, one.name.startswith(CACHES))
            for one in session.cloud.store.list("")
        )
    except TpuctlError as error:
        session.reporter.say(f"storage is left out: {error.message}")
        return ()
