"""What holds of queued resources and their nodes after any history of calls, losses, faults and restarts."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.emulator.state.values.node import NodeState
from orchestrator.emulator.state.values.queued import QueuedState as Q
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, SPOT_NODE, a_lab, node_body
from tests.emulator.queued_kit import QUEUED, an_active, queued_body, slices, spec

EXAMPLES = int(os.environ.get("TPUCTL_QUEUED_EXAMPLES", "100"))
NAMES = st.sampled_from(["a", "b"])
MEMBERS = st.sampled_from(["a", "b", "a-0", "a-1"])
FAULTS = ("no-capacity:5", "fall-back", "late-failure", "never-active", "stuck", "drop-answer", "stockout")
METHODS = tuple(f"tpu.queuedResources.{verb}" for verb in ("create", "delete", "reset"))
STATES = ("WAITING_FOR_RESOURCES", "PROVISIONING", "SUSPENDING", "FAILED")
WITH_NODES = {Q.PROVISIONING, Q.ACTIVE, Q.SUSPENDING, Q.DELETING}
ACTS = st.one_of(
    st.tuples(st.sampled_from(["submit", "slices", "on-demand", "delete", "force", "reset"]), NAMES),
    st.tuples(st.sampled_from(["node", "node-delete", "preempt", "kill", "vanish"]), MEMBERS),
    st.tuples(st.just("move"), st.tuples(NAMES, st.sampled_from(STATES))),
    st.tuples(st.just("fault"), st.tuples(st.sampled_from(METHODS), st.sampled_from(FAULTS))),
    st.tuples(st.just("fault"), st.tuples(st.just("tpu.nodes.delete"), st.just("stuck"))),
    st.tuples(st.just("save"), NAMES),
)
PAUSES = st.sampled_from([0.0, 0.3, 1.0, 2.0, 3.5])


def controls(lab, what, argument):
    """Do what is done behind the callers' backs."""
    if what == "save":
        lab.cloud.restore(lab.cloud.snapshot())
    elif what == "fault":
        lab.cloud.fail_next(argument[0], [argument[1]])
    elif what == "move":
        lab.cloud.set_queued_state(*argument)
    elif what == "preempt":
        lab.cloud.preempt(argument)
    elif what == "kill":
        lab.cloud.kill_worker(argument, 0)
    else:
        lab.cloud.set_node_state(argument, "vanish")


def act(lab, what, argument):
    """Do one step; what is refused is fine."""
    create = f"{QUEUED}?queuedResourceId={argument}"
    calls = {
        "submit": lambda: lab.call("POST", create, queued_body(spec(argument))),
        "slices": lambda: lab.call("POST", create, queued_body(slices(2))),
        "on-demand": lambda: lab.call("POST", create, queued_body(spec(argument), tier=None)),
        "delete": lambda: lab.call("DELETE", f"{QUEUED}/{argument}"),
        "force": lambda: lab.call("DELETE", f"{QUEUED}/{argument}?force=true"),
        "reset": lambda: lab.call("POST", f"{QUEUED}/{argument}:reset"),
        "node": lambda: lab.call("POST", f"{NODES}?nodeId={argument}", node_body(**SPOT_NODE)),
        "node-delete": lambda: lab.call("DELETE", f"{NODES}/{argument}"),
    }
    try:
        calls.get(what, lambda: controls(lab, what, argument))()
    except LocalCloudError:
        return


def check(lab):
    """Compare queued resources, nodes, machines, bill and operations with each other."""
    lab.cloud.tick()
    state = lab.cloud.kernel.state
    made = {}
    for found in state.queued.values():
        nodes = lab.cloud.queued.transitions.members(found)
        made |= {(node.zone, node.name): node for node in nodes}
        assert not nodes or found.state in WITH_NODES, found.state
        if found.state is Q.ACTIVE:
            assert len(nodes) == len(found.wanted)
            assert not {node.state for node in nodes} & {NodeState.CREATING, NodeState.PREEMPTED}
        assert (found.state is Q.FAILED) <= (found.error is not None)
    assert {key: node for key, node in state.nodes.items() if node.queued} == made
    without = (NodeState.CREATING, NodeState.PREEMPTED, NodeState.TERMINATED)
    allowed = {w.id for node in state.nodes.values() if node.state not in without for w in node.workers}
    # A preempted node has lost its machine, also while a deletion that is held up shows it as DELETING.
    going = {w.id for n in state.nodes.values() if n.state is NodeState.DELETING for w in n.workers}
    assert allowed - going <= set(state.machines) <= allowed
    billed = sorted(usage.resource for usage in state.usage if usage.end is None)
    paid = (NodeState.READY, NodeState.RESTARTING)
    assert billed == sorted(node.path for node in state.nodes.values() if node.state in paid)
    assert {name for name, op in state.operations.items() if not op.done} == set(state.open_operations)


# Each change is checked with the same histories; a longer run, by the variable, draws new ones.
@settings(max_examples=EXAMPLES, deadline=None, derandomize="TPUCTL_QUEUED_EXAMPLES" not in os.environ)
@given(st.lists(st.tuples(ACTS, PAUSES), min_size=8, max_size=25), st.booleans())
def test_no_node_without_its_queued_resource_and_no_leak(record, several):
    """After each step all agree; after a forced deletion of everything nothing is left, running or billed."""
    lab = a_lab()
    an_active(lab, *([slices(2)] if several else [spec("a")]), name="a")
    for (what, argument), pause in record:
        act(lab, what, argument)
        check(lab)
        lab.after(pause)
        check(lab)
    lab.cloud.kernel.state.faults.clear()
    lab.after(1)
    deleted_by_force(lab)
    state = lab.cloud.kernel.state
    assert [state.queued, state.nodes, state.machines] == [{}, {}, {}]
    assert all(usage.end is not None for usage in state.usage)


def deleted_by_force(lab):
    """Delete all; deletions that a fault holds up for ever are helped along."""
    for found in lab.cloud.queued_resources():
        if found.state is Q.DELETING:
            found.enter(Q.SUSPENDED)
        lab.ok("DELETE", f"{QUEUED}/{found.name}?force=true")
    lab.after(100)
    for _, name in list(lab.cloud.kernel.state.nodes):
        lab.cloud.set_node_state(name, "vanish")
