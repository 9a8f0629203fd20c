"""
Many deployments in one process: the product's own loops over them, through Google's TPU client.

Stood in for are the bucket of each deployment, which is kept in memory and costs next to nothing here, and the
clock, which jumps.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.scale.zones import ENDPOINT, PROJECT, ZONES, Zones, name_of
from orchestrator.clock import VirtualClock
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.bucket.object_names import HEARTBEAT
from orchestrator.domain import names
from orchestrator.domain.lease import Holder
from orchestrator.domain.observation import Absent, Bucket, Present
from orchestrator.domain.ports import Cloud, CloudAccount, StoredObject
from orchestrator.domain.record import Record
from orchestrator.domain.spec import JobSpec, Spec, TpuSpec
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.lease.lease_object import Lease
from orchestrator.engine.loop.loop import Loop
from orchestrator.engine.loop.many_loops import ManyLoops, Member
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.pricing.cost_so_far import cost_so_far
from orchestrator.threads import Inline
from tests.kit.records import record_of

NOW = 1_800_000_000.0
POLL = 15.0
HEARTBEAT_BODY = b'{"incarnation": 1, "worker": 0, "phase": "run", "bundle": "%s", "step": 10}' % (b"b" * 64)


def nodes_in(zones: Zones) -> TpuNodes:
    """Return the product's way to the nodes, with *zones* in place of Google."""
    return TpuNodes(Clients(CloudSettings(project=PROJECT, endpoint=ENDPOINT, adapter=zones)))


class ReportingBucket:
    """The objects of one bucket; the one worker's report is always of this moment."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._objects: dict[str, StoredObject] = {}
        self.write(f"{HEARTBEAT}1/0", HEARTBEAT_BODY)

    def read(self, name: str, *_: Any, **__: Any) -> StoredObject | None:
        """Return an object; a report has just been written."""
        found, now = self._objects.get(name), self._clock.now()
        if found is None or not name.startswith(HEARTBEAT):
            return found
        return replace(found, updated=now, generation=int(now))

    def list(self, prefix: str, *_: Any) -> list[StoredObject]:
        """Return the objects below *prefix*."""
        found = (self.read(name) for name in self._objects if name.startswith(prefix))
        return [one for one in found if one is not None]

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """Write an object and return its generation."""
        generation = self._objects[name].generation + 1 if name in self._objects else 1
        self._objects[name] = StoredObject(name, len(data), generation, self._clock.now(), data)
        return generation


class ManyDeployments:
    """Deployments, each with one node that runs its job, and the loops over all of them."""

    def __init__(self, count: int, folder: Path) -> None:
        self.clock, self._folder = VirtualClock(NOW), folder
        self._memory = ReportingBucket(self.clock)  # the zones that all have tried
        self._catalog = load_catalog()
        self.zones = Zones(count)
        lists = ZoneLists(3.0, self.clock.monotonic)
        settings = CloudSettings(project=PROJECT, endpoint=ENDPOINT, adapter=self.zones, lists=lists)
        self._clients = Clients(settings)
        tpu = TpuSpec(type="v5litepod-8", zones=ZONES, runtime="v2-alpha-tpuv5-lite")
        self._base = Spec(name="d", tpu=tpu, vm="none", job=JobSpec(command="python train.py"))
        members = [Member(name_of(number), self._passes(number)) for number in range(count)]
        self.loops = ManyLoops(self.clock, POLL, members, _unexpected)

    def turn(self) -> int:
        """Let the time of a poll pass and do what is due then; return how many deployments had their turn."""
        self.clock.advance(POLL)
        return self.loops.tick(Inline())

    def _passes(self, number: int) -> Any:
        spec = replace(self._base, name=name_of(number))
        bucket, account = (
            ReportingBucket(self.clock),
            CloudAccount(PROJECT, "1-compute@developer.gserviceaccount.com"),
        )
        away: Any = Away(spec)
        cloud = Cloud(account, away, away, TpuNodes(self._clients), away, bucket, away, self._memory)  # type: ignore[arg-type]
        folder = self._folder / spec.name
        folder.mkdir()
        records = RecordStore(folder / "record.json", cloud.store, spec.name, now=self.clock.now)
        records.current = records._saved = _record(ZONES[number % len(ZONES)])  # noqa: SLF001
        lease = Lease(cloud.store, self.clock, Holder(spec.name, "a", "watch", NOW))
        deployment = Deployment(
            spec, cloud, Blueprint(spec, account, lambda: "ssh-ed25519 A"), self._folder, records,
            Journal(folder / "journal.jsonl", cloud.store, self.clock), lease, self.clock, lambda _: None,
            lambda record, at: cost_so_far(spec, self._catalog, record, at).known_usd,
        )  # fmt: skip
        return Loop(deployment).passes(lambda _: False)


class Away:
    """Stand in for what a steady deployment without a VM only looks at: its bucket."""

    def __init__(self, spec: Spec) -> None:
        bucket = names.bucket_name(spec, PROJECT)
        self._bucket = Bucket(bucket, "us-central1", {names.DEPLOYMENT_LABEL: spec.name})

    def observe(self, name: str, *_: Any) -> Any:
        """Return the bucket."""
        return Present(self._bucket) if name == self._bucket.name else Absent()


def _unexpected(member: Member, end: object) -> None:
    raise RuntimeError(f"{member.name} ended: {end!r}")


def _record(zone: str) -> Record:
    return record_of(
        serial=1, started_at=NOW - 2000, incarnation=1, zone=zone, accepted=True, requested_at=NOW - 1000,
        zones_used=(zone,), bucket_observed=True, bucket_ready=True, bundle="b" * 64, agent="a" * 64,
        uploaded=f"{'b' * 64}:{'a' * 64}", pushed="b" * 64, first_seen={"node:1:ready": NOW - 900},
    )  # fmt: skip
