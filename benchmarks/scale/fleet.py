"""
Many deployments in one process: what a pass does for each of them, with the product's own code.

A deployment's own bucket is not read here: its heartbeat is given. That is one list and one read for each
deployment, however many there are.
"""

from dataclasses import replace

from benchmarks.scale.zones import ENDPOINT, PROJECT, ZONES, Zones, name_of
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.names import DEPLOYMENT_LABEL
from orchestrator.domain.observation import Absent, Bucket, Heartbeat, Phase, Present, Sight, World
from orchestrator.domain.observation import Node as NodeSight
from orchestrator.domain.plan import Plan
from orchestrator.domain.record import Record
from orchestrator.domain.spec import JobSpec, Spec, TpuSpec
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.planning.decide import decide
from orchestrator.planning.update_record import learn
from orchestrator.pricing.bill import spent
from tests.kit.records import record_of

NOW = 1_800_000_000.0


def nodes_in(zones: Zones, lists: ZoneLists | None = None) -> TpuNodes:
    """Return the product's way to the nodes, with *zones* in place of Google."""
    settings = CloudSettings(project=PROJECT, endpoint=ENDPOINT, adapter=zones, lists=lists)
    return TpuNodes(Clients(settings))


class Fleet:
    """Deployments, each with one node that runs its job."""

    def __init__(self, count: int) -> None:
        tpu = TpuSpec(type="v5litepod-8", zones=ZONES, runtime="v2-alpha-tpuv5-lite")
        base = Spec(name="d", tpu=tpu, vm="none", job=JobSpec(command="python train.py"))
        self._catalog = load_catalog()
        self._specs = [replace(base, name=name_of(number)) for number in range(count)]
        self._histories = [_history(ZONES[number % len(ZONES)]) for number in range(count)]
        self._seconds = 0.0

    def one_pass(self, nodes: TpuNodes) -> list[Plan]:
        """Look, learn and decide for each deployment."""
        self._seconds += 10
        plans = []
        for number, spec in enumerate(self._specs):
            world = self._world(nodes.labelled(DEPLOYMENT_LABEL, spec.name, spec.tpu.zones), spec)
            record = self._histories[number] = learn(self._histories[number], world)
            usd = spent(spec, self._catalog, record, world.observed_at).known_usd
            plans.append(decide(spec, world, record, usd))
        return plans

    def _world(self, nodes: Sight[tuple[NodeSight, ...]], spec: Spec) -> World:
        now = NOW + self._seconds
        beat = Heartbeat(incarnation=1, worker=0, phase=Phase.RUN, updated=now, bundle="b", step=10)
        bucket = Bucket(f"tpuctl-{spec.name}", "us-central1")
        return World(Present(bucket), Absent(), nodes, Present((beat,)), observed_at=now)


def _history(zone: str) -> Record:
    return record_of(
        started_at=NOW - 2000, incarnation=1, zone=zone, accepted=True, requested_at=NOW - 1000,
        zones_used=(zone,), bucket_seen=True, bucket_ready=True, bundle="b", agent="a", uploaded="b:a",
        sightings={"node:1:ready": NOW - 900},
    )  # fmt: skip
