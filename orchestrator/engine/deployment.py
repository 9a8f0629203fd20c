"""One deployment with everything that acts on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.domain.events import Sink
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.ports import Cloud
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.journal import Journal
from orchestrator.engine.lease_object import Lease
from orchestrator.engine.record_store import RecordStore
from orchestrator.planning.create_budget import CreateBudget, Unlimited


def any_plan(_: Plan) -> None:
    """Approve every plan."""


@dataclass(frozen=True)
class Deployment:
    """
    Hold the parts that a pass needs.

    *bundles* is the folder of built bundles and agents. *spent* estimates the cost up to a time in USD.
    *approve* raises when a plan must not be carried out. *create_budget* is shared with other deployments.
    *store_events* puts what *sink* has taken into the bucket now, not at the end of the pass. *only* names
    the kinds of things that a pass may make, *stays* those that it leaves as they are.
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
    spent: Callable[[Record, float], float]
    approve: Callable[[Plan], None] = any_plan
    create_budget: CreateBudget = field(default_factory=Unlimited)
    store_events: Callable[[], None] = lambda: None
    only: frozenset[Kind] = frozenset(Kind)
    stays: frozenset[Kind] = frozenset()

    @property
    def bucket(self) -> str:
        """Return the bucket's name."""
        return self.blueprint.bucket
