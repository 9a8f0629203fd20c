"""
A wide world: many deployments on one cloud, their controllers straight on the model, for weeks.

No HTTP, no threads: a controller is its loop's next look, planned as an event. Faults strike at the door
of the model, as `wire.Network` lets them strike on the wire.
"""

import re
import uuid
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from unittest.mock import patch

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract import object_names
from orchestrator.domain import names
from orchestrator.emulator.state import methods
from orchestrator.emulator.state.api_errors import cases
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.emulator.state.cloud_settings import CloudSettings as LocalSettings
from orchestrator.emulator.state.faults import FaultKind, FaultSpec
from orchestrator.emulator.state.kernel import Place
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.world import LocalCloud
from orchestrator.engine import journal, record_store
from orchestrator.errors import TpuctlError
from orchestrator.google.error_mapping import NETWORK, judge, one_line
from orchestrator.google.refusal import Failure, of_answer
from orchestrator.threads import one_after_the_other
from tests.direct.door import Door
from tests.kit.wire import PROJECT
from tests.planning.planning_kit import make_spec
from tests.simulation import machines
from tests.simulation.baton import Kill, Scheduler
from tests.simulation.machines import Fleet
from tests.simulation.wire import LISTS, MUTATING, REFUSALS, STALE_FOR
from tests.simulation.world import DIGEST

_OURS = re.compile(r"\b(w\d+)-(?:tpu|vm)")
shared_catalog = cache(load_catalog)


class WideFleet(Fleet):
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

    def beat(self, deployment):
        """Let the machines of one deployment report."""
        for gang in self.of[deployment][-4:]:
            gang.beat()


@dataclass
class MemoryFile:
    """A file of a host's disk, which outlives the processes that write it."""

    data: bytes | None = None

    def exists(self):
        return self.data is not None

    def read_bytes(self):
        return self.data


@dataclass
class Host:
    """The computer of one owner."""

    record: MemoryFile = field(default_factory=MemoryFile)
    journal: MemoryFile = field(default_factory=MemoryFile)


