"""A fleet: a VM with Slurm's controller, and TPUs that are its nodes, each kept alive as any deployment is."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator import threads
from orchestrator.app.choice import Choice
from orchestrator.app.down import Down, take_down
from orchestrator.app.known import spec_in
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session, Together, read_spec
from orchestrator.app.state_folders import known_files, state_folder, state_path
from orchestrator.app.up import bring_up
from orchestrator.app.workers import look, the_vm
from orchestrator.clock import SystemClock
from orchestrator.contract.object_names import ENGINE
from orchestrator.domain.events import Event
from orchestrator.domain.observation import Absent, Node, Present, Sight, VmState
from orchestrator.domain.spec import Spec
from orchestrator.engine import fleet_orders
from orchestrator.engine.slurm import Slurm
from orchestrator.errors import (
    HostKeyError,
    LeftoverError,
    NotFoundError,
    RemoteError,
    TpuctlError,
    UsageError,
)
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.planning.fleet import PORT, Controller, fleet_of, head_of, node_names, node_spec, unfinished
from orchestrator.pricing.cost import Hourly, hourly
from orchestrator.private_folders import private_file, private_folder
from orchestrator.scripts.render import shipped

AT_ONCE = 16
BOOT_SECONDS = 240.0
LOOK_SECONDS = 2.0
LIST_SECONDS = 3.0
LOCAL_PORTS = range(20_000, 60_000, 128)
"""Machines of local clouds share the computer's ports: each fleet has some of its own."""


@dataclass(frozen=True)
class FleetPrice:
    """Hold what an hour costs: of the VM, and of each of *nodes* nodes; and the seconds until ttl ends it."""

    spec: Spec
    head: Hourly
    node: Hourly
    nodes: int
    rehearsed: bool


@dataclass(frozen=True)
class FleetUp:
    """Hold which nodes are up, and of the others why they are not."""

    name: str
    bucket: str
    up: tuple[str, ...]
    missing: dict[str, TpuctlError]


class Fleet:
    """Hold the sessions of a fleet: of its *head*, which has bucket and VM, and of its nodes."""

    def __init__(
        self, choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter], *,
        forgiving: bool = False, only_looks: bool = False,
    ) -> None:  # fmt: skip
        self.choice, self.reporter, self.reporter_of = choice, reporter, reporter_of
        self._forgiving, self._only_looks = forgiving, only_looks
        self.path, spec = read_spec(choice, fleet=True)
        self.spec = head_of(spec)
        self._together = Together()
        self._lists = ZoneLists(LIST_SECONDS, SystemClock().monotonic)
        self.head = self._session(reporter, self.spec)
        self.bucket = self.head.blueprint.bucket

    def _session(self, reporter: Reporter, spec: Spec) -> Session:
        # Its code is slurm.sh, and not what lies beside the fleet's file.
        return Session(
            self.choice, reporter, spec, self._code / "tpuctl.yaml", forgiving=self._forgiving,
            only_looks=self._only_looks, lists=self._lists, together=self._together,
        )  # fmt: skip

    @property
    def port(self) -> int:
        """Return the controller's port."""
        if self.choice.cloud != "local":
            return PORT
        mark = hashlib.sha256(f"{state_path('local')}/{self.spec.name}".encode()).digest()
        return LOCAL_PORTS[int.from_bytes(mark[:4], "big") % len(LOCAL_PORTS)]

    def known(self) -> list[str]:
        """Return the names of the nodes that this computer has brought up, also of those that are too many now."""
        parent = self.head.folder.parent
        found = [path for path in known_files(self.choice.cloud) if path.parent.parent == parent]
        return [
            path.parent.name for path in found
            if path.parent.name != self.spec.name and _part_of(path, self.spec.name)
        ]  # fmt: skip

    def node(self, name: str, controller: Controller) -> Session:
        """Return the session of one node."""
        spec = node_spec(self.spec, name, self.bucket, controller)
        return self._session(self.reporter_of(name), spec)

    @property
    def _code(self) -> Path:
        """Return the folder with the code of every node; it is the same for all fleets."""
        return state_folder(self.choice.cloud) / "fleet-code"

    def write_code(self) -> None:
        """Put what nodes run where it is sent from."""
        private_folder(self._code)
        private_file(self._code / "slurm.sh", shipped("slurm.sh"))

    def slurm(self) -> Slurm:
        """Return Slurm on the VM. Raise UsageError where there is no VM that runs."""
        world = look(self.head)
        if isinstance(world.vm, Absent) or (
            isinstance(world.vm, Present) and world.vm.value.state is not VmState.RUNNING
        ):
            raise UsageError(
                f"the VM of the fleet {self.spec.name} does not run", hint="run: tpuctl fleet up",
                changed="nothing was changed", code="TPU-130",
            )  # fmt: skip
        return Slurm(self.head.cloud.remote, the_vm(self.head))

    def start_slurm(self) -> Controller:
        """Bring Slurm to the VM and start its controller; wait for a VM that boots."""
        script, end = shipped("slurm.sh"), self.head.clock.now() + BOOT_SECONDS
        while True:
            try:
                slurm = Slurm(self.head.cloud.remote, the_vm(self.head))
                engine = slurm.engine(script)
                break
            except (RemoteError, NotFoundError) as error:
                # A strange key is refused for ever; everything else may be the end of the boot.
                if isinstance(error, HostKeyError) or self.head.clock.now() > end:
                    raise
                self.reporter.now(f"waiting for the VM: {error.message}")
                self.head.clock.wait(LOOK_SECONDS)
        vm = look(self.head).vm
        if not isinstance(vm, Present):
            raise RemoteError("the VM is not in sight", hint="run: tpuctl fleet up")
        controller = Controller(vm.value.internal_ip, self.port, engine)
        slurm.start(self.spec.name, len(node_names(self.spec)), controller)
        return controller

    def controller(self) -> Controller:
        """Return where Slurm is, as far as the bucket and the VM tell."""
        vm = look(self.head).vm
        names = [one.name[len(ENGINE) :] for one in self.head.store.list(f"{ENGINE}slurm-")]
        address = vm.value.internal_ip if isinstance(vm, Present) else ""
        return Controller(address, self.port, next(iter(names), ""))

    def price(self) -> FleetPrice:
        """Return what an hour of the whole fleet costs."""
        catalog, zone = self.head.catalog, self.spec.tpu.zones[0]
        one = hourly(replace(self.spec, vm="none"), catalog, zone)
        both = hourly(self.spec, catalog, zone)
        head = replace(both, lines=tuple(line for line in both.lines if line not in one.lines))
        return FleetPrice(self.spec, head, one, len(node_names(self.spec)), self.choice.cloud == "local")

    def submit_missing(self, slurm: Slurm) -> int:
        """Queue each task that the bucket knows and Slurm has forgotten; return how many were looked at."""
        count = 0
        for order in fleet_orders.read_all(self.head.store):
            numbers = unfinished(order, fleet_orders.ended(self.head.store, order.name))
            if numbers:
                slurm.submit(order.name, order.script, numbers)
            count += len(numbers)
        return count


