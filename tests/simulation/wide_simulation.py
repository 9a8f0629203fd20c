"""
A wide simulation: many deployments on one cloud, for weeks.

No threads: a controller is its loop's next pass, planned as an event, and no time passes within one.
"""

import re
import uuid
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from unittest.mock import patch

from google.api_core.retry import retry_base, retry_unary

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.emulator.client import InProcess
from orchestrator.emulator.http.dispatch import call_target_of
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.kernel import CallTarget
from orchestrator.engine.records import journal, record_store
from orchestrator.threads import one_after_the_other
from tests.kit.quick_clients import QUICK
from tests.kit.wire import PROJECT, WIRE
from tests.planning.planning_kit import a_spec
from tests.simulation import machines
from tests.simulation.invariants import own_fault
from tests.simulation.machines import SimulatedMachines
from tests.simulation.simulation import DIGEST, RetryTime
from tests.simulation.virtual_threads import Scheduler
from tests.simulation.wire import SimulatedNetwork

_OURS = re.compile(r"\b(w\d+)-(?:tpu|vm)")
shared_catalog = cache(load_catalog)


class WideMachines(SimulatedMachines):
    """Machines by the hundred: news of a job wake its controller."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.of = defaultdict(list)

    def boot(self, machine):
        known = len(self.gangs)
        super().boot(machine)
        if len(self.gangs) > known:
            gang = next(reversed(self.gangs.values()))
            self.of[gang.deployment].append(gang)

    def heartbeat(self, deployment):
        """Let the machines of one deployment report."""
        for gang in self.of[deployment][-4:]:
            gang.heartbeat()


@dataclass
class MemoryFile:
    """A file of a computer's disk, which outlives the processes that write it."""

    data: bytes | None = None

    def exists(self):
        return self.data is not None

    def read_bytes(self):
        return self.data


@dataclass
class OwnerComputer:
    """The computer of one owner."""

    record: MemoryFile = field(default_factory=MemoryFile)
    journal: MemoryFile = field(default_factory=MemoryFile)


class WideSimulation:
    """Everything of one wide run. *news* is called with each deployment that has something new."""

    def __init__(self, case, trace):
        self.case, self.scheduler = case, Scheduler()
        self.start = self.scheduler.now()
        self.random = Random(f"wide {case.seed}")
        self.quiet, self.own_fault = False, ""
        self.events = Counter()
        self.news = lambda deployment: None
        self._trace = trace
        self.machines = WideMachines(self.scheduler, Random(f"machines {case.seed}"), DIGEST)
        settings = LocalCloudSettings(
            latency=PROFILES["realistic"], seed=case.seed, quotas=case.quotas, fresh_project=False
        )
        inside = InProcess(self.scheduler.clock, settings, self.machines)
        self.cloud, self.storage = inside.cloud, inside.storage
        self.acting = None
        self.network = SimulatedNetwork(
            self.scheduler, inside, lambda: self.acting,
            rates=case.rates, random=Random(f"wire {case.seed}"), observed=self._called,
        )  # fmt: skip
        self.network.calling = lambda loop, method, request: loop.calling(
            method, self._place(method, request)
        )
        self.network.heartbeat_lists = lambda bucket: self.machines.heartbeat(self.acting.name)
        self.machines.cloud, self.machines.storage = self.cloud, self.storage
        self.specs = {d.name: a_spec(project=PROJECT, **d.spec) for d in case.deployments}
        self.machines.buckets.update({n: (names.bucket_name(s, PROJECT), "") for n, s in self.specs.items()})
        handlers = self.cloud.kernel.handlers
        handlers.update({kind: partial(self._happened, act) for kind, act in handlers.items()})

    @contextmanager
    def acts(self, loop):
        """Let *loop* be who makes the calls; while it waits in one, others may be."""
        before, self.acting = self.acting, loop
        try:
            yield
        finally:
            self.acting = before

    def _place(self, method, request):
        if method.startswith("storage."):
            return CallTarget()
        return call_target_of(method, request, self.network.router.find(request)[1])

    def _called(self, loop, method, request, status, fault):
        if fault == "late":
            self.events["late refusal"] += status >= 400
            return
        answered = isinstance(status, int) and (status < 400 or status == 404) and fault != "truncated"
        loop.called(method, self._place(method, request), answered)

    def now(self):
        return self.scheduler.now()

    def say(self, text):
        """Write a line of the trace."""
        self.own_fault = self.own_fault or own_fault(text)
        self._trace(f"{self.now() - self.start:13.3f} {text}")

    def _journaled(self, path, data):
        """Keep nothing of a journal: what was lost with it shows in the cloud."""
        self.own_fault = self.own_fault or own_fault(data.decode())

    def run_until(self, when):
        """Let time pass up to *when*: the cloud's events and ours, in order."""
        heap, kernel = self.scheduler._heap, self.cloud.kernel
        while True:
            due = kernel.state.heap[0].due if kernel.state.heap else float("inf")
            ours = heap[0][0] if heap else float("inf")
            if min(due, ours) > when:
                break
            if due <= ours:
                self.scheduler.clock.advance(max(0.0, due - self.now()))
                self.cloud.tick()
            else:
                self.scheduler.run_until(ours, stop=lambda: True)
        self.scheduler.clock.advance(max(0.0, when - self.now()))

    def _happened(self, act, *args):
        act(*args)
        for arg in args:
            if isinstance(arg, str):
                self.notify_controller(arg)

    def notify_controller(self, name):
        """Notify the controller of the resource called *name*."""
        found = _OURS.search(name)
        if found and found[1] in self.specs:
            self.news(found[1])

    def nodes(self, deployment):
        """Return the deployment's nodes."""
        mark = f"{deployment}-tpu-"
        return [n for (_, name), n in self.cloud.kernel.state.nodes.items() if name.startswith(mark)]

    def vm(self, deployment):
        """Return the deployment's VM, or None."""
        vms = self.cloud.kernel.state.instances
        return next((vm for (_, name), vm in vms.items() if name == f"{deployment}-vm"), None)

    @contextmanager
    def running(self):
        """Stand for what this process reaches: its network, threads, disks and ids."""
        WIRE.cloud = self.network
        ids = Random(f"ids {self.case.seed}")
        report = machines.SimulatedGang._report

        def reported(gang, phase):
            report(gang, phase)
            self.news(gang.deployment)

        with ExitStack() as stack:
            stack.enter_context(one_after_the_other())
            for target, name, value in (
                (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
                (machines.SimulatedGang, "_report", reported),
                (record_store, "write_private", lambda path, data: setattr(path, "data", data)),
                (journal, "append_synced", self._journaled),
                (retry_unary, "time", RetryTime(self.scheduler)),
                (retry_base, "random", ids),
                *QUICK,
            ):
                stack.enter_context(patch.object(target, name, value))
            yield self


__all__ = ["DIGEST", "OwnerComputer", "WideSimulation", "shared_catalog"]
