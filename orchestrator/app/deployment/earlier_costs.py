"""Keep the costs of deployments that were deleted with their data, which held their records."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session, open_session
from orchestrator.app.this_computer.state_folders import is_known, state_folder
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.record import Record
from orchestrator.domain.status import DeploymentState
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.engine.records.record_format import adapter
from orchestrator.errors import NotFoundError, TpuctlError, UsageError
from orchestrator.pricing.cost_breakdown import CostBreakdown

COSTS_FILE = ".bills.json"
"""Suffix of the file beside a deployment's folder that keeps its cost when the folder is deleted."""
MAX_EARLIER_COSTS = 50
SCHEMA = 1
_SUMS = {
    "machines_upper_usd": "most_usd", "on_demand_usd": "ondemand_usd", "to_ttl_upper_usd": "to_ttl_most_usd",
    "ttl_remaining_s": "ttl_left", "budget_lasts_s": "budget_lasts", "usd_hour": "rate_usd", "unpriced": "unknown",
}  # fmt: skip
_ITEM = {"machines_count": "machines", "machine_seconds": "seconds", "on_demand_usd": "ondemand_usd"}
_LINE = {"on_demand_usd": "ondemand_usd", "upper_usd": "most_usd"}
"""Fields of a cost, of its items and of its prices that have another key in the file."""


@dataclass(frozen=True)
class Cost:
    """
    The cost of a deployment so far, and its state.

    *deleted_at* is when it was deleted with its data, None while it exists. *earlier* are deleted deployments
    of the same name, the newest last.
    """

    name: str
    preemptions: int
    breakdown: CostBreakdown
    deleted_at: float | None = None
    earlier: tuple["Cost", ...] = ()
    state: DeploymentState = DeploymentState.DELETED

    @property
    def deleted_day(self) -> str:
        """Return the day of the deletion in UTC, as 2026-11-28."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.deleted_at or 0.0))

    @property
    def deleted_text(self) -> str:
        """Return that the data was deleted on purpose, and on which day."""
        return f"`tpuctl down --delete-data` deleted the data of {self.name} on {self.deleted_day}"

    def as_dict(self) -> dict[str, Any]:
        """Return the cost as in `--json`."""
        body = asdict(self.breakdown)
        prices, zones = body.pop("prices"), body.pop("zones")
        return {
            "name": self.name,
            "state": self.state.value,
            "preemptions": self.preemptions,
            **body,
            "usd_by_zone": zones,
            "upper_usd": self.breakdown.upper_usd,
            "preemptions_usd": self.breakdown.preemptions_usd,
            "saved_usd": self.breakdown.saved_usd,
            "lower_saved_usd": self.breakdown.lower_saved_usd,
            "price": {
                "lines": [line.as_dict() for line in self.breakdown.prices.lines],
                "dates": dict(prices["dates"]),
            },
            "deleted_at": self.deleted_at,
            "earlier": [{"usd": one.breakdown.usd, "deleted_at": one.deleted_at} for one in self.earlier],
        }


def keep_cost(session: Session, breakdown: CostBreakdown) -> None:
    """Store the cost of a deployment on this computer before its data, and thus its record, is deleted."""
    cost = Cost(session.spec.name, session.records.current.node.preemptions, breakdown, session.clock.now())
    newest = (*earlier_costs(session), cost)[-MAX_EARLIER_COSTS:]
    earlier = [
        {"deleted_at": one.deleted_at, "preemptions": one.preemptions,
         "spending": _stored(adapter(CostBreakdown).dump_python(one.breakdown, mode="json"))}
        for one in newest
    ]  # fmt: skip
    write_private(_costs_path(session.folder), bytes_with_checksum({"schema": SCHEMA, "bills": earlier}))


def _stored(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored form of a cost."""
    return _renamed(body, _SUMS, _ITEM, _LINE)