def _part_of(path: Path, fleet: str) -> bool:
    try:
        return fleet_of(spec_in(path)) == fleet
    except TpuctlError:
        return False


def fleet_up(
    choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter],
    show_price: Callable[[FleetPrice], None],
) -> FleetUp:  # fmt: skip
    """
    Bring up VM, Slurm and all nodes side by side; what is right stays.

    *show_price* comes before anything is made, and may raise. Nodes that the file does not want any more go.
    """
    fleet = Fleet(choice, reporter, reporter_of)
    show_price(fleet.price())
    fleet.write_code()
    bring_up(choice, reporter, session=fleet.head)
    reporter.now("Slurm is brought to the VM")
    controller = fleet.start_slurm()
    reporter.say(f"Slurm's controller runs on the VM at {controller.address}:{controller.port}")
    wanted = node_names(fleet.spec)
    for name in fleet.known():
        if name not in wanted:
            _end(fleet, name, controller)
    sessions = {name: fleet.node(name, controller) for name in wanted}
    found = _each(
        {name: partial(bring_up, choice, one.reporter, session=one) for name, one in sessions.items()}
    )
    fleet.submit_missing(fleet.slurm())
    missing = {name: error for name, error in found.items() if isinstance(error, TpuctlError)}
    return FleetUp(fleet.spec.name, fleet.bucket, tuple(n for n in wanted if n not in missing), missing)


def _each(work: dict[str, Callable[[], object]]) -> dict[str, object]:
    """Do all of it side by side; return what each returned, or the TpuctlError that it raised."""

    def safe(call: Callable[[], object]) -> object:
        try:
            return call()
        except TpuctlError as error:
            return error

    with threads.pool(AT_ONCE) as pool:
        futures: dict[str, Future[object]] = {name: pool.submit(safe, call) for name, call in work.items()}
        return {name: future.result() for name, future in futures.items()}


class _EventsOnly(Reporter):
    """Pass on what happens to a node; that its folder of the bucket stays is for the fleet to say."""

    def __init__(self, onward: Reporter) -> None:
        self._onward = onward

    def __call__(self, event: Event) -> None:
        self._onward(event)


def _end(fleet: Fleet, name: str, controller: Controller) -> Down:
    session = Session(
        fleet.choice, _EventsOnly(fleet.reporter_of(name)),
        node_spec(fleet.spec, name, fleet.bucket, controller), forgiving=True,
    )  # fmt: skip
    return take_down(fleet.choice, session.reporter, lambda *_: None, session=session)


