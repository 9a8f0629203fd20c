"""Cases about machines: states, labels, lists, operations, ends, addresses, host keys."""

from dataclasses import replace

from orchestrator.domain.observation import Absent, NodeState, Operation, Present, Unknown, VmState
from orchestrator.domain.plan import Kind, Verb
from orchestrator.errors import Retry
from orchestrator.google.bodies import as_json, instance_body
from tests.conformance.ports_kit import NODE, VM, case, each
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_node, a_vm

QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
NODE_STATES = [s.name for s in NodeState if s is not NodeState.STATE_UNSPECIFIED]
NODES = {
    "spot": {},
    "on demand": {"spot": False},
    "no outside address": {"external_ip": False},
    "slice": {"type": "v5litepod-16"},
    "no labels": {"labels": {}},
    "odd labels": {"labels": {LABEL: "demo", "empty": "", "a_b-c": "x_y-z"}},
    "no metadata": {"metadata": {}},
    "odd metadata": {"metadata": {"Some_Key": "ünï\n'\"", "empty": "", "snake_case": "1"}},
    "no account": {"service_account": "", "scopes": ()},
    "wrong type": {"type": "v4-8"},
    "no such type": {"type": "v99-8"},
    "wrong zone": {"zone": "europe-north9-z"},
    "bad name": {"name": "Not_A_Name"},
    "no name": {"name": ""},
    "other zone": {"zone": OTHER_ZONE, "type": "v5litepod-4"},
}
VMS = {
    "standard": {},
    "spot": {"spot": True},
    "short life": {"ttl": 1.0},
    "long life": {"ttl": 1e9},
    "odd life": {"ttl": 3600.7},
    "large disk": {"disk_gb": 5000},
    "no labels": {"labels": {}},
    "odd labels": {"labels": {LABEL: "demo", "empty": ""}},
    "no metadata": {"metadata": {}},
    "odd metadata": {"metadata": {"Some_Key": "ünï\n'\"", "empty": ""}},
    "bad metadata": {"metadata": {"a key": "x"}},
    "no account": {"service_account": "", "scopes": ()},
    "no such machine": {"machine_type": "e9-huge"},
    "v5e machine": {"machine_type": "ct5lp-hightpu-4t"},
    "wrong zone": {"zone": "europe-north9-z"},
    "bad name": {"name": "Not_A_Name"},
}


@each([*NODES])
def a_node_is_made_as_requested(way, value):
    """The new one becomes the same node, or meets the same refusal, and the list shows the same."""
    new = a_node(**NODES[value])
    outcome = way.tried(way.nodes.create, new)
    if isinstance(outcome, Operation):
        way.ok(way.nodes.poll, outcome)
    way.tried(way.nodes.labelled, LABEL, "demo", [new.zone])
    if new.name:  # the official client refuses to ask for a node without one
        way.tried(way.nodes.observe, new.name, new.zone)


@each([*VMS])
def a_vm_is_made_as_requested(way, value):
    """The new one becomes the same VM with the same end, or meets the same refusal."""
    new = a_vm(**VMS[value])
    outcome = way.tried(way.vms.create, new)
    if isinstance(outcome, Operation):
        way.ok(way.vms.poll, outcome)
    way.tried(way.vms.observe, new.name, new.zone)


@each(NODE_STATES)
def a_node_shows_its_state_and_can_be_deleted(way, value):
    """Each state of the API, what a delete answers there, and what is left."""
    way.ok(way.nodes.create, a_node())
    way.local.set_node_state(NODE, value)
    (node,) = way.seen().value
    assert node.state is NodeState[value]
    way.tried(way.nodes.delete, NODE, ZONE)
    way.seen()


