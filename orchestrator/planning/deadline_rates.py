"""What the rules of a deadline weigh: prices of spot and of on demand in each zone, and how often spot is there."""

from dataclasses import dataclass

from orchestrator.domain.capacity import Place
from orchestrator.domain.node_price import Prices
from orchestrator.domain.observation import Node, World
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.planning.deadline import share_of

SPOT_PRICE = 0.4
"""Price of spot where on demand costs 1, if one is unknown; the tables say 0.3 to 0.5 for most types."""


def share_in(one: Place, granted: int, vain: int) -> float:
    """Return how often spot can be had in a zone: by its hours with and without, else by all TPUs so far."""
    with_one, without = sum(hour[1] for hour in one.hours), sum(hour[2] for hour in one.hours)
    if not with_one + without:
        return share_of(granted, granted + vain)
    return share_of(with_one, with_one + max(without, vain))


@dataclass(frozen=True)
class Rate:
    """Hold USD per hour of a TPU in one zone, with the traffic between it and a bucket elsewhere."""

    spot: float
    on_demand: float


def rates(spec: Spec, world: World, record: Record) -> dict[str, Rate]:
    """
    Return the prices of each zone; one that is not in the table has those of another one.

    Where nothing is known only their ratio counts: what is compared is always the one with the other.
    """
    kind = record.node.type or spec.tpu.type
    found = {zone: _rate(world.prices, kind, zone) for zone in spec.tpu.zones}
    other = next((rate for rate in found.values() if rate is not None), Rate(SPOT_PRICE, 1.0))
    return {zone: rate or other for zone, rate in found.items()}


def _rate(prices: Prices, kind: str, zone: str) -> Rate | None:
    price, way = prices.tpu(kind, zone), prices.egress_hour(zone)
    dear = price.ondemand or (price.spot / SPOT_PRICE if price.spot else None)
    if dear is None:
        return None
    return Rate((price.spot or dear * SPOT_PRICE) + way, dear + way)


def on_demand_usd(spec: Spec, world: World, record: Record, node: Node | None) -> float:
    """Return the price of on demand where the TPU is, or else where the file's first zone is."""
    known = rates(spec, world, record)
    return known.get(node.zone if node else "", known[spec.tpu.zones[0]]).on_demand
