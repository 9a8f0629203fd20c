"""Build worlds for tests: a healthy one, changed by overrides."""

from dataclasses import replace

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Bucket, Node, NodeState, Present, Vm, VmState, Worker, World
from orchestrator.domain.record import Record
from orchestrator.domain.spec import JobSpec, Spec, TpuSpec
from tests.kit.records import changed, record_of

NOW = 1_800_000_000.0
ZONE = "us-central1-a"
OTHER_ZONE = "us-central1-b"


def spec(**overrides) -> Spec:
    """Return a small valid spec."""
    base = Spec(
        name="demo",
        tpu=TpuSpec(type="v5litepod-8", zones=(ZONE, OTHER_ZONE)),
        job=JobSpec(command="python train.py"),
    )
    return replace(base, **overrides)


def node(incarnation: int = 1, **overrides) -> Node:
    """Return a READY node of an incarnation."""
    base = Node(
        name=f"demo-tpu-g{incarnation}",
        zone=ZONE,
        state=NodeState.READY,
        incarnation=incarnation,
        workers=(Worker(0, "127.0.0.2"),),
        created_at=NOW - 1000,
    )
    return replace(base, **overrides)


def vm(**overrides) -> Vm:
    """Return a running VM."""
    return replace(Vm("demo-vm", ZONE, VmState.RUNNING), **overrides)


def heartbeat(worker: int = 0, **overrides) -> Heartbeat:
    """Return a fresh heartbeat of a running job; one that is done has saved."""
    base = Heartbeat(incarnation=1, worker=worker, phase=Phase.RUN, updated=NOW, bundle="b", step=10)
    saved = {"committed_step": 10} if overrides.get("phase") is Phase.DONE else {}
    return replace(base, **{**saved, **overrides})


def world(**overrides) -> World:
    """Return a world in which everything runs."""
    base = World(
        bucket=Present(Bucket("b", "us-central1")),
        vm=Present(vm()),
        nodes=Present((node(),)),
        heartbeats=Present((heartbeat(),)),
        observed_at=NOW,
    )
    return replace(base, **overrides)


def record(**overrides) -> Record:
    """Return the record of a deployment that runs its first incarnation."""
    base = record_of(
        started_at=NOW - 2000,
        incarnation=1,
        zone=ZONE,
        accepted=True,
        requested_at=NOW - 1000,
        zones_used=(ZONE,),
        vm_accepted=True,
        bucket_observed=True,
        bucket_ready=True,
        bundle="b",
        agent="a",
        uploaded="b:a",
        pushed="1:b",
        first_seen={"node:1:ready": NOW - 900},
        type="v5litepod-8",
    )
    return changed(base, **overrides)
