"""
One simulation: a cloud, its machines, a network, and controllers that come and go on computers.

The only file here that knows how a controller is put together; the rest drives its loop.
"""

import hashlib
import shutil
import tempfile
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from random import Random
from unittest.mock import patch

from google.api_core.retry import retry_base, retry_unary

from orchestrator.clock import SteadyClock
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.bucket import object_names
from orchestrator.domain import names
from orchestrator.domain.lease import RENEWAL, Holder
from orchestrator.domain.ports import MAX_BYTES, CloudAccount
from orchestrator.emulator.client import InProcess
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.delete import Deletion
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.lease import lease_object
from orchestrator.engine.lease.lease_object import Lease, take_record
from orchestrator.engine.loop import loop
from orchestrator.engine.loop.loop import Loop
from orchestrator.engine.publish.event_log import EventLog
from orchestrator.engine.reconcile.artifacts import agent_file, bundle_file
from orchestrator.engine.records import atomic_files, journal, record_store
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_format import decode
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.pricing.cost_so_far import cost_so_far
from orchestrator.threads import one_after_the_other
from tests.kit.quick_clients import QUICK
from tests.kit.wire import PROJECT, WIRE, wired_cloud
from tests.memory_disk import MEMORY
from tests.planning.planning_kit import a_spec
from tests.simulation.invariants import own_fault
from tests.simulation.machines import KEY, SimulatedMachines, SimulatedSsh
from tests.simulation.virtual_threads import HostClock, Scheduler, Threading, VirtualProcess, sleep
from tests.simulation.wire import SimulatedNetwork

CONTENT = {"bundle": b"the user's code", "agent": b"the agent"}
DIGEST = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
STRETCH = (0, 0, 0, 0, 600, 600, 3600, 3600, 3600, 6 * 3600, 6 * 3600, 6 * 3600)
"""Seconds by which the pauses of a settled day grow: the loop is observed at many moments, not every 15 s."""
QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
shared_catalog = cache(load_catalog)
decoded = lru_cache(decode)