def _loaded(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored cost by the names of our fields."""
    return _renamed(body, *({key: field for field, key in one.items()} for one in (_SUMS, _ITEM, _LINE)))


def _renamed(
    body: Mapping[str, Any], sums: Mapping[str, str], item: Mapping[str, str], line: Mapping[str, str]
) -> dict[str, Any]:
    def rows(found: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{names.get(key, key): value for key, value in row.items()} for row in found]

    prices = {**body["prices"], "lines": rows(body["prices"]["lines"], line)}
    return {**rows([body], sums)[0], "items": rows(body["items"], item), "prices": prices}


def earlier_costs(session: Session) -> tuple[Cost, ...]:
    """Return the costs of deleted deployments of this name, the newest last."""
    return _costs_in(_costs_path(session.folder))


def _costs_path(folder: Path) -> Path:
    return folder.with_name(folder.name + COSTS_FILE)


def every_earlier_cost(cloud: str, name: str) -> tuple[Cost, ...]:
    """Return the costs of deleted deployments of a name in all projects of this computer, the newest last."""
    paths = state_folder(cloud).glob(f"*/*{COSTS_FILE}")
    found = (cost for path in paths if path.name == name + COSTS_FILE for cost in _costs_in(path))
    return tuple(sorted(found, key=lambda cost: cost.deleted_at or 0.0))


def _costs_in(path: Path) -> tuple[Cost, ...]:
    try:
        body = verified(path.read_bytes())
        name = path.name.removesuffix(COSTS_FILE)
        return tuple(
            Cost(
                name, int(one["preemptions"]),
                _deleted(adapter(CostBreakdown).validate_python(_loaded(one["spending"]))),
                float(one["deleted_at"]),
            )
            for one in {SCHEMA: body["bills"]}[body["schema"]]
        )  # fmt: skip
    # Damaged, or of another version. Earlier costs affect nothing, so no command fails because of them.
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def last_cost(session: Session, record: Record) -> Cost | None:
    """Return the cost of the deleted deployment if nothing of the name was started since, else None."""
    if record.started_at or record.spans:
        return None
    return next(reversed(earlier_costs(session)), None)


def _deleted(cost: CostBreakdown) -> CostBreakdown:
    """Return what it has cost, with nothing that exists or goes on: the sum is from before the deletion."""
    return replace(
        cost, usd_hour=0.0, upper_usd_hour=0.0, ttl_remaining_s=None, to_ttl_usd=None, to_ttl_upper_usd=None,
        budget_lasts_s=None,
    )  # fmt: skip


def open_named(
    choice: Choice, name: str | None, reporter: Reporter, to: str, *, forgiving: bool = False,
    only_observes: bool = False,
) -> Session:  # fmt: skip
    """
    Open a session like `open_session`.

    Raise NotFoundError for a name of which only costs are left: there is nothing *to* do.
    """
    try:
        return open_session(choice, name, reporter, forgiving=forgiving, only_observes=only_observes)
    except UsageError as error:
        # A stored spec that cannot be read, or one in each of two projects, may be of machines that exist.
        if name and not is_known(choice.cloud, name):
            refuse_deleted(every_earlier_cost(choice.cloud, name), to, error)
        raise


@contextmanager
def naming_deletion(session: Session, to: str) -> Iterator[None]:
    """Replace a NotFoundError from the block by one that says that the data was deleted, if it was."""
    try:
        yield
    except NotFoundError as error:
        cost = last_cost(session, session.records.current)
        refuse_deleted((cost,) if cost else (), to, error)
        raise


def refuse_deleted(earlier: Sequence[Cost], to: str, error: TpuctlError) -> None:
    """Raise NotFoundError if the last of *earlier* says that the data was deleted on purpose, not *error*."""
    if not earlier:
        return
    raise NotFoundError(
        f"there is nothing to {to}: {earlier[-1].deleted_text}",
        hint=f"`tpuctl cost {earlier[-1].name}` shows what it cost; `tpuctl up` trains again",
        changed="nothing was written" if to == "fetch" else "nothing was changed",
    ) from error  # fmt: skip
