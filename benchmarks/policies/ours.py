"""
Replay tpuctl itself: the real loop, decisions, learning and acting on a light cloud with a clock that jumps.

Only what touches a network or a disk is replaced: the cloud's adapters, the record's file, journal and lease.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

from benchmarks.policies import peers
from benchmarks.policies.ledger import ReplayLedger
from benchmarks.policies.light_cloud import EPOCH, LightCloud, zone_name
from orchestrator.domain import names
from orchestrator.domain.observation import World
from orchestrator.domain.ports import NewNode
from orchestrator.domain.record import Record, race_to_win
from orchestrator.domain.spec import JobSpec, Spec, TpuSpec, WatchSpec
from orchestrator.domain.text.units import Duration, Until
from orchestrator.domain.updated import updated
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.loop.loop import Loop
from orchestrator.engine.reconcile import reconciler
from orchestrator.threads import one_after_the_other
from tests.kit.records import record_of


class Records:
    """Stand for the deployment record; closed spans are dropped where only a bill would need them."""

    disk = ""

    def __init__(self, record: Record, *, spans: bool) -> None:
        self.current = record
        self._spans = spans

    def update(self, change: Callable[[Record], Record]) -> Record:
        """Accept a change."""
        changed = change(self.current)
        spans = tuple(s for s in changed.spans if self._spans or s.until is None)
        self.current = updated(changed, spans=spans)
        return self.current

    update_later = update

    def flush(self) -> None:
        """Save nothing: a replay is never killed."""

    def rest(self) -> float:
        """Ask for no pause."""
        return 0.0


class ScriptlessBlueprint:
    """Stand for the blueprint: new nodes without scripts."""

    bucket = "replay"

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def new_node(self, record: Record, zone: str, incarnation: int) -> NewNode:
        """Describe the node of one incarnation."""
        name = names.node_name(self.spec, incarnation)
        marks = names.labels(self.spec, "tpu", incarnation, race_to_win(record, incarnation))
        spot = incarnation not in record.deadline.on_demand
        return NewNode(name, zone, self.spec.tpu.type, "", spot, True, marks, {}, "", ())


def a_spec(
    zones: tuple[str, ...], strategy: Literal["failover", "race"], work: int | None = None, due: float = 0.0
) -> Spec:
    """
    Return a deployment over *zones* with the settings that a file has by default.

    With *work*, in steps of a second, its job ends, and is due *due* seconds after its start.
    """
    return Spec(
        name="replay",
        tpu=TpuSpec(
            type="v5litepod-8",
            zones=zones,
            runtime="v2-alpha-tpuv5-lite",
            across_regions=True,
            strategy="race-regions" if strategy == "race" else strategy,
        ),
        job=JobSpec("python train.py", target_steps=work),
        vm="none",
        watch=WatchSpec(
            ttl=Duration(3650 * 86400), deadline=None if work is None else Until(f"{due / 3600:.4f}h")
        ),
    )


def deployment(cloud: LightCloud) -> Deployment:
    """Put the stand-ins together."""
    record = record_of(
        started_at=EPOCH,
        bucket_observed=True,
        bucket_ready=True,
        bundle="code",
        agent="agent",
        uploaded="code:agent",
        pushed="code",
    )
    lease = SimpleNamespace(token=1, keep=lambda: None, step_aside=lambda: None)
    journal = SimpleNamespace(intend=lambda *_, **__: "entry", result=lambda *_, **__: None, disk="")
    parts: dict[str, Any] = {
        "spec": cloud.spec,
        "cloud": cloud,
        "blueprint": ScriptlessBlueprint(cloud.spec),
        "bundles": None,
        # With a deadline the lifetimes of all TPUs so far are what is expected of the next one.
        "records": Records(record, spans=cloud.spec.watch.deadline is not None),
        "journal": journal,
        "lease": lease,
        "clock": cloud,
        "sink": lambda _: None,
        "usd_so_far": lambda *_: 0.0,
    }
    return Deployment(**parts)


class NoHistory:
    """Stand for the copy of the capacity history in the bucket: the record here is never lost."""

    def __init__(self, _: object) -> None:
        pass

    def recalled(self, record: Record, _: World) -> Record:
        """Know nothing better."""
        return record

    def keep(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def light_observations() -> Iterator[None]:
    """Let passes look at a light cloud directly, and act on it one call after the other."""

    def observe_light(cloud: LightCloud, _: Spec, record: Record, *__: object) -> World:
        return cloud.world(record)

    with (
        patch.object(reconciler, "observe", observe_light),
        patch.object(reconciler, "SharedCapacityHistory", NoHistory),
        one_after_the_other(),
    ):
        yield


def tpuctl(
    ledger: ReplayLedger,
    random: Random,
    *,
    strategy: Literal["failover", "race"],
    work: int | None = None,
) -> LightCloud:
    """
    Run the product over the whole market, or until *work* seconds of work are done; the market's end is due.

    Its zones are in the order of their prices on the first day.
    """
    trace, end = ledger.market.trace, ledger.market.end
    zones = tuple(zone_name(trace.zones[zone]) for zone in peers.by_price(ledger, 0.0))
    cloud = LightCloud(ledger, a_spec(zones, strategy, work, end))
    cloud.time = 0.0 if work else random.uniform(0.0, 15.0)

    with light_observations():
        parts = deployment(cloud)
        Loop(parts).run(lambda _: cloud.time >= end, lambda one: cloud.see(one.plan, parts.records.current))
    cloud.close()
    return cloud