class Simulation:
    """Everything of one run. *trace*, if any, gets one line for each call and event; *quiet* ends all faults."""

    def __init__(self, case, trace):
        self.case, self._trace = case, trace
        self.scheduler = Scheduler()
        self.start = self.scheduler.now()
        self.folder = Path(tempfile.mkdtemp(prefix="tpuctl-simulation-", dir=MEMORY))
        self.random = Random(f"world {case.seed}")
        self.quiet = self.stretched = False
        self.own_fault = ""
        self.processes, self.passes = [], 0
        self.events = Counter()
        self.machines = SimulatedMachines(self.scheduler, Random(f"machines {case.seed}"), DIGEST)
        latency = PROFILES["realistic" if case.realistic else "scaled"]
        zones = {zone for d in case.deployments for zone in d.spec["tpu__zones"]}
        quotas = {(QUOTA, zone): case.quota for zone in zones} if case.quota else {}
        settings = LocalCloudSettings(latency=latency, seed=case.seed, quotas=quotas, fresh_project=False)
        inside = InProcess(self.scheduler.clock, settings, self.machines)
        self.cloud, self.storage = inside.cloud, inside.storage
        self.machines.cloud, self.machines.storage = self.cloud, self.storage
        self.network = SimulatedNetwork(
            self.scheduler, inside, self._acting,
            rates=case.rates, random=Random(f"wire {case.seed}"), observed=self._called,
        )  # fmt: skip
        self.network.heartbeat_lists = self.machines.report
        self.read_retry = 5.0 if case.retries else 0.0
        self.specs, self.on_call = {}, lambda process, method, request, status, fault: None
        for one in case.deployments:
            spec = a_spec(project=PROJECT, **one.spec)
            self.specs[one.name] = spec
            self.machines.buckets[one.name] = names.bucket_name(spec, PROJECT), names.prefix_of(spec)
            if spec.bucket.adopt and spec.bucket.name not in self.storage.buckets._buckets:
                place = {"name": spec.bucket.name, "location": names.home_region(spec).upper()}
                self.storage.buckets.create(PROJECT, place)

    def now(self):
        return self.scheduler.now()

    def say(self, text):
        """Write a line of the trace."""
        self.own_fault = self.own_fault or own_fault(text)
        if self._trace is not None:
            self._trace(f"{self.now() - self.start:11.3f} {text}")

    def calm(self):
        """End all faults."""
        self.quiet = self.network.quiet = True
        self.machines.unreachable.clear()
        for gang in self.machines.gangs.values():
            gang.silent = False
        self.cloud.kernel.settings = replace(self.cloud.kernel.settings, stockouts=frozenset())

    def _acting(self):
        return self.scheduler.current and self.scheduler.current.process

    def _called(self, process, method, request, status, fault):
        if self._trace is not None:
            path = request.path.rpartition("/")[2] if request.method == "GET" else request.path
            self.say(f"{process.name} {method} {path} {status} {fault}".rstrip())
        self.on_call(process, method, request, status, fault)

    # What is there, as only a god sees it.

    def nodes(self, deployment):
        """Return the deployment's nodes."""
        self.cloud.tick()
        return [n for n in self.cloud.kernel.state.nodes.values() if n.name.startswith(f"{deployment}-tpu-")]

    def queued(self, deployment):
        """Return the deployment's queued resources."""
        self.cloud.tick()
        return [q for q in self.cloud.kernel.state.queued.values() if q.name.startswith(f"{deployment}-tpu-")]

    def vm(self, deployment):
        """Return the deployment's VM, or None."""
        self.cloud.tick()
        vms = self.cloud.kernel.state.instances.values()
        return next((v for v in vms if v.name == f"{deployment}-vm"), None)

    def bucket(self, deployment):
        """Return the deployment's bucket."""
        return self.machines.bucket_of(deployment)

    def stored_history(self, deployment):
        """Return the newest record that a fresh controller on any computer would find, or None."""
        copies = [p.read_bytes() for p in sorted(self.folder.glob(f"{deployment}-*/record.json"))]
        held = self.bucket(deployment).get(object_names.RECORD)
        copies += [held] if held is not None else []
        return max((decoded(c, deployment) for c in copies), key=lambda record: record.serial, default=None)

    @contextmanager
    def running(self):
        """Stand for what this process reaches: its network, clock, threads, locks and ids."""
        WIRE.cloud = self.network
        ids = Random(f"ids {self.case.seed}")
        threads = Threading(self.scheduler)
        clock = RetryTime(self.scheduler)
        with ExitStack() as stack:
            stack.enter_context(one_after_the_other())
            for module in (lease_object, record_store, journal, loop):
                stack.enter_context(patch.object(module, "threading", threads))
            for module, name, value in (
                (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
                (atomic_files.os, "fsync", lambda _: None),  # A kill of the process loses nothing unsynced.
                (record_store, "write_private", self._on_disk(atomic_files.write_private)),
                (journal, "append_synced", self._on_disk(atomic_files.append_synced)),
                (retry_unary, "time", clock),
                (retry_base, "random", ids),
                *QUICK,
            ):
                stack.enter_context(patch.object(module, name, value))
            yield self
        shutil.rmtree(self.folder, ignore_errors=True)

    def _on_disk(self, write):
        def written(path, data):
            process = self.scheduler.current.process
            process.step()
            if path.suffix == ".jsonl":
                self.say(f"{process.name} writes {data.decode().strip()}")
            write(path, data)

        return written


class RetryTime:
    """Time for the retries of Google's clients: their pauses are virtual too."""

    def __init__(self, scheduler):
        self.monotonic = scheduler.clock.monotonic
        self.sleep = lambda seconds: sleep(scheduler, seconds)


class LeaseStore:
    """The store as the lease sees it: renewals take the short way."""

    def __init__(self, store, simulation):
        self._store, self._simulation = store, simulation
        self.read, self.list, self.delete = store.read, store.list, store.delete

    def write(self, name, data, if_generation=None):
        if name != object_names.LEASE or not if_generation:
            return self._store.write(name, data, if_generation)
        return self._simulation.network.renew(
            self._store._name, self._store._prefix + name, data, if_generation
        )


class Ears:
    """The store as the reader of the wake object sees it, without the reads that would find nothing."""

    def __init__(self, store, bucket, network):
        self._store, self._bucket, self._network, self._last = store, bucket, network, None

    def list(self, prefix, most=None):
        self._network.overhear(self._bucket.name)
        return self._bucket.listed(prefix)[:most]

    def read(self, name, limit=MAX_BYTES):
        generation = self._bucket.generation(name)
        if generation is None:
            return None
        if self._last is None or (self._last.name, self._last.generation) != (name, generation):
            self._last = self._store.read(name, limit=limit)
        return self._last


class SimulatedController:
    """One process of tpuctl for one deployment: what `app/deployment/session.py` puts together."""

    def __init__(self, simulation, spec, process: VirtualProcess, command, *, forgiving=False):
        self.simulation, self.spec, self.process = simulation, spec, process
        self.clock = SteadyClock(HostClock(process, self._longer))
        self.folder = simulation.folder / f"{spec.name}-{process.computer}"
        self.events, self.failures = [], []
        remote = SimulatedSsh(simulation.machines, process, self._ssh_fails)
        account = CloudAccount(PROJECT, simulation.cloud.settings.default_service_account)
        self.cloud = cloud = wired_cloud(
            spec, remote, account=account.default_service_account, read_retry=simulation.read_retry
        )
        self.records = RecordStore(self.folder / "record.json", cloud.store, spec.name, now=self.clock.now)
        yields = ("up", "down") if command == "watch" else ()
        computer, now = process.computer, self.clock.now()
        me = Holder(uuid.uuid4().hex, computer, command, now, pid=1, boot=computer, yields=yields)
        process.holder = me.id
        self.lease = Lease(LeaseStore(cloud.store, simulation), self.clock, me, self._dead_here)
        self.forgiving = forgiving
        self.journal = Journal(self.folder / "journal.jsonl", cloud.store, self.clock)
        self.sink = EventLog(cloud.store, self._event, lambda: self.records.current.bucket.observed)
        bundles = simulation.folder / "bundles"
        for name, path in (("bundle", bundle_file), ("agent", agent_file)):
            place = path(bundles, DIGEST[name])
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(CONTENT[name])
        self.deployment = Deployment(
            spec=spec, cloud=self.cloud, blueprint=Blueprint(spec, account, lambda: f"tpuctl:ssh-ed25519 {KEY}"),
            bundles=bundles, records=self.records, journal=self.journal, lease=self.lease, clock=self.clock,
            sink=self.sink, usd_so_far=self.usd_so_far, store_events=self.sink.flush,
        )  # fmt: skip

    def usd_so_far(self, record, now):
        """Return the estimated cost, as the command line does."""
        return cost_so_far(self.spec, shared_catalog(), record, now).known_usd

    def _longer(self, seconds):
        """
        Return by how much a wait of *seconds* grows.

        On a quiet day equal looks need not all be made. The lease's thread looks four times as often as it
        renews: the looks that would find nothing to do are left out.
        """
        process, looks = self.process, self.process.stretch
        first = self.simulation.scheduler.current is process.threads[0]
        process.stretch += self.simulation.stretched and first
        extra = STRETCH[min(looks, len(STRETCH) - 1)] if self.simulation.stretched else 0.0
        return extra if first else extra + seconds * (self._idle_looks(seconds) - 1)

    def _idle_looks(self, seconds):
        """Return how many looks it takes until the lease is to be renewed."""
        lease = self.lease
        if lease._generation is None or lease._clock_set_at is None:
            return 1
        return max(1, ceil((RENEWAL - (self.clock.monotonic() - lease._renewed)) / seconds))

    def _ssh_fails(self):
        return not self.simulation.quiet and self.simulation.random.random() < self.simulation.case.rates.ssh

    def _dead_here(self, holder):
        """Return whether a holder was a process of this computer that is dead, as its own kernel knows."""
        if holder.boot != self.process.computer:
            return False
        alive = [p for p in self.simulation.processes if not (p.dead or p.ended)]
        return holder.id not in {getattr(p, "holder", "") for p in alive}

    def _event(self, event):
        self.events.append(event)
        if event.kind not in {"waiting", "progress"}:
            self.simulation.say(f"{self.process.name} # {event.kind}: {event.message}")

    @contextmanager
    def holding_lease(self):
        """Hold lease and record, as `Session.holding_lease` does."""
        self.lease.acquire()
        with self.lease.renewing():
            if self.forgiving:
                self.records.load(forgiving=True)
            else:
                take_record(self.lease, self.records)
            yield

    def loop(self, began):
        """Return the loop; *began* is called before each pass observes."""
        # Some live as one of many do, whose passes wait while nothing but a list can change their plans.
        loop = Loop(self.deployment, steady=self.simulation.case.seed % 4 == 3)
        loop._wake_object._store = Ears(
            self.cloud.store, self.simulation.bucket(self.spec.name), self.simulation.network
        )
        one_pass = loop.reconciler.one_pass

        def reported():
            began(self.process)
            return one_pass()

        loop.reconciler.one_pass = reported
        return loop

    def deletion(self):
        """Return what `down` does."""
        return Deletion(self.deployment)
