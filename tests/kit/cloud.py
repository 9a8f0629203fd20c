"""
Provide one cloud on a virtual clock, its machines, and the computers of its users.

All of tpuctl is real, from the command line to the official clients. Replaced are the time, the network
between clients and cloud, and the machines with the connections to them.
"""

import re
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import requests
from filelock import FileLock
from google.cloud.storage import blob

from orchestrator.app.deployment import session
from orchestrator.app.fleet import sessions
from orchestrator.app.loop import watch, watch_all
from orchestrator.app.status import status
from orchestrator.app.this_computer import holder, process_lock
from orchestrator.clock import VirtualClock
from orchestrator.contract.uv_pin import PROGRAMS, object_name
from orchestrator.emulator.client import InProcess
from orchestrator.emulator.http.error_bodies import plain_error
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.lease import lease_object
from orchestrator.engine.records import atomic_files, journal
from orchestrator.errors import TpuctlError
from orchestrator.scripts import uv_program
from orchestrator.threads import one_after_the_other
from tests.conformance.discovery import Witness
from tests.engine.engine_lab import ControllerKilled
from tests.kit.checks import CloudChecks
from tests.kit.machines import CloudMachines, CloudSsh
from tests.kit.quick_clients import QUICK
from tests.kit.wire import ACCOUNT, PROJECT, WIRE, wired_cloud

_NAME = re.compile(rb'"name": "([^"]+)"')
STRIDE = 10.0
"""Seconds between two turns of the other actors while a command waits."""
LARGE = 1 << 20
"""Bytes from which on an upload goes in parts; Google's client says 8 MB."""
OWN_NOTES = ".tpuctl/"
"""Prefix of tpuctl's own objects in the bucket."""


@dataclass(frozen=True)
class MutatingCall:
    """One mutating call: its time, method, resource, and the status of its answer."""

    at: float
    method: str
    name: str
    status: int


