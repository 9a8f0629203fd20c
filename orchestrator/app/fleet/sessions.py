"""Open the sessions of a fleet: of the VM with Slurm's controller, and of each TPU, a deployment of its own."""

import hashlib
import json
import re
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import threads
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session, SharedBudget, read_spec
from orchestrator.app.machines.workers import booting, observe, the_vm, when_reached
from orchestrator.app.this_computer.known import spec_in
from orchestrator.app.this_computer.state_folders import SPEC_FILE, known_files, state_folder, state_path
from orchestrator.clock import SystemClock
from orchestrator.contract.bucket.object_names import NODES, RECORD, SLURM
from orchestrator.domain.events import Event
from orchestrator.domain.observation import Absent, Present, VmState
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record
from orchestrator.domain.remote import Host
from orchestrator.domain.spec import Spec
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.engine.fleet.job_store import ReadSubmissions
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.engine.records.record_format import decode
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.engine.routes import vm_host
from orchestrator.errors import (
    DiskError,
    NotFoundError,
    RemoteError,
    TpuctlError,
    UsageError,
)
from orchestrator.google.clients import Clients
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.planning.fleet.deployments import (
    PORT,
    SlurmController,
    fleet_of,
    head_of,
    node_names,
    node_spec,
)
from orchestrator.planning.fleet.gate import Hold, corrections, dependencies, gate, under_wrong_account
from orchestrator.planning.fleet.size import FleetNodePhase
from orchestrator.planning.fleet.tasks import cancelled, unfinished, waiting_copies
from orchestrator.planning.update_record import LACKING
from orchestrator.pricing.cost import Hourly, hourly
from orchestrator.private_folders import private_file, private_folder
from orchestrator.scripts.shipped import shipped

AT_ONCE = 16
BOOT_TIMEOUT = 240.0
"""Seconds for the VM to boot, install Slurm and answer."""
LIST_SECONDS = 3.0
"""Age in seconds up to which a list of a zone serves all nodes: a pass asks for each zone once."""
VM_HOST = "vm-host.json"
"""File beside the record: where the VM was reached last."""
LOCAL_PORTS = range(20_000, 60_000, 128)
"""First port of each fleet on a local cloud, whose machines share the computer's ports."""


@dataclass(frozen=True)
class FleetPrice:
    """The hourly price of the VM and of each of *nodes* nodes, and the seconds until ttl ends the fleet."""

    spec: Spec
    head: Hourly
    node: Hourly
    nodes: int
    unbilled: bool


class EventsOnly(Reporter):
    """Passes on a node's events; what would be the same for every node is reported by the fleet."""

    def __init__(self, onward: Reporter) -> None:
        self._onward = onward

    def __call__(self, event: Event) -> None:
        """Pass the event on."""
        self._onward(event)