@dataclass(frozen=True)
class NodeRow:
    """Say of one node: the state and zone of its TPU, what Slurm says of it, and which task it has."""

    name: str
    tpu: str
    zone: str
    slurm: str
    task: str


@dataclass(frozen=True)
class FleetStatus:
    """Hold the state of VM, nodes and queue; *trouble* is why Slurm did not answer."""

    name: str
    vm: str
    nodes: tuple[NodeRow, ...]
    waiting: int
    running: int
    usd: float
    trouble: str


def fleet_status(choice: Choice, reporter: Reporter) -> FleetStatus:
    """Return what exists; nothing is changed."""
    fleet = Fleet(choice, reporter, lambda _: Reporter(), only_looks=True)
    world = look(fleet.head)
    vm = world.vm.value.state.value if isinstance(world.vm, Present) else (
        "none" if isinstance(world.vm, Absent) else "not known"
    )  # fmt: skip
    states: dict[str, str] = {}
    tasks: dict[str, str] = {}
    waiting, trouble, nowhere = 0, "", Controller("", fleet.port, "")
    try:
        slurm = fleet.slurm()
        states = slurm.nodes()
        for one in slurm.queue():
            tasks |= {one.node: f"{one.job}/{one.number}"} if one.node else {}
            waiting += not one.node
    except TpuctlError as error:
        trouble = error.message
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known())))
    sessions = {name: fleet.node(name, nowhere) for name in names}
    sights = _each({name: partial(_nodes_of, session) for name, session in sessions.items()})
    usd = fleet.head.cost(fleet.head.records.current, fleet.head.clock.now())
    rows = []
    for name, session in sessions.items():
        state, zone = _tpu(sights[name])
        rows.append(NodeRow(name, state, zone, states.get(name, ""), tasks.get(name, "")))
        usd += session.cost(session.records.current, session.clock.now())
    return FleetStatus(fleet.spec.name, vm, tuple(rows), waiting, len(tasks), usd, trouble)


def _nodes_of(session: Session) -> Sight[tuple[Node, ...]]:
    return look(session).nodes


def _tpu(sights: object) -> tuple[str, str]:
    if not isinstance(sights, Present):
        return ("none", "") if isinstance(sights, Absent) else ("not known", "")
    nodes: Sequence[Node] = sights.value
    newest = max(nodes, key=lambda node: node.incarnation or 0, default=None)
    return (newest.state.name, newest.zone) if newest else ("none", "")


@dataclass(frozen=True)
class FleetDown:
    """Hold how each part ended; *bucket* is the one whose data stays, empty without one."""

    name: str
    nodes: int
    leftovers: dict[str, str]
    bucket: str

    def raise_leftovers(self) -> None:
        """Raise LeftoverError when something remains."""
        if self.leftovers:
            what = "; ".join(f"{name}: {why}" for name, why in self.leftovers.items())
            raise LeftoverError(
                f"left: {what}", hint="run: tpuctl fleet down", changed="everything else is gone"
            )


def fleet_down(
    choice: Choice, reporter: Reporter, reporter_of: Callable[[str], Reporter],
    approve: Callable[[str, bool], None], *, delete_data: bool = False,
) -> FleetDown:  # fmt: skip
    """
    Delete all nodes, then VM and, with *delete_data*, the bucket; lists by label prove that each is gone.

    *approve* is given the fleet's name and whether data goes, before anything does, and may raise.
    """
    fleet = Fleet(choice, reporter, reporter_of, forgiving=True)
    names = list(dict.fromkeys((*node_names(fleet.spec), *fleet.known())))
    reporter.say(f"- the VM and {len(names)} nodes of the fleet {fleet.spec.name}, with all tasks that run")
    reporter.say(
        f"- bucket {fleet.bucket} with all its data" if delete_data else f"  bucket {fleet.bucket} is kept"
    )
    approve(fleet.spec.name, delete_data)
    nowhere = Controller("", fleet.port, "")
    ends = _each({name: partial(_end, fleet, name, nowhere) for name in names})
    leftovers = {name: why for name, end in ends.items() if (why := _remaining(end))}
    if leftovers:
        # The VM and the bucket stay until no node needs them: the next `down` finds all of it again.
        return FleetDown(fleet.spec.name, len(names), leftovers, fleet.bucket)
    head = take_down(choice, reporter, lambda *_: None, delete_data=delete_data, session=fleet.head)
    why = _remaining(head)
    if not why and delete_data:
        for name in names:
            shutil.rmtree(fleet.head.folder.parent / name, ignore_errors=True)
    return FleetDown(
        fleet.spec.name, len(names), {fleet.spec.name: why} if why else {}, head.remaining_bucket
    )


def _remaining(end: object) -> str:
    if isinstance(end, TpuctlError):
        return end.message
    assert isinstance(end, Down)  # noqa: S101 (what take_down returns)
    return "; ".join(f"{i.kind} {i.name} {i.zone} ({i.state})" for i in end.leftovers)
