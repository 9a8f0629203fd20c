"""Cases about queued resources: requests, states, deadlines, deletions, faults."""

from orchestrator.domain.machines.queued_resource import QueuedState
from orchestrator.domain.observation import Absent, Operation, Present, Unknown
from orchestrator.domain.plan import Kind
from orchestrator.errors import Retry
from tests.conformance.ports_kit import NODE, case, each
from tests.emulator.emulator_lab import node_body
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_node

QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
CREATE = "tpu.queuedResources.create"
NODES = {
    "spot": {},
    "on demand": {"spot": False},
    "no outside address": {"external_ip": False},
    "slice": {"type": "v5litepod-16"},
    "no labels": {"labels": {}},
    "odd metadata": {"metadata": {"Some_Key": "\u00fcn\u00ef\n'\"", "empty": ""}},
    "no account": {"service_account": "", "scopes": ()},
    "wrong type": {"type": "v4-8"},
    "wrong zone": {"zone": "europe-north9-z"},
    "bad name": {"name": "Not_A_Name"},
}


def listed(way, zones=(ZONE,)):
    """Return the queued resources as the list shows them."""
    return way.ok(way.queued.labelled, LABEL, "demo", list(zones))


@each([*NODES])
def a_queued_resource_is_made_as_requested(way, value):
    """The request becomes the same queued resource and node, or meets the same refusal."""
    new = a_node(**NODES[value])
    outcome = way.tried(way.queued.create, new, 3600.0)
    if isinstance(outcome, Operation):
        assert outcome.kind is Kind.QUEUED
        way.ok(way.queued.poll, outcome)
    way.tried(way.queued.observe, new.name, new.zone)
    way.tried(way.queued.labelled, LABEL, "demo", [new.zone])
    way.seen()