class Fleet:
    """The sessions of a fleet: of its *head*, with bucket and VM, and of its nodes."""

    def __init__(
        self, choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter], *,
        forgiving: bool = False, only_observes: bool = False,
    ) -> None:  # fmt: skip
        self.choice, self.reporter, self.reporter_of = choice, reporter, reporter_of
        self._forgiving, self._only_observes = forgiving, only_observes
        self.path, spec = read_spec(choice, fleet=True)
        self.spec = head_of(spec)
        self.together = SharedBudget()
        self.lists = ZoneLists(LIST_SECONDS, SystemClock().monotonic)
        self.head = self._session(reporter, self.spec, None)
        self.bucket = self.head.blueprint.bucket

    def _session(self, reporter: Reporter, spec: Spec, clients: Clients | None) -> Session:
        # A node's code is slurm.sh, not what is beside the fleet's file.
        return Session(
            self.choice, reporter, spec, self._code / "tpuctl.yaml", forgiving=self._forgiving,
            only_observes=self._only_observes, lists=self.lists, together=self.together,
            clients=clients,
        )  # fmt: skip

    @property
    def port(self) -> int:
        """Return the Slurm controller's port."""
        if self.choice.cloud != "local":
            return PORT
        mark = hashlib.sha256(f"{state_path('local')}/{self.spec.name}".encode()).digest()
        return LOCAL_PORTS[int.from_bytes(mark[:4], "big") % len(LOCAL_PORTS)]

    def known(self) -> list[str]:
        """Return the names of the nodes that this computer has brought up, including surplus ones."""
        parent = self.head.folder.parent
        found = [path for path in known_files(self.choice.cloud) if path.parent.parent == parent]
        return [
            path.parent.name for path in found
            if path.parent.name != self.spec.name and _is_node_of(path, self.spec.name)
        ]  # fmt: skip

    def members(self) -> list[str]:
        """Return the names of the VM's deployment and of the nodes that this computer has brought up."""
        return [self.spec.name, *self.known()]

    def in_bucket(self) -> list[str]:
        """Return the names of all nodes that ever stored a record, brought up by any computer."""
        try:
            held = self.head.store.list(NODES)
        except NotFoundError:
            return []
        found = dict.fromkeys(one.name[len(NODES) :].partition("/")[0] for one in held)
        # Machines may write here too, so names that are no node's are ignored.
        return [name for name in found if re.fullmatch(rf"{re.escape(self.spec.name)}-\d{{3}}", name)]

    def there(self, name: str) -> bool:
        """Return whether the bucket says that a node is up, or does not say that it is gone."""
        held = self.head.store.read(f"{NODES}{name}/{RECORD}")
        try:
            return held is not None and bool(decode(held.data, name).started_at)
        except TpuctlError:
            return True

    def node(self, name: str, slurm_controller: SlurmController, zone: str = "") -> Session:
        """Return the session of one node, which may be in all zones of the file, or in *zone* only."""
        spec = node_spec(self.spec, name, self.bucket, slurm_controller)
        if zone:
            spec = replace(spec, tpu=replace(spec.tpu, zones=(zone,)))
        # Loops call for a long time and at once: there each node has connections of its own.
        return self._session(self.reporter_of(name), spec, self.head.clients if self._only_observes else None)

    def path_of(self, name: str) -> Path:
        """Return the path of a node's stored spec."""
        return self.head.folder.parent / name / SPEC_FILE

    def bound_to(self, name: str) -> str:
        """Return the only zone that a node may be in, empty where it may be in all of the file."""
        try:
            zones = spec_in(self.path_of(name)).tpu.zones
        except UsageError:
            return ""
        return zones[0] if len(zones) == 1 < len(self.spec.tpu.zones) else ""

    def heading(self, name: str) -> str:
        """Return the zone in which a node was requested last, empty before that."""
        record = self._record_of(name)
        return record.node.zone if record else ""

    def refusals(self, name: str) -> dict[str, float]:
        """Return the zones that have refused a node for want of room, with the time of the last refusal."""
        record = self._record_of(name)
        return {
            one.zone: one.at for one in (record.refusals if record else ())
            if one.kind is Kind.NODE and one.retry in LACKING
        }  # fmt: skip

    def _record_of(self, name: str) -> Record | None:
        try:
            return decode(self.path_of(name).with_name("record.json").read_bytes(), name)
        except FileNotFoundError:
            return None

    def phase(self, name: str) -> FleetNodePhase:
        """Return what the record of a node says, as this computer has it."""
        record = self._record_of(name)
        if record is None or not record.started_at:
            return FleetNodePhase.NONE
        return FleetNodePhase.UP if record.job.bundle else FleetNodePhase.LEAVING

    def started_at(self) -> float:
        """Return when the fleet was brought up in seconds since the epoch; 0 once it is being deleted."""
        # Read again, as another process may be deleting the fleet.
        path, clock = self.head.folder / "record.json", self.head.clock
        records = RecordStore(path, self.head.store, self.spec.name, self.head.key, clock.now)
        record = records.load(forgiving=True)
        return record.started_at if record.job.bundle and not record.outcome else 0.0

    @property
    def _code(self) -> Path:
        """Return the folder with the code of every node, the same for all fleets."""
        return state_folder(self.choice.cloud) / "fleet-code"

    def write_code(self) -> None:
        """Write the nodes' code to the folder from which it is sent."""
        private_folder(self._code)
        private_file(self._code / "slurm.sh", shipped("slurm.sh"))

    def slurm(self) -> Slurm:
        """Return Slurm on the VM. Raise UsageError if no VM is running."""
        remote, before = self.head.cloud.remote, self._vm_before()
        return Slurm(remote, before, self._vm_now) if before else Slurm(remote, self._vm_now())

    def _vm_now(self) -> Host:
        """Return the VM as the cloud shows it now, and remember its address."""
        world = observe(self.head)
        if isinstance(world.vm, Absent) or (
            isinstance(world.vm, Present) and world.vm.value.state is not VmState.RUNNING
        ):
            raise UsageError(
                f"the VM of the fleet {self.spec.name} does not run", hint="run: tpuctl fleet up",
                changed="nothing was changed", code="TPU-130",
            )  # fmt: skip
        host = vm_host(self.head.cloud, world)
        if host.iap is None and host.via is None:
            body = {"name": host.name, "address": host.address, "port": host.port}
            with suppress(DiskError):  # It only spares the next command the question.
                write_private(self.head.folder / VM_HOST, json.dumps(body).encode())
        return host

    def _vm_before(self) -> Host | None:
        """
        Return the VM at its remembered address, None without one.

        Loading the client of Compute Engine takes longer than the rest of a command. Without keys of its own the
        host must show the pinned ones, so another machine at that address is refused.
        """
        try:
            body = json.loads((self.head.folder / VM_HOST).read_bytes())
            return Host(str(body["name"]), str(body["address"]), (), int(body["port"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def start_slurm(self, timeout: float = BOOT_TIMEOUT) -> SlurmController:
        """Install Slurm on the VM and start its controller; wait up to *timeout* seconds for a booting VM."""
        script = shipped("slurm.sh")

        def install() -> tuple[Slurm, str]:
            slurm = Slurm(self.head.cloud.remote, the_vm(self.head))
            return slurm, slurm.archive(script)

        slurm, archive = when_reached(
            self.head.clock, install, timeout, lambda error: not booting(error),
            lambda message: self.reporter.now(f"waiting for the VM: {message}"),
        )  # fmt: skip
        vm = observe(self.head).vm
        if not isinstance(vm, Present):
            raise RemoteError(
                "the VM is not listed", hint="run: tpuctl fleet up", changed="Slurm was not started"
            )
        # A recreated VM starts with the copy of Slurm's state in the bucket (slurm.sh).
        slurm_controller = SlurmController(vm.value.internal_ip, self.port, archive)
        fleet_users = user_store.read_users(self.head.store)
        slurm.start(
            self.spec.name, len(node_names(self.spec)), self.spec.tpu.zones, slurm_controller, fleet_users
        )
        return slurm_controller

    def slurm_controller(self) -> SlurmController:
        """Return the Slurm controller's address from bucket and VM, as far as known."""
        vm = observe(self.head).vm
        names = [one.name[len(SLURM) :] for one in self.head.store.list(f"{SLURM}slurm-")]
        address = vm.value.internal_ip if isinstance(vm, Present) else ""
        return SlurmController(address, self.port, next(iter(names), ""))

    def price(self) -> FleetPrice:
        """Return the hourly price of the whole fleet."""
        catalog, zone = self.head.catalog, self.spec.tpu.zones[0]
        one = hourly(replace(self.spec, vm="none"), catalog, zone)
        both = hourly(self.spec, catalog, zone)
        head = replace(both, lines=tuple(line for line in both.lines if line not in one.lines))
        return FleetPrice(self.spec, head, one, len(node_names(self.spec)), self.choice.cloud == "local")

    def submit_missing(self, slurm: Slurm, only: str = "") -> dict[str, TpuctlError]:
        """
        Let Slurm's queue be what the bucket says: tasks that it has forgotten, what is held, what waits for what.

        Return the jobs for which that is not possible, each with its error. With *only* it is about the job of
        that name, and raises its error.
        """
        known = job_store.read_all(self.head.store) if not only else self.with_those_before(only)
        wrong = dict(known.unread)
        submissions = {
            submission.name: submission for submission in sorted(known.jobs, key=lambda one: one.submitted_at)
        }
        ended = job_store.all_ended(self.head.store, submissions.values())
        fleet_users = user_store.read_users(self.head.store)
        owing = user_store.over_budget(self.head.store)
        wanted = {name: unfinished(submission, ended[name]) for name, submission in submissions.items()}
        gates = {
            name: gate(submission, submissions, ended, owing) for name, submission in submissions.items()
            if wanted[name] and only in ("", name)
        }  # fmt: skip
        dropped = [
            submission
            for submission in submissions.values()
            if submission.cancelled and only in ("", submission.name)
        ]
        under = {name: fleet_users.options(submissions[name]) for name in gates}
        slurm_tasks = slurm.queue() if gates or dropped or any(ended.values()) else ()
        # The `cancel` was killed before it told Slurm, or Slurm was told to queue them meanwhile.
        slurm.cancel(cancelled(dropped, slurm_tasks))
        if copied := {one.job for one in waiting_copies(ended, slurm_tasks)}:
            # Read once more: a `retry` since then has queued its tasks on purpose.
            still = job_store.all_ended(self.head.store, [submissions[name] for name in copied])
            slurm.cancel(waiting_copies(still, slurm_tasks))
        if misfiled := under_wrong_account(under, slurm_tasks):
            # Queued before there were users or priorities; waiting tasks lose nothing by being queued again.
            slurm.cancel(misfiled)
            slurm_tasks = tuple(one for one in slurm_tasks if one not in misfiled)
        for name, allowed in gates.items():
            there = {one.number for one in slurm_tasks if one.job == name}
            missing = [number for number in wanted[name] if number not in there]
            if missing:
                after = dependencies(allowed, slurm_tasks)
                closed = allowed.hold is not Hold.NONE or bool(allowed.waits and not after)
                try:
                    slurm.submit(
                        submissions[name],
                        missing,
                        self.spec.tpu.zones,
                        held=closed,
                        after=after,
                        under=under[name],
                    )
                except RemoteError as error:
                    wrong[name] = error
                # Whether Slurm refuses this job, or does not answer at all: then this raises.
                slurm_tasks = slurm.queue()
        if only in wrong:
            raise wrong[only]
        for correction in corrections(gates, slurm_tasks):
            slurm.correct(correction)
        return wrong

    def with_those_before(self, name: str) -> ReadSubmissions:
        """Return a job and those that it comes after, as far as they exist; it is the first."""
        own = job_store.read(self.head.store, name)
        return job_store.read_some(self.head.store, (name, *own.after) if own else ())


def _is_node_of(path: Path, fleet: str) -> bool:
    try:
        return fleet_of(spec_in(path)) == fleet
    except TpuctlError:
        return False


def for_each(work: dict[str, Callable[[], object]]) -> dict[str, object]:
    """Call all of *work* in parallel; return each result, or the TpuctlError that it raised."""

    def safe(call: Callable[[], object]) -> object:
        try:
            return call()
        except TpuctlError as error:
            return error

    with threads.pool(AT_ONCE) as pool:
        futures: dict[str, Future[object]] = {name: pool.submit(safe, call) for name, call in work.items()}
        return {name: future.result() for name, future in futures.items()}
