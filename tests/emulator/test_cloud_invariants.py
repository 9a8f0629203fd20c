"""What holds in the model after any history of calls, preemptions and faults."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.emulator.state.values.instance import Status
from orchestrator.emulator.state.values.node import NodeState
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, SPOT_NODE, SPOT_VM, VMS, a_lab, node_body, vm_body

NAMES = st.sampled_from(["a", "b"])
NODE_ACTS = ("create", "delete", "stop", "start", "preempt", "kill", "vanish", "pod")
VM_ACTS = ("insert", "delete", "stop", "start", "reset", "preempt")
FAULTS = ("stuck", "drop-answer", "latency:3")
ACTS = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODE_ACTS), NAMES),
    st.tuples(st.just("vm"), st.sampled_from(VM_ACTS), NAMES),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 1.0, 2.5, 100.0]), NAMES),
    st.tuples(
        st.just("fault"), st.sampled_from(FAULTS), st.sampled_from(["tpu.nodes.create", "tpu.nodes.delete"])
    ),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS), st.sampled_from(["compute.instances.stop"])),
    st.tuples(st.just("save"), st.just(0.0), NAMES),
)


def act_on_node(lab, verb, name):
    """Call one verb on a node; refusals are fine."""
    extra = {"acceleratorType": "v5litepod-16"} if verb == "pod" else SPOT_NODE if name == "a" else {}
    if verb in ("create", "pod"):
        lab.call("POST", f"{NODES}?nodeId={name}", node_body(**extra))
    elif verb == "delete":
        lab.call("DELETE", f"{NODES}/{name}")
    elif verb in ("stop", "start"):
        lab.call("POST", f"{NODES}/{name}:{verb}")
    elif verb == "preempt":
        lab.cloud.preempt(f"europe-west4-b/{name}")
    elif verb == "kill":
        lab.cloud.kill_worker(f"europe-west4-b/{name}", 0)
    else:
        lab.cloud.set_node_state(f"europe-west4-b/{name}", "vanish")


def act_on_vm(lab, verb, name):
    """Call one verb on a VM; refusals are fine."""
    if verb == "insert":
        lab.call("POST", VMS, vm_body(f"vm-{name}", **(SPOT_VM if name == "a" else {})))
    elif verb == "delete":
        lab.call("DELETE", f"{VMS}/vm-{name}")
    elif verb == "preempt":
        lab.cloud.preempt(f"vm-{name}", notice=False)
    else:
        lab.call("POST", f"{VMS}/vm-{name}/{verb}")


def act(lab, kind, what, name):
    """Do one step of a record."""
    if kind == "wait":
        lab.after(what)
    elif kind == "fault":
        lab.cloud.fail_next(name, [what])
    elif kind == "save":
        lab.cloud.restore(lab.cloud.snapshot())
    else:
        try:
            (act_on_node if kind == "node" else act_on_vm)(lab, what, name)
        except LocalCloudError:
            return


def check(lab):
    """Compare nodes, VMs, machines, addresses, disks and the bill with each other."""
    state = lab.cloud.kernel.state
    expected = {vm.machine_id for vm in state.instances.values()}
    for node in state.nodes.values():
        gone = node.state in (NodeState.CREATING, NodeState.PREEMPTED, NodeState.TERMINATED)
        expected |= set() if gone else {worker.id for worker in node.workers}
    assert set(state.machines) == expected
    addresses = [machine.address for machine in state.machines.values()]
    assert len(set(addresses)) == len(addresses)
    assert {(vm.zone, a.disk) for vm in state.instances.values() for a in vm.disks} == set(state.disks)
    billed = sorted(usage.resource for usage in state.usage if usage.end is None and usage.kind != "disk")
    ready = [node.path for node in state.nodes.values() if node.state is NodeState.READY]
    running = [vm.path for vm in state.instances.values() if vm.status is Status.RUNNING]
    assert set(ready) | set(running) <= set(billed)
    assert len(set(billed)) == len(billed)
    assert {name for name, op in state.operations.items() if not op.done} == set(state.open_operations)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTS, max_size=25))
def test_nothing_leaks_or_doubles_whatever_happens(record):
    """Machines, disks, addresses and billed stretches match the resources after each step."""
    lab = a_lab()
    for kind, what, name in record:
        act(lab, kind, what, name)
        check(lab)
    delete_everything(lab)
    state = lab.cloud.kernel.state
    assert [state.nodes, state.instances, state.disks, state.machines] == [{}, {}, {}, {}]
    assert all(usage.end is not None for usage in state.usage)


def delete_everything(lab):
    """Delete all that is left, faults used up first."""
    lab.cloud.kernel.state.faults.clear()
    lab.after(1000)  # the deletion of a node that is being created would be dropped
    for name in ("a", "b"):
        if (found := lab.call("GET", f"{NODES}/{name}"))[0] == 200:
            if found[1]["state"] == "DELETING":
                lab.cloud.set_node_state(f"europe-west4-b/{name}", "vanish")
            lab.call("DELETE", f"{NODES}/{name}")
        lab.call("DELETE", f"{VMS}/vm-{name}")
    lab.after(1000)
