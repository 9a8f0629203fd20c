"""Each refusal of the error table at each call that the ports make, lost answers and partial lists."""

from orchestrator.domain.observation import Unknown
from tests.conformance.ports_kit import BUCKET, NODE, VM, each
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_bucket, a_node, a_vm
from tests.google.error_table import EXPECTED, table

# method -> a step that makes this call, on a furnished cloud
STEPS = {
    "tpu.nodes.create": lambda way, _: way.tried(way.nodes.create, a_node(name="demo-tpu-g4")),
    "tpu.nodes.delete": lambda way, _: way.tried(way.nodes.delete, NODE, ZONE),
    "tpu.nodes.list": lambda way, _: way.tried(way.nodes.labelled, LABEL, "demo", [ZONE, OTHER_ZONE]),
    "tpu.nodes.get": lambda way, _: way.tried(way.nodes.observe, NODE, ZONE),
    "tpu.operations.get": lambda way, made: way.tried(way.nodes.poll, made[0]),
    "tpu.nodes.getGuestAttributes": lambda way, _: way.tried(way.nodes.host_keys, NODE, ZONE, 0),
    "compute.instances.insert": lambda way, _: way.tried(way.vms.create, a_vm(name="other-vm")),
    "compute.instances.get": lambda way, _: way.tried(way.vms.observe, VM, ZONE),
    "compute.instances.list": lambda way, _: way.tried(way.vms.labelled, LABEL, "demo", [ZONE, OTHER_ZONE]),
    "compute.instances.start": lambda way, _: way.tried(way.vms.start, VM, ZONE),
    "compute.instances.stop": lambda way, _: way.tried(way.vms.stop, VM, ZONE),
    "compute.instances.delete": lambda way, _: way.tried(way.vms.delete, VM, ZONE),
    "compute.zoneOperations.get": lambda way, made: way.tried(way.vms.poll, made[1]),
    "compute.instances.getGuestAttributes": lambda way, _: way.tried(way.vms.host_keys, VM, ZONE),
    "storage.buckets.insert": lambda way, _: way.tried(way.buckets.create, a_bucket(name="other-bucket")),
    "storage.buckets.list": lambda way, _: way.tried(way.buckets.observe, BUCKET),
    "storage.buckets.get": lambda way, _: way.tried(way.adopted.observe, BUCKET),
    "storage.buckets.getIamPolicy": lambda way, _: way.tried(way.buckets.create, a_bucket(writer="x@y.z")),
    "storage.buckets.setIamPolicy": lambda way, _: way.tried(way.buckets.create, a_bucket(writer="x@y.z")),
    "storage.buckets.delete": lambda way, _: way.tried(way.buckets.delete, BUCKET),
    "storage.objects.insert": lambda way, _: way.tried(way.store.write, "b", b"x"),
    "storage.objects.get": lambda way, _: way.tried(way.store.read, "a"),
    "storage.objects.list": lambda way, _: way.tried(way.store.list, ""),
    "storage.objects.delete": lambda way, _: way.tried(way.store.delete, "a"),
}
ROWS = [row for row in table() if row["where"] == "call"]
SERVICES = {"tpu v2": "tpu.", "compute v1": "compute.", "storage v1": "storage."}
REFUSALS = [
    (method, row["api"], row["case"])
    for row in ROWS
    for method in STEPS
    if method.startswith(SERVICES[row["api"]])
]
RAISES = {"tpu.nodes.create", "compute.instances.insert", "compute.instances.start", "storage.objects.insert"}
MUTATING = [
    m for m in STEPS if m.rpartition(".")[2] not in {"get", "list", "getGuestAttributes", "getIamPolicy"}
]
OPERATIONS = {
    "lro": ["tpu.nodes.create", "tpu.nodes.delete"],
    "op.error": [f"compute.instances.{verb}" for verb in ("insert", "start", "stop", "delete")],
}
FAILED = [(method, r["case"], r["api"]) for r in table() for method in OPERATIONS.get(r["where"], ())]


@each(REFUSALS)
def a_refusal_means_the_same_at_every_call(way, value):
    """The call meets the refusal; what the port makes of it is written down, and the next try goes on."""
    method, api, name = value
    made = way.furnish()
    way.local.fail_next(method, [name])
    outcome = STEPS[method](way, made)
    assert way.local.unused_faults() == []
    if method in RAISES:
        assert outcome.code == EXPECTED[api, name][1]
    STEPS[method](way, made)


@each([*STEPS])
def a_call_goes_well(way, value):
    """Without a fault, and a second time."""
    made = way.furnish()
    STEPS[value](way, made)
    STEPS[value](way, made)


@each(MUTATING)
def a_lost_answer_has_its_effect(way, value):
    """The caller learns nothing, the cloud has done it; the next try copes with that."""
    made = way.furnish()
    way.local.fail_next(value, ["drop-answer"])
    STEPS[value](way, made)
    assert way.local.unused_faults() == []
    STEPS[value](way, made)


@each([m for m in STEPS if m not in MUTATING])
def a_lost_answer_to_a_read_is_unknown(way, value):
    """Nothing is made of an answer that did not come."""
    made = way.furnish()
    way.local.fail_next(value, ["drop-answer"])
    outcome = STEPS[value](way, made)
    assert (
        isinstance(outcome, Unknown) or getattr(outcome, "done", None) is False or outcome.code == "TPU-400"
    )


@each([m for m in STEPS if m not in MUTATING])
def a_slow_answer_is_an_answer(way, value):
    """The time passes; nothing else is different."""
    made = way.furnish()
    before = way.clock.now()
    way.local.fail_next(value, ["latency:20"])
    STEPS[value](way, made)
    assert way.clock.now() - before == 20


@each(["tpu.nodes.list", "compute.instances.list"])
def a_partial_list_is_unknown(way, value):
    """A zone that could not be asked says nothing about its machines."""
    made = way.furnish()
    way.local.fail_next(value, ["unreachable"])
    observed = STEPS[value](way, made)
    assert isinstance(observed, Unknown)
    assert ZONE in observed.message or OTHER_ZONE in observed.message
    STEPS[value](way, made)


@each(FAILED)
def an_operation_that_fails_says_so_when_polled(way, value):
    """The call succeeds, the operation carries the error."""
    method, name, api = value
    made = way.furnish()
    way.local.fail_next(method, [name])
    port = way.nodes if method.startswith("tpu.") else way.vms
    result = way.ok(port.poll, STEPS[method](way, made))
    _, code, retry, _ = EXPECTED[api, name]
    assert (result.done, result.code, result.retry.value) == (True, code, retry)
    way.ok(port.poll, STEPS[method](way, made))


@each(sorted(OPERATIONS["lro"] + OPERATIONS["op.error"]))
def a_stuck_operation_is_not_done(way, value):
    """However long one waits."""
    made = way.furnish()
    way.local.fail_next(value, ["stuck"])
    operation = STEPS[value](way, made)
    way.wait(86400)
    port = way.nodes if value.startswith("tpu.") else way.vms
    assert not way.ok(port.poll, operation).done
