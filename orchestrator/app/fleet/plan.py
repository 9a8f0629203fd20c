"""Compute what a fleet costs and whether the project's quota allows it, without changes."""

from dataclasses import dataclass

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.fleet.queue import fleet_to_read
from orchestrator.app.fleet.sessions import FleetPrice
from orchestrator.domain.machines.tpu_quota import taken
from orchestrator.domain.observation import Present
from orchestrator.google.project_reader import ProjectReader
from orchestrator.planning.fleet.size import Fit, fit


@dataclass(frozen=True)
class FleetPlan:
    """The price, and the number of nodes within the quota; *unknown* says why that is not known."""

    price: FleetPrice
    fit: Fit | None
    quota: str
    unknown: str


def fleet_plan(choice: Choice, reporter: Reporter) -> FleetPlan:
    """Compare the fleet with the project's quota in its zones, and price it."""
    fleet = fleet_to_read(choice, reporter)
    spec, price = fleet.spec, fleet.price()
    found = taken(spec, fleet.head.catalog)
    if found is None:
        return FleetPlan(price, None, "", f"what {spec.tpu.type} counts against")
    each, quota = found
    limits = ProjectReader(fleet.head.clients).tpu_limits(quota.id, spec.tpu.zones)
    if not isinstance(limits, Present) or not limits.value:
        return FleetPlan(price, None, quota.id, getattr(limits, "message", "the quota of these zones"))
    return FleetPlan(price, fit(price.nodes, each, limits.value), quota.id, "")