class WideWorld:
    """Everything of one wide life. *news* is told which deployment has something new to see."""

    def __init__(self, case, trace):
        self.case, self.scheduler = case, Scheduler()
        self.start = self.scheduler.now()
        self.random = Random(f"wide {case.seed}")
        self.quiet = False
        self.events, self.faults = Counter(), Counter()
        self.news = lambda deployment: None
        self._trace = trace
        self.fleet = WideFleet(self.scheduler, Random(f"machines {case.seed}"), DIGEST)
        self.cloud = LocalCloud(
            self.scheduler.clock,
            self.fleet,
            LocalSettings(
                latency=PROFILES["realistic"], seed=case.seed, quotas=case.quotas, fresh_project=False
            ),
        )
        self.storage = Storage(self.scheduler.clock)
        self.fleet.cloud, self.fleet.storage = self.cloud, self.storage
        self.specs = {d.name: make_spec(project=PROJECT, **d.spec) for d in case.deployments}
        self.fleet.buckets.update({n: names.bucket_name(s, PROJECT) for n, s in self.specs.items()})
        handlers = self.cloud.kernel.handlers
        handlers.update({kind: partial(self._happened, act) for kind, act in handlers.items()})

    def now(self):
        return self.scheduler.now()

    def say(self, text):
        """Write a line of the trace."""
        self._trace(f"{self.now() - self.start:13.3f} {text}")

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
                self.tell(arg)

    def tell(self, name):
        """Tell the controller of the resource called *name* that there is something new."""
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
        """Be the world of this process: its threads, disks and ids."""
        ids = Random(f"ids {self.case.seed}")
        report = machines.Gang._report

        def reported(gang, phase):
            report(gang, phase)
            self.news(gang.deployment)

        with ExitStack() as stack:
            stack.enter_context(one_after_the_other())
            for place, name, value in (
                (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
                (machines.Gang, "_report", reported),
                (record_store, "write_atomically", lambda path, data: setattr(path, "data", data)),
                (journal, "append_synced", lambda path, data: None),
            ):
                stack.enter_context(patch.object(place, name, value))
            yield self


class FaultyDoor(Door):
    """The way of one controller to the cloud: now and then a call fails, and any call may be its last."""

    def __init__(self, world, loop):
        super().__init__(world.cloud, world.storage)
        self._world, self._loop, self._old = world, loop, {}

    def tpu(self, what, method, place, act):
        return self._carry(what, method, place, partial(super().tpu, what, method, place, act))

    def compute(self, what, method, place, act):
        return self._carry(what, method, place, partial(super().compute, what, method, place, act))

    def storage(self, what, method, act):
        if method == "storage.objects.list" and object_names.HEARTBEAT in what:
            self._world.fleet.beat(self._loop.name)
        return self._carry(what, method, Place(), partial(super().storage, what, method, act))

    def _carry(self, what, method, place, call):
        world, loop = self._world, self._loop
        loop.step()
        loop.calling(method, place)
        fault, seen = "" if world.quiet else self._draw(method), False
        try:
            if fault:
                world.faults[fault] += 1
            answer = getattr(self, f"_{fault}")(what, method, place, call) if fault else call()
        except TpuctlError as error:
            seen = error.code == "TPU-404"
            raise
        else:
            seen = fault != "truncated"
            if method in LISTS and not fault:
                self._old[method, place] = (world.now(), answer)
            return answer
        finally:
            loop.called(method, place, seen)
            loop.step()

    def _draw(self, method):
        rates, point = self._world.case.rates, self._world.random.random()
        for name in ("api_error", "lost_answer", "slow", "stale", "truncated", "stuck"):
            if point < getattr(rates, name):
                possible = {"stale": method in LISTS, "truncated": method in LISTS,
                            "stuck": method in methods.WITH_OPERATION}  # fmt: skip
                return name if possible.get(name, True) else ""
            point -= getattr(rates, name)
        return ""

    def _lost(self, what):
        return NETWORK(Failure(""), one_line(what, "connection reset by peer"))

    def _armed(self, method, fault, call):
        self._world.cloud.kernel.state.faults[method] = [fault]
        return call()

    def _api_error(self, what, method, place, call):
        """Refuse the call or its operation: mostly for a moment, sometimes for want of something."""
        random, known = self._world.random, REFUSALS.get(method, ())
        if known and random.random() < 0.4:
            case = random.choice(known)
            where = cases()[methods.error_table_of(method), case].where
            kind = FaultKind.CALL_ERROR if where == "call" else FaultKind.OPERATION_ERROR
            return self._armed(method, FaultSpec(kind, case), call)
        if random.random() < 0.2:
            raise self._lost(what)
        status = random.choice((500, 502, 503, 503, 503, 504))
        raise judge(of_answer(status, {"message": "The service is currently unavailable."}, ""), what)

    def _lost_answer(self, what, method, place, call):
        call()
        raise self._lost(what)

    def _slow(self, what, method, place, call):
        """Let the caller give up: the call has arrived, or arrives up to two minutes later, or never."""
        random = self._world.random
        if random.random() < 0.5:
            call()
        elif method in MUTATING and random.random() < 0.5:
            self._world.scheduler.after(random.uniform(1, 120), lambda: self._late(call))
        raise self._lost(what)

    def _late(self, call):
        try:
            call()
        except TpuctlError as refused:  # nobody is there to hear it
            self._world.events[f"late {type(refused).__name__}"] += 1

    def _stale(self, what, method, place, call):
        then, old = self._old.get((method, place), (float("-inf"), None))
        return old if self._world.now() - then <= STALE_FOR else call()

    def _truncated(self, what, method, place, call):
        return self._armed(method, FaultSpec(FaultKind.UNREACHABLE), call)

    def _stuck(self, what, method, place, call):
        random = self._world.random
        creating = method in {"tpu.nodes.create", "compute.instances.insert"}
        if creating and random.random() < 0.7:
            return self._armed(method, FaultSpec(FaultKind.STUCK), call)
        late = FaultSpec(FaultKind.LATENCY, seconds=random.uniform(300, 1700))
        return self._armed(method, late, call)


__all__ = ["DIGEST", "FaultyDoor", "Host", "Kill", "WideWorld", "shared_catalog"]
