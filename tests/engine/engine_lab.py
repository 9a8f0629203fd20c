"""
A deployment under a virtual clock: real engine, real adapters, official clients, local cloud in-process.

Only what has no counterpart in a simulation is stood in for: the machines (`ReportingMachines`: they publish host
keys and write heartbeats, as agents would) and the way to them (`Push`: it notes what was sent).
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from orchestrator.app.loop.watch import passes_to_the_end
from orchestrator.app.source.wanted import record_wanted
from orchestrator.app.up import Goal
from orchestrator.clock import SteadyClock, VirtualClock
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.lease import Holder
from orchestrator.domain.observation import NodeState
from orchestrator.emulator.client import InProcess
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.emulator.state.values.machine import NoMachines
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.delete import Deletion
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.lease.lease_object import Lease, take_record
from orchestrator.engine.loop.loop import Loop, run
from orchestrator.engine.outcome_errors import raise_outcome
from orchestrator.engine.publish.event_log import EventLog
from orchestrator.engine.reconcile.artifacts import agent_file, bundle_file
from orchestrator.engine.reconcile.reconciler import Reconciler
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import LeaseHeldError
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.engine.stand_ins import CONTENT, DIGEST, KEY, Push, ReportingMachines
from tests.kit.wire import PROJECT, WIRE, wired_cloud
from tests.planning.planning_kit import a_spec

ZONE, OTHER_ZONE = "europe-west4-b", "europe-west4-a"
QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
MUTATING = ("tpu.nodes.create", "tpu.nodes.delete", "compute.instances.insert", "compute.instances.start",
            "compute.instances.stop", "compute.instances.delete", "storage.buckets.insert",
            "storage.buckets.setIamPolicy", "storage.buckets.delete", "storage.buckets.patch",
            "tpu.queuedResources.create", "tpu.queuedResources.delete")  # fmt: skip


def one_zone_spec(**overrides):
    """Return a spec of one v5litepod-8 in one zone, looked at every 15 s."""
    base = {"tpu__type": "v5litepod-8", "tpu__zones": [ZONE], "tpu__runtime": "v2-alpha-tpuv5-lite"}
    return a_spec(**{"project": PROJECT, **base, **overrides})


class ControllerKilled(BaseException):
    """The controller is dead: nothing in it may catch this."""


class WatchedCloud(InProcess):
    """A cloud with an eye on each call: *before* and *after* see the method and path of a mutating request."""

    before = after = staticmethod(lambda what: None)

    def answer(self, request, timeout=0.0):
        if request.method == "GET":
            return super().answer(request)
        what = f"{request.method} {request.path}"
        self.before(what)
        answer = super().answer(request)
        self.after(what)
        return answer


class EngineLab:
    """One local cloud, and controllers over it that come and go."""

    def __init__(self, folder, latency="scaled", taken=(), start=1_800_000_000.0, **settings):
        self.folder = folder
        self.processes, self.ended = [], set()
        self.clock = VirtualClock(start)
        self.machines = ReportingMachines.__new__(ReportingMachines)
        NoMachines.__init__(self.machines)
        ReportingMachines.__init__(self.machines, lab=self)
        chosen = LocalCloudSettings(**{"latency": PROFILES[latency], "fresh_project": False, **settings})
        self.wire = WatchedCloud(
            self.clock,
            chosen,
            self.machines,
            taken=taken,
            machine_of=lambda _: None,
        )
        self.cloud, self.storage = self.wire.cloud, self.wire.storage
        self.remote = Push(self.machines)
        self.answers()
        self.bucket = names.bucket_name(one_zone_spec(), PROJECT)
        for name, path in (("bundle", bundle_file), ("agent", agent_file)):
            place = path(folder / "bundles", DIGEST[name])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(CONTENT[name])

    def open(self, spec):
        """Return the adapters for one deployment, over clients that all of them share."""
        return wired_cloud(spec, self.remote, account=self.cloud.settings.default_service_account)

    def answers(self):
        """Be the cloud that answers from now on."""
        WIRE.cloud = self.wire

    def holder(self, who, yields):
        """Return a process that comes to be."""
        return Holder(str(len(self.processes)), who, "watch", self.clock.now(), yields=yields)

    def dead(self, other):
        """Return whether a process is one of this computer that no longer runs."""
        return other.id in self.ended

    def controller(self, spec=None, state="state", **parts):
        """Return a new controller, as a new process: it knows what disk and bucket hold."""
        return LabController(self, spec or one_zone_spec(), self.folder / state, **parts)

    def up(self, spec=None, ahead=0.0, **options):
        """Bring a deployment up and return its controller."""
        controller = self.controller(spec, ahead=ahead)
        controller.up(**options)
        return controller

    def put(self, name, data):
        """Write an object behind everybody's back; without a bucket nothing happens."""
        with self.storage.lock:
            if any(b.name == self.bucket for b in self.storage.buckets.list(PROJECT)):
                self.storage.objects.insert(self.bucket, name, data, {}, Preconditions())

    def get(self, name):
        """Return an object's bytes, or None."""
        with self.storage.lock:
            found = {o.name: o for o in self.storage.objects.all() if o.bucket == self.bucket}
            return self.storage.objects.read(found[name]) if name in found else None

    def objects(self, prefix=""):
        """Return the names of the bucket's objects."""
        return sorted(o.name for o in self.storage.objects.all() if o.name.startswith(prefix))

    def nodes(self):
        """Return name -> state of all nodes of the cloud."""
        self.cloud.tick()
        return {n.name: NodeState[n.state.name] for n in self.cloud.kernel.state.nodes.values()}

    def queued(self):
        """Return name -> state of all queued resources of the cloud."""
        return {q.name: q.state.name for q in self.cloud.queued_resources()}

    def vms(self):
        """Return name -> status of all VMs of the cloud."""
        self.cloud.tick()
        return {v.name: v.status.value for v in self.cloud.kernel.state.instances.values()}

    def mutations(self):
        """Return how often each mutating method was called."""
        return Counter({m: self.cloud.calls[m] for m in MUTATING if self.cloud.calls[m]})

    def change(self, **settings):
        """Change the cloud's settings: capacity, quota, permissions."""
        self.cloud.kernel.settings = replace(self.cloud.kernel.settings, **settings)

    def wait(self, seconds):
        """Let time pass while the machines report."""
        self.clock.advance(seconds)
        self.cloud.tick()
        self.machines.report()