@each(["TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "HEALTHY", "vanish"])
def a_node_shows_its_health(way, value):
    """READY alone does not mean healthy; a node may vanish without a word."""
    way.ok(way.nodes.create, a_node())
    way.local.set_node_state(NODE, value)
    way.seen()


@each(["born:TIMEOUT", "born:UNHEALTHY_TENSORFLOW", "never-reports", "late-ready:600"])
def a_node_shows_how_it_was_born(way, value):
    """READY without a word, READY and sick, or CREATING with machines that can be reached."""
    way.local.fail_next("tpu.nodes.create", [value])
    way.ok(way.nodes.create, a_node())
    (node,) = way.seen().value
    assert node.workers


@each(["maintenance:600", "maintenance"])
def a_node_shows_its_maintenance(way, value):
    """What the client of v2 does not know is read beside: one node by its name, and in a list."""
    way.ok(way.nodes.create, a_node())
    assert way.seen().value[0].maintenance is None
    way.local.set_node_state(NODE, value)
    assert way.seen().value[0].maintenance.status == "PENDING"
    assert way.ok(way.nodes.observe, NODE, ZONE).value.maintenance.begins > 0
    way.wait(3600)
    assert way.seen().value[0].maintenance.status == "ONGOING"


@each(["scaled", "realistic"])
def a_life_takes_its_time(way, value):
    """Creating, ready, preempted after its notice, deleted: observed every half second."""
    way.local.kernel.settings = replace(way.local.settings, latency=_profile(value))
    made, vm = way.ok(way.nodes.create, a_node()), way.ok(way.vms.create, a_vm(spot=True))
    for step in range(12):
        way.wait(20 if value == "realistic" else 0.3)
        way.ok(way.nodes.poll, made), way.ok(way.vms.poll, vm), way.seen(), way.ok(way.vms.observe, VM, ZONE)
        if step == 9:
            way.local.preempt(NODE)
            way.local.preempt(VM)
    way.wait(60)
    gone = way.ok(way.nodes.delete, NODE, ZONE)
    way.seen(), way.ok(way.nodes.poll, gone)
    way.wait(100)
    assert way.ok(way.nodes.poll, gone).done
    assert way.seen() == Present(())


def _profile(name):
    from orchestrator.emulator.state.cloud_settings import PROFILES

    return PROFILES[name]


@case(latency="scaled")
def a_vm_goes_through_its_statuses(way):
    """Made, stopped, started, deleted: each status and each operation on the way."""
    operation = way.ok(way.vms.create, a_vm(spot=True))
    for verb in (way.vms.stop, way.vms.start, way.vms.delete):
        for _ in range(6):
            way.ok(way.vms.observe, VM, ZONE)
            way.ok(way.vms.poll, operation)
            way.wait(0.3)
        operation = way.ok(verb, VM, ZONE)
    way.wait(5)
    assert way.ok(way.vms.observe, VM, ZONE) == Absent()


@case()
def nodes_of_others_are_skipped(way):
    """Only the label and the value that were asked for."""
    for name, labels in (("ours-tpu-g1", {LABEL: "demo"}), ("else-tpu-g1", {LABEL: "else"}), ("bare", {})):
        way.ok(way.nodes.create, a_node(name=name, labels=labels))
    assert [n.name for n in way.seen().value] == ["ours-tpu-g1"]


@case()
def vms_of_others_are_skipped(way):
    """The same for VMs."""
    for name, labels in (("ours", {LABEL: "demo"}), ("else", {LABEL: "else"}), ("bare", {})):
        way.ok(way.vms.create, a_vm(name=name, labels=labels))
    assert [v.name for v in way.ok(way.vms.labelled, LABEL, "demo", [ZONE]).value] == ["ours"]


@case()
def vms_of_all_zones_are_one_call(way):
    """Whose label is ours; a list that could not look says where, one that is refused shows nothing."""
    for name, zone in (("ours", ZONE), ("far", OTHER_ZONE)):
        way.ok(way.vms.create, a_vm(name=name, zone=zone, labels={LABEL: "demo"}))
    way.ok(way.vms.create, a_vm(name="else", labels={LABEL: "else"}))
    found = way.ok(way.vms.list_all_zones, LABEL, "demo").value
    assert {v.name: v.zone for v in found.found} == {"ours": ZONE, "far": OTHER_ZONE}
    assert way.local.calls["compute.instances.aggregatedList"] == 1
    way.local.fail_next("compute.instances.aggregatedList", ["unreachable"])
    way.ok(way.vms.list_all_zones, LABEL, "demo")


@each([(), (ZONE,), (ZONE, ZONE), (OTHER_ZONE, ZONE), (ZONE, "europe-north9-z")])
def zones_are_asked_once_each_in_their_order(way, value):
    """No zones have no machines; a zone that there is not makes the whole unknown."""
    way.furnish()
    way.ok(way.nodes.create, a_node(name="demo-tpu-g4", zone=OTHER_ZONE, type="v5litepod-4"))
    way.ok(way.vms.create, a_vm(name="other-vm", zone=OTHER_ZONE))
    way.ok(way.nodes.labelled, LABEL, "demo", value)
    way.ok(way.vms.labelled, LABEL, "demo", value)
    assert way.local.calls["tpu.nodes.list"] == len(set(value))


@case(hidden_zones=frozenset({OTHER_ZONE}))
def a_hidden_zone_makes_the_whole_list_unknown(way):
    """Unknown is not absent, and waiting does not help."""
    way.ok(way.nodes.create, a_node())
    observed = way.ok(way.nodes.labelled, LABEL, "demo", [ZONE, OTHER_ZONE])
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.PERMANENT


@case()
def long_lists_of_nodes_have_pages(way):
    """More nodes than a page holds are all listed."""
    for number in range(501):
        body = {
            "acceleratorType": "v5litepod-1",
            "runtimeVersion": "v2-alpha-tpuv5-lite",
            "labels": {LABEL: "demo"},
        }
        way.local.tpu.create(ZONE, f"demo-tpu-g{number}", body)
    assert len(way.seen().value) == 501
    assert way.local.calls["tpu.nodes.list"] == 2


@case()
def long_lists_of_vms_have_pages(way):
    """The filter comes first, then the pages."""
    for number in range(503):
        new = a_vm(name=f"vm-{number}", labels={LABEL: "demo" if number > 1 else "else"})
        way.local.compute.insert(ZONE, as_json(instance_body(new), presence=True))
    assert len(way.ok(way.vms.labelled, LABEL, "demo", [ZONE]).value) == 501
    assert way.local.calls["compute.instances.list"] == 2


@case(quotas={(QUOTA, ZONE): 8})
def quota_is_refused_at_the_call(way):
    """A preempted node still holds it."""
    way.ok(way.nodes.create, a_node())
    way.local.preempt(NODE)
    assert way.refused(way.nodes.create, a_node(name="demo-tpu-g4")).code == "TPU-350"
    way.ok(way.nodes.delete, NODE, ZONE)
    way.ok(way.nodes.create, a_node(name="demo-tpu-g4"))


@case(quotas={("CPUS", "europe-west4"): 2})
def a_vm_beyond_the_quota_fails_in_its_operation(way):
    """The call succeeds."""
    way.ok(way.vms.create, a_vm())
    result = way.ok(way.vms.poll, way.ok(way.vms.create, a_vm(name="second")))
    assert result.retry is Retry.QUOTA


@case(stockouts=frozenset({ZONE}), latency="scaled")
def a_stockout_shows_in_the_operation(way):
    """For nodes and for VMs, after a while."""
    node, vm = way.ok(way.nodes.create, a_node()), way.ok(way.vms.create, a_vm())
    for _ in range(3):
        way.ok(way.nodes.poll, node), way.ok(way.vms.poll, vm), way.seen()
        way.wait(0.4)
    assert way.ok(way.nodes.poll, node).code == way.ok(way.vms.poll, vm).code == "TPU-300"


@case()
def a_taken_name_is_a_conflict(way):
    """Of a node and of a VM; the same new VM is the same request."""
    way.furnish()
    assert not way.refused(way.nodes.create, a_node()).aborted
    assert not way.refused(way.vms.create, a_vm(disk_gb=60)).aborted
    way.ok(way.vms.create, a_vm())


@case()
def an_insert_after_a_deletion_is_a_new_vm(way):
    """Compute Engine remembers the request id longer than the VM lives."""
    first = way.ok(way.vms.create, a_vm())
    way.ok(way.vms.delete, VM, ZONE)
    assert way.ok(way.vms.create, a_vm()).id != first.id
    assert way.ok(way.vms.observe, VM, ZONE).value.state is VmState.RUNNING


@case()
def a_failed_insert_is_not_replayed(way):
    """Once the failure is known, the next try has another request id."""
    way.local.fail_next("compute.instances.insert", ["stockout"])
    way.ok(way.vms.poll, way.ok(way.vms.create, a_vm()))
    assert way.ok(way.vms.poll, way.ok(way.vms.create, a_vm())).retry is None


@case(latency="scaled")
def a_repeated_insert_is_the_same_operation(way):
    """After a lost answer too."""
    way.local.fail_next("compute.instances.insert", ["drop-answer"])
    way.refused(way.vms.create, a_vm())
    assert way.ok(way.vms.create, a_vm()).id == way.ok(way.vms.create, a_vm()).id


@case()
def what_is_gone_needs_no_deletion(way):
    """Delete and stop say None; start says that there is nothing."""
    assert way.ok(way.nodes.delete, NODE, ZONE) is None
    assert way.ok(way.vms.delete, VM, ZONE) is None
    assert way.ok(way.vms.stop, VM, ZONE) is None
    assert way.refused(way.vms.start, VM, ZONE).code == "TPU-404"
    assert way.ok(way.vms.observe, VM, ZONE) == Absent()


@case(latency="scaled")
def a_node_that_is_being_deleted_is_busy(way):
    """A second delete is an aborted conflict; the first goes on."""
    way.ok(way.nodes.create, a_node())
    way.wait(5)
    way.ok(way.nodes.delete, NODE, ZONE)
    assert way.refused(way.nodes.delete, NODE, ZONE).aborted


@each([Kind.NODE, Kind.VM])
def an_operation_that_nobody_remembers_is_over(way, value):
    """Only the resource shows how it ended."""
    way.furnish()
    place = f"projects/local-project/locations/{ZONE}/operations/" if value is Kind.NODE else ""
    port = way.nodes if value is Kind.NODE else way.vms
    result = way.ok(port.poll, Operation(f"{place}operation-0", value, Verb.CREATE, "x", ZONE))
    assert (result.done, result.retry, result.forgotten) == (True, None, True)


@each([0, 2, 7])
def host_keys_are_those_of_the_worker(way, value):
    """Each worker has its own; a worker that there is not is a mistake of ours."""
    way.ok(way.nodes.create, a_node(type="v5litepod-16"))
    for index, machine in enumerate(way.local.machines()):
        for kind in ("ssh-rsa", "ssh-ed25519"):
            way.local.put_guest_attribute(machine.id, "hostkeys", kind, f"{kind[4]}{index}")
        way.local.put_guest_attribute(machine.id, "guest", "other", "x")
    way.tried(way.nodes.host_keys, NODE, ZONE, value)
    way.local.kill_worker(NODE, 2)
    way.tried(way.nodes.host_keys, NODE, ZONE, value)


@case()
def host_keys_come_with_the_boot(way):
    """Before, and for machines that are not there, none is found."""
    way.furnish()
    assert way.refused(way.nodes.host_keys, NODE, ZONE, 0).code == "TPU-404"
    assert way.refused(way.vms.host_keys, VM, ZONE).code == "TPU-404"
    way.refused(way.nodes.host_keys, "nobody", ZONE, 0)
    way.refused(way.vms.host_keys, "nobody", ZONE)
    for machine in way.local.machines():
        way.local.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", "AAAA")
    assert way.ok(way.vms.host_keys, VM, ZONE) == way.ok(way.nodes.host_keys, NODE, ZONE, 0)


@each([True, False])
def a_life_ends_by_itself(way, value):
    """A standard VM is deleted at the end of its life, a spot VM stops."""
    way.ok(way.vms.create, a_vm(ttl=3600, spot=value))
    way.wait(3599)
    way.ok(way.vms.observe, VM, ZONE)
    way.wait(2)
    assert isinstance(way.ok(way.vms.observe, VM, ZONE), Present if value else Absent)


@case(disabled_apis=frozenset({"tpu.googleapis.com", "compute.googleapis.com"}))
def an_api_that_is_off_names_the_command(way):
    """API and project come from the answer."""
    hints = [way.refused(way.nodes.create, a_node()).hint, way.refused(way.vms.create, a_vm()).hint]
    assert all("gcloud services enable" in hint and "local-project" in hint for hint in hints)


@each(["tpu.nodes.create", "compute.instances.create", "storage.buckets.create", "storage.objects.create"])
def a_denied_permission_is_named(way, value):
    """With the role that has it."""
    from tests.google.adapter_lab import a_bucket

    if value == "storage.objects.create":
        way.buckets.create(a_bucket())
    settings = type(way.local.settings)(denied_permissions=frozenset({value}))
    way.local.kernel.settings = settings
    steps = {"tpu": lambda: way.refused(way.nodes.create, a_node()),
             "compute": lambda: way.refused(way.vms.create, a_vm()),
             "storage": lambda: way.refused(*((way.store.write, "a", b"x") if "objects" in value
                                              else (way.buckets.create, a_bucket())))}  # fmt: skip
    error = steps[value.partition(".")[0]]()
    assert value in error.hint
