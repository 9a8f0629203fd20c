"""Bundle one deployment with the parts that act on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.domain.events import Sink
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.ports import Cloud
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.lease.lease_object import Lease
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.planning.tpu.create_budget import CreateBudget, Unlimited


def any_plan(_: Plan) -> None:
    """Approve every plan."""


@dataclass(frozen=True)
class Deployment:
    """
    The parts that a pass needs.

    *bundles* is the folder of built bundles and agents. *usd_so_far* returns the estimated cost in USD up to a
    time. *approve* raises if a plan must not be carried out. *create_budget* is shared with other
    deployments. *store_events* uploads the events of *sink* at once instead of at the end of the pass. *only*
    names the kinds of resources that a pass may create, *stays* those that it must not change.
    """

    spec: Spec
    cloud: Cloud
    blueprint: Blueprint
    bundles: Path
    records: RecordStore
    journal: Journal
    lease: Lease
    clock: Clock
    sink: Sink
    usd_so_far: Callable[[Record, float], float]
    approve: Callable[[Plan], None] = any_plan
    create_budget: CreateBudget = field(default_factory=Unlimited)
    store_events: Callable[[], None] = lambda: None
    only: frozenset[Kind] = frozenset(Kind)
    stays: frozenset[Kind] = frozenset()

    @property
    def bucket(self) -> str:
        """Return the name of the deployment's bucket."""
        return self.blueprint.bucket

    def lease_in_new_bucket(self) -> None:
        """Take the lease as soon as the bucket exists; return if it is held. Raise what `Lease.acquire` raises."""
        lease, records = self.lease, self.records
        if lease.token is not None:
            return
        # The write is a compare-and-swap: of two first commands, only one comes past it.
        if not records.in_bucket:
            records.flush()
        # From here on another computer could find the deployment in the bucket, so only the holder may act.
        lease.acquire()
        records.update_later(lambda record: replace(record, fence=lease.token or record.fence))