class LabController:
    """
    One process of tpuctl: a lease, a record, a journal and the loop.

    Those made before it are dead, as their computer knows, unless it runs *beside* them.
    """

    def __init__(
        self, lab, spec, folder: Path, *, forgiving=False, beside=False, who="here", yields=(), ahead=0.0
    ):
        self.lab, self.spec, self.events, self.waiting = lab, spec, [], ()
        self.cloud = lab.open(spec)
        self.blueprint = Blueprint(spec, self.cloud.account, lambda: f"tpuctl:{KEY}")
        self.records = RecordStore(folder / "record.json", self.cloud.store, spec.name, now=lab.clock.now)
        me = lab.holder(who, yields)
        if not beside:
            lab.ended.update(lab.processes)
        lab.processes.append(me.id)
        self.clock = SteadyClock(lab.clock)
        self.clock.set(lab.clock.now() + ahead)
        self.lease = Lease(self.cloud.store, self.clock, me, lab.dead)
        self.lease.acquire()
        if forgiving:
            self.records.load(forgiving=True)
        else:
            take_record(self.lease, self.records)
        self.journal = Journal(folder / "journal.jsonl", self.cloud.store, self.clock)
        self.sink = EventLog(self.cloud.store, self.events.append, lambda: self.record.bucket.observed)
        catalog = load_catalog()

        def cost(record, now):
            return cost_so_far(spec, catalog, record, now).known_usd

        self.deployment = Deployment(
            spec, self.cloud, self.blueprint, lab.folder / "bundles", self.records, self.journal, self.lease,
            self.clock, self.sink, cost, store_events=self.sink.flush,
        )  # fmt: skip
        self.reconciler = Reconciler(self.deployment)
        self.loop = Loop(self.deployment)

    @property
    def record(self):
        return self.records.current

    def want(self):
        """Want the code of this lab, as `up` does first."""
        record_wanted(self.deployment, DIGEST["bundle"], DIGEST["agent"])
        self.records.flush()

    def up(self, **options):
        """Run passes until nothing is left to do or to wait for, as `tpuctl up --wait` does."""
        self.want()
        return self.run(Goal.JOB.reached, **options)

    def run(self, until=lambda r: False, *, passes=300, seconds=float("inf"), at_end=None):
        """Run passes until *until*, an end, or *seconds* of virtual time; never more than *passes*."""
        start = self.lab.clock.now()
        over = lambda observed: until(observed) or self.lab.clock.now() - start >= seconds  # noqa: E731
        passes_made = passes_to_the_end(self.loop, self.deployment, self.turns(passes), until=over)
        result = run(passes_made)
        raise_outcome(result)
        return result

    def turns(self, passes=300):
        """Return what gives cloud and machines their turn after each pass, of which there are *passes* at most."""
        count = 0

        def after(result):
            nonlocal count
            count += 1
            assert count <= passes, f"not at rest after {passes} passes: {result.plan}"
            self.lab.cloud.tick()
            self.lab.machines.report()
            self.waiting = result.plan.waiting

        return after

    def one_pass(self):
        """Run a single pass."""
        return self.reconciler.one_pass()

    def deletion(self):
        """Return `down` for this deployment."""
        return Deletion(self.deployment)

    def kinds(self):
        """Return the kinds of the events so far."""
        return [e.kind for e in self.events]


__all__ = [
    "KEY",
    "QUOTA",
    "ControllerKilled",
    "EngineLab",
    "LabController",
    "LeaseHeldError",
    "one_zone_spec",
]