@case(latency="scaled")
def a_queued_resource_takes_its_time(way):
    """Absent at first, waiting, provisioned, active, suspended by a preemption, deleted: each is observed."""
    made = way.ok(way.queued.create, a_node(), None)
    assert way.ok(way.queued.observe, NODE, ZONE) == Absent()
    states = []
    for _ in range(40):
        way.wait(0.1)
        observed = way.ok(way.queued.observe, NODE, ZONE)
        states.append(observed.value.state.name if isinstance(observed, Present) else None)
    assert way.ok(way.queued.poll, made).done
    way.local.preempt(NODE, notice=False)
    listed(way), way.seen()
    way.wait(1)
    observed = way.ok(way.queued.observe, NODE, ZONE).value
    assert (observed.state, observed.by_user) == (QueuedState.SUSPENDED, False)
    gone = way.ok(way.queued.delete, NODE, ZONE, force=False)
    listed(way)
    way.wait(1)
    assert way.ok(way.queued.poll, gone).done
    assert listed(way) == Present(())
    in_turn = ["CREATING", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    assert list(dict.fromkeys(filter(None, states))) == in_turn


@case(latency="scaled")
def a_node_that_another_program_deletes_is_reported_apart(way):
    """SUSPENDED by the user is no preemption."""
    way.ok(way.queued.create, a_node(), None)
    way.wait(5)
    way.ok(way.nodes.delete, NODE, ZONE)
    way.wait(1)
    observed = way.ok(way.queued.observe, NODE, ZONE).value
    assert (observed.state, observed.by_user) == (QueuedState.SUSPENDED, True)


@case()
def a_deletion_without_force_spares_the_node(way):
    """It is refused while there is a node; with force both go; one that is gone is None."""
    way.ok(way.queued.create, a_node(), None)
    way.refused(way.queued.delete, NODE, ZONE, force=False)
    assert len(way.seen().value) == 1
    way.ok(way.queued.delete, NODE, ZONE, force=True)
    assert way.ok(way.queued.delete, NODE, ZONE, force=True) is None
    assert way.seen() == Present(())


@case(stockouts=frozenset({ZONE}))
def a_request_that_got_nothing_in_time_fails(way):
    """FAILED with one of our errors."""
    way.ok(way.queued.create, a_node(), 60.9)
    way.wait(59)
    assert listed(way).value[0].state is QueuedState.WAITING_FOR_RESOURCES
    way.wait(2)
    (found,) = listed(way).value
    assert (found.state, found.code, found.retry) == (QueuedState.FAILED, "TPU-400", Retry.TRANSIENT)
    way.ok(way.queued.delete, NODE, ZONE, force=False)


@case(quotas={(QUOTA, ZONE): 8})
def a_dead_one_holds_quota_and_name(way):
    """Quota and conflict until it is deleted."""
    way.ok(way.queued.create, a_node(), None)
    way.local.preempt(NODE, notice=False)
    assert way.refused(way.queued.create, a_node(), None).code == "TPU-409"
    assert way.refused(way.queued.create, a_node(name="demo-tpu-g4"), None).code == "TPU-350"
    way.ok(way.queued.delete, NODE, ZONE, force=False)
    way.ok(way.queued.create, a_node(name="demo-tpu-g4"), None)


@each([*QueuedState.__members__])
def each_state_is_known(way, value):
    """The states of the model are those of the port; a state nobody knows is unspecified."""
    if value == "STATE_UNSPECIFIED":
        return
    way.ok(way.queued.create, a_node(), None)
    way.local.tick()
    (found,) = way.local.queued_resources()
    found.enter(type(found.state)[value])
    assert way.ok(way.queued.observe, NODE, ZONE).value.state is QueuedState[value]


@each(["fall-back", "late-failure", "never-active", "no-capacity", "stuck", "flex start unsupported"])
def what_a_queued_resource_meets_is_reported_alike(way, value):
    """Every fault of provisioning, looked at for some seconds."""
    way.local.fail_next(CREATE, [value])
    made = way.ok(way.queued.create, a_node(), None)
    for _ in range(5):
        way.wait(0.6)
        way.ok(way.queued.poll, made), listed(way), way.seen()


@each(["transient", "api disabled", "permission denied", "concurrent operation", "drop-answer"])
def a_queued_call_that_fails_means_the_same(way, value):
    """Each call: what the port makes of it, and the next try goes on."""
    way.ok(way.queued.create, a_node(), None)
    steps = {
        "get": lambda: way.tried(way.queued.observe, NODE, ZONE),
        "list": lambda: way.tried(way.queued.labelled, LABEL, "demo", [ZONE, OTHER_ZONE]),
        "create": lambda: way.tried(way.queued.create, a_node(name="demo-tpu-g4"), 60.0),
        "delete": lambda: way.tried(way.queued.delete, NODE, ZONE, force=True),
    }
    for verb, step in steps.items():
        way.local.fail_next(f"tpu.queuedResources.{verb}", [value])
        step()
        assert way.local.unused_faults() == []
        step()


@case()
def a_partial_list_of_queued_resources_is_unknown(way):
    """A zone that does not answer hides whether something waits there."""
    way.ok(way.queued.create, a_node(), None)
    way.local.fail_next("tpu.queuedResources.list", ["unreachable"])
    observed = listed(way, [ZONE, OTHER_ZONE])
    assert isinstance(observed, Unknown)
    assert "no answer from" in observed.message


@case()
def a_long_list_of_queued_resources_has_pages(way):
    """600 of them come on two pages; those of others are not shown."""
    parent = f"projects/local-project/locations/{ZONE}"
    for index in range(600):
        name, node = f"demo-tpu-g{index}", node_body(labels={LABEL: "demo" if index % 100 == 0 else "other"})
        spec = {"parent": parent, "nodeId": name, "node": node}
        way.local.queued.create(ZONE, name, {"tpu": {"nodeSpec": [spec]}, "spot": {}})
    assert len(listed(way).value) == 6
