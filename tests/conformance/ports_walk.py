"""Random walks: many calls in an order that nobody thought of, with faults among them."""

from random import Random

from orchestrator.domain.observation import Operation
from orchestrator.domain.plan import Kind
from tests.conformance.ports_kit import BUCKET, each
from tests.conformance.ports_refusals import STEPS
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_bucket, a_node, a_vm

STEPS_OF_A_WALK = 40
FAULTS = {"tpu": ["transient", "concurrent operation", "permission denied", "already exists"],
          "compute": ["permission denied", "quota on call", "already exists"],
          "storage": ["no access", "precondition", "rate of one object"]}  # fmt: skip


def _calls(way, rng, operations):
    """Return what may come next, each as a function without arguments."""
    number, zone = rng.randrange(4), rng.choice([ZONE, OTHER_ZONE])
    node, vm, name = f"demo-tpu-g{number}", f"vm-{number % 2}", f"o/{number}"
    kind, spot = rng.choice(["v5litepod-4", "v5litepod-8", "v5litepod-16"]), rng.random() < 0.7
    generation = rng.choice([None, 0, 5])
    return [
        lambda: way.tried(way.nodes.create, a_node(name=node, zone=zone, type=kind, spot=spot)),
        lambda: way.tried(way.nodes.delete, node, zone),
        lambda: way.tried(way.nodes.labelled, LABEL, "demo", [zone]),
        lambda: way.tried(way.vms.create, a_vm(name=vm, zone=zone, spot=spot, ttl=600.0 * (number + 1))),
        lambda: way.tried(way.vms.delete, vm, zone),
        lambda: way.tried(way.vms.start, vm, zone),
        lambda: way.tried(way.vms.stop, vm, zone),
        lambda: way.tried(way.vms.observe, vm, zone),
        lambda: way.tried(way.vms.labelled, LABEL, "demo", [zone]),
        lambda: way.tried(way.buckets.create, a_bucket()),
        lambda: way.tried(way.buckets.observe, BUCKET),
        lambda: way.tried(way.store.write, name, b"x" * number, generation),
        lambda: way.tried(way.store.read, name, number % 3),
        lambda: way.tried(way.store.list, "o/"),
        lambda: way.tried(way.store.delete, name),
        lambda: [way.tried((way.nodes if o.kind is Kind.NODE else way.vms).poll, o) for o in operations[-3:]],
    ]  # fmt: skip


def _disturb(way, rng):
    """Let time pass, arm a fault, or preempt what can be."""
    roll = rng.random()
    if roll < 0.3:
        way.wait(rng.choice([0.1, 1.7, 40.0, 700.0]))
    elif roll < 0.5:
        method = rng.choice([*STEPS])
        faults = [*FAULTS[method.partition(".")[0]], "drop-answer", "latency:3.5"]
        way.local.fail_next(method, [rng.choice(faults)])
    elif roll < 0.6:
        kernel = way.local.kernel.state
        live = [*kernel.nodes.values(), *kernel.instances.values()]
        spot = [f"{x.zone}/{x.name}" for x in live if x.spot and x.epoch < 3 and x.epoch > 0]
        if spot:
            _preempt(way, rng.choice(spot), rng.random() < 0.5)


def _preempt(way, name, notice):
    from orchestrator.errors import LocalCloudError

    try:
        way.local.preempt(name, notice)
    except LocalCloudError as error:
        way.log.append(error.message)


@each(range(16), latency="scaled")
def a_random_walk_ends_in_the_same_place(way, value):
    """Forty calls from one seed."""
    rng, operations = Random(value), []
    for _ in range(STEPS_OF_A_WALK):
        _disturb(way, rng)
        outcome = rng.choice(_calls(way, rng, operations))()
        if isinstance(outcome, Operation):
            operations.append(outcome)
    way.wait(4000)
    way.seen()