class VirtualCloud:
    """The cloud, its clock, and the running commands: in *acting* the innermost one is last."""

    current = None

    def __init__(self, folder, latency="scaled", **settings):
        self.folder = folder
        self.clock = CloudClock(self)
        self.machines = CloudMachines(self)
        chosen = LocalCloudSettings(**{"latency": PROFILES[latency], "fresh_project": False, **settings})
        self.inside = InProcess(self.clock, chosen, self.machines)
        self.model, self.storage, self.router = self.inside.cloud, self.inside.storage, self.inside.router
        self.acting, self.processes, self.users = [], [], []
        self.log, self.plans, self.slurm = [], [], []
        self.queue = None
        self.distort = lambda method, response: response
        self.checks = CloudChecks(self)
        self.witness = Witness()

    # The cloud's true state, independent of any client.

    def nodes(self, name=""):
        """Return the states, by name, of the nodes whose name starts with *name*."""
        self.model.tick()
        found = self.model.kernel.state.nodes.values()
        return {n.name: n.state.name for n in found if n.name.startswith(name)}

    def vms(self, name=""):
        """Return the states, by name, of the VMs whose name starts with *name*."""
        self.model.tick()
        found = self.model.kernel.state.instances.values()
        return {v.name: v.status.value for v in found if v.name.startswith(name)}

    def in_use(self, name=""):
        """Return the names of nodes that work or will: neither preempted nor being deleted."""
        return [n for n, state in self.nodes(name).items() if state in {"CREATING", "READY"}]

    def buckets(self):
        return [b.name for b in self.storage.buckets.list(PROJECT)]

    def objects(self, prefix=""):
        return sorted(o.name for o in self.storage.objects.all() if o.name.startswith(prefix))

    def put_object(self, name, data):
        """Write an object into the bucket without any client."""
        with self.storage.lock:
            self.storage.objects.insert(self.buckets()[0], name, data, {}, Preconditions())

    def mutations(self):
        """Return (method, name) of each call that changed the cloud, except for tpuctl's own objects."""
        return [(c.method, c.name) for c in self.log if c.status < 400 and not c.name.startswith(OWN_NOTES)]

    def asked(self, method):
        """Return the times of all calls of a mutating method, successful or not."""
        return [call.at for call in self.log if call.method == method]

    # Events without a client.

    def wait(self, seconds):
        """Advance the time while no command runs."""
        self.clock.wait(seconds)
        self.passing()

    def later(self, seconds, event):
        """Call *event* in *seconds* from now."""
        self.plans.append((self.clock.monotonic() + seconds, event))

    def change(self, **settings):
        """Change the cloud's settings: capacity, quota, permissions."""
        self.model.kernel.settings = replace(self.model.kernel.settings, **settings)

    def passing(self):
        """Give every actor but the waiting command its turn."""
        self.model.tick()
        now = self.clock.monotonic()
        due = [event for at, event in self.plans if at <= now]
        self.plans = [(at, event) for at, event in self.plans if at > now]
        for event in due:
            event()
        self.machines.report()
        if self.queue is not None:
            self.queue.tick()
        self.checks.observe()
        for process in list(self.acting):
            self._renew(process)
        if self.acting:
            self.acting[-1].tick()

    def _renew(self, process):
        """Renew the lease of a waiting command, as its thread does, unless the command is suspended."""
        if not process.leases or process.frozen or process.dead:
            return
        foreground = self.acting[-1]
        self.acting.append(process)
        try:
            for lease in list(process.leases):
                with suppress(TpuctlError):
                    lease.keep()
        except ControllerKilled:
            # A command that another one waits in ends at its own next step: the other one goes on.
            if process is foreground:
                raise
        finally:
            self.acting.pop()

    # The network.

    def answer(self, request, timeout):
        """Carry one request of the running command, if it is alive and has a network."""
        if not self.acting:
            return self._dispatched(request)
        process = self.acting[-1]
        process.must_live()
        method, name = self._called(request)
        if process.user.cut_off_from(method):
            raise requests.ConnectionError("the network is down")
        if process.user.expired:
            return plain_error(request, 401, "UNAUTHENTICATED", "Request had invalid credentials.")
        if request.method == "GET":
            return self.distort(method, self._dispatched(request))
        process.before_call(f"{method} {name}")
        response = self.distort(method, self._dispatched(request))
        self.log.append(MutatingCall(self.clock.monotonic(), method, name, response.status))
        if method == "storage.buckets.delete" and response.status < 400:
            self.checks.newest.pop(name, None)  # Its user deleted it, so it is not missing.
        process.after_call(f"{method} {name}")
        return response

    def _dispatched(self, request):
        """Answer a request; compare it and its answer with Google's discovery documents."""
        return self.witness.observe(request, self.inside.answer(request))

    def _called(self, request):
        """Return the method of a request, and the name of its resource."""
        found = self.router.find(request)
        method, parts = ("batch", {}) if found is None else (found[0].__name__, found[1])
        inside = _NAME.search(request.body[:400])
        reported = (request.query.get("nodeId"), *(parts.get(key) for key in ("name", "node", "instance")))
        named = next((one for one in reported if one), None)
        return method, named or (inside[1].decode() if inside else parts.get("bucket", ""))

    @contextmanager
    def open(self):
        """Be the cloud of this Python process while the block runs."""
        VirtualCloud.current = WIRE.cloud = self
        with ExitStack() as stack:
            stack.enter_context(one_after_the_other())
            for where, what, stand_in in (
                (atomic_files.os, "fsync", lambda _: None),
                *QUICK,
                (atomic_files, "replacing", self._step("write a file", atomic_files.replacing)),
                (journal, "append_synced", self._step("write the journal", journal.append_synced)),
                (session, "SystemClock", lambda: UserClock(self)),
                (watch_all, "SystemClock", lambda: UserClock(self)),
                (sessions, "SystemClock", lambda: UserClock(self)),
                (session, "this_process", self._introduced),
                (process_lock, "FileLock", self._file_lock),
                (session, "process_ended", self._process_ended),
                (status, "process_ended", self._process_ended),
                (watch, "process_ended", self._process_ended),
                (session.Session, "ssh", property(lambda _: CloudSsh(self))),
                (uv_program, "packed", small_uv),
                (blob, "_MAX_MULTIPART_SIZE", LARGE),
                (lease_object.Lease, "renewing", renewing),
                (session, "open_cloud", opened),
            ):
                stack.enter_context(patch.object(where, what, stand_in))
            yield self

    def _step(self, what, make):
        """Let the command that runs be killed before it writes to its disk; after it is before the next step."""

        def made(path, *words):
            for process in self.acting[-1:]:
                process.around(f"{what} {path.name}", before=True)
            return make(path, *words)

        return made

    def _introduced(self, *words):
        me = self.acting[-1]
        made = replace(holder.this_process(*words), who=f"somebody@{me.user.name}")
        me.holders.add(made.id)
        return made

    def _file_lock(self, *words, **options):
        """Record the owner of a file lock: the system frees the locks of a killed process, Python does not."""
        made = FileLock(*words, **options)
        self.acting[-1].locks.append(made)
        return made

    def _process_ended(self, other):
        """Return whether a holder was a command of this computer that has ended or was killed."""
        mine = [p for p in self.processes if p.user.state == self.acting[-1].user.state and p.over]
        return any(other.id in process.holders for process in mine)


@contextmanager
def renewing(lease):
    """Replace the thread that renews the lease: it gets its turn when the command waits."""
    process = VirtualCloud.current.acting[-1]
    process.leases.append(lease)
    try:
        yield
    finally:
        process.leases.remove(lease)
        # After a kill, the passes of `watch --all` are left suspended, and closed only then.
        if not process.dead:
            lease.release()


def small_uv(machine, folder):
    """
    Put a small file where the packed uv lies, 17 MB that no machine of these tests unpacks.

    It goes in parts as that does, so a command can be killed at the same calls.
    """
    target = folder / Path(object_name(PROGRAMS[machine])).name
    if not target.exists():
        target.write_bytes(bytes(LARGE + 1))
    return target


def opened(settings, spec, remote, **_):
    """Return the test's cloud instead of Google's."""
    return wired_cloud(spec, remote, lists=settings.lists)


class CloudClock(VirtualClock):
    """The true time; while one actor waits, the others get their turn every STRIDE seconds."""

    def __init__(self, cloud):
        super().__init__()
        self._town = cloud

    def wait(self, seconds, wake=None):
        end, stride = self.monotonic() + max(0.0, seconds), max(STRIDE, seconds / 60)
        while not (wake is not None and wake.is_set()) and self.monotonic() < end:
            self.advance(min(stride, end - self.monotonic()))
            self._town.passing()


class UserClock:
    """The clock of the running command's computer, whose time of day may be wrong."""

    def __init__(self, cloud):
        self._user, self._clock = cloud.acting[-1].user, cloud.clock
        self.monotonic, self.wait = self._clock.monotonic, self._clock.wait

    def now(self):
        return self._clock.now() + self._user.skew


__all__ = ["ACCOUNT", "PROJECT", "ControllerKilled", "VirtualCloud"]
