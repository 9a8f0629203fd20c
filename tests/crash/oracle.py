"""What must hold after somebody came back: I1 to I8 as far as one deployment can break them."""

from dataclasses import dataclass

from orchestrator.contract.bucket import object_names
from orchestrator.domain import names
from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Outcome
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.reconcile.observe import zones_to_observe
from orchestrator.engine.records.record_format import decode
from tests.kit.wire import clients
from tests.simulation import invariants
from tests.simulation.invariants import Live

ASKS = {
    "tpu.nodes.create": 3,
    "tpu.queuedResources.create": 3,
    "compute.instances.insert": 3,
    "compute.instances.start": 2,
}
"""How often one command may ask for each: after a refusal of an earlier ask, once more, and once again."""


@dataclass(frozen=True)
class Before:
    """Remember what was there when a scenario began."""

    foreign_things: dict
    checkpoint: int | None


def observe(stage, spec):
    """Return what later states are compared with."""
    return Before(foreign_things(stage), newest(stage, spec))


def foreign_things(stage):
    """Return what is not ours, by name, with what would be another one under the same name."""
    state = stage.cloud.kernel.state
    machines = {**state.nodes, **state.instances}
    buckets = {b.name: b.generation for b in stage.storage.buckets.list("local-project")}
    found = {one.name: one.numeric_id for one in machines.values()}
    return {name: one for name, one in {**found, **buckets}.items() if "demo" not in name}


def newest(stage, spec):
    """Return the step of the newest complete checkpoint."""
    if not stage.objects(object_names.CHECKPOINTS):
        return None
    found = read_checkpoints(stage.open(spec).store, spec.job.checkpoint)
    return max((one.step for one in found if one.complete), default=None)


def ours(stage):
    """Return what is billed for us, or keeps a name from us."""
    stage.cloud.tick()
    state = stage.cloud.kernel.state
    nodes = [Live("TPU", n.name, n.zone, n.body.get("labels", {})) for n in state.nodes.values()]
    vms = [Live("VM", v.name, v.zone, dict(v.labels)) for v in state.instances.values()]
    named = {v.name for v in state.instances.values()}
    disks = [Live("disk", name, zone, {}) for zone, name in state.disks if name not in named]
    places = [
        Live("queued resource", q.name, q.zone, q.wanted[0].body.get("labels", {}))
        for q in state.queued.values()
    ]
    return [one for one in (*nodes, *vms, *disks, *places) if one.name.startswith("demo")]


def demand(invariant, violation):
    """Fail unless there is no *violation*."""
    assert not violation, f"{invariant}: {violation}"


def check_running(stage, scenario, before):
    """One TPU with its job, one VM, a usable bucket; left alone from then on."""
    stage.wait(60)
    nodes = {name: state for name, state in stage.nodes().items() if name.startswith("demo")}
    assert list(nodes.values()) == [NodeState.READY], nodes
    assert {v: s for v, s in stage.vms().items() if v.startswith("demo")} == {"demo-vm": "RUNNING"}
    (name,) = nodes
    waiting = {q: s for q, s in stage.queued().items() if q.startswith("demo") and q not in nodes}
    demand("I1", f"left in the queue: {waiting}" if waiting else "")
    jobs = [m for m in stage.machines.running if "demo-tpu" in m]
    node = next(n for n in stage.cloud.kernel.state.nodes.values() if n.name == name)
    assert node.body["acceleratorType"] == scenario.spec.tpu.type
    demand("I2", f"jobs on {jobs}" if sorted(jobs) != sorted(w.id for w in node.workers) else "")
    policy = clients().storage.bucket(stage.bucket).get_iam_policy()
    assert any("objectAdmin" in binding["role"] for binding in policy.bindings), "machines could not write"
    _always(stage, scenario, before)
    retained = record(stage)
    demand("I8", invariants.i8_truly(retained.outcome, really=False))
    zones = (*zones_to_observe(scenario.spec, retained), names.vm_zone(scenario.spec))
    demand("I1", invariants.i1_findable(ours(stage), "demo", zones))
    demand("I3", invariants.i3_never_back(before.checkpoint, newest(stage, scenario.spec)))
    _untouched(stage, scenario)


def check_done(stage, scenario, before):
    """Nothing is paid for but a stopped VM's disk, and data stays."""
    check_over(stage, scenario, before, Outcome.DONE)


def check_over(stage, scenario, before, outcome):
    """The same of a deployment that has ended in another way."""
    stage.wait(60)
    live = ours(stage)
    assert {v: s for v, s in stage.vms().items() if v.startswith("demo")} == {"demo-vm": "TERMINATED"}
    demand("I4", invariants.i4_settled(True, [one for one in live if one.name != "demo-vm"], 0, 0))
    _always(stage, scenario, before)
    demand("I3", invariants.i3_never_back(before.checkpoint, newest(stage, scenario.spec)))
    demand("I8", "" if record(stage).outcome is outcome else f"it is {outcome.value}, and nobody says so")
    _untouched(stage, scenario)


def check_gone(stage, scenario, before):
    """Nothing of ours is there, or comes later; the data is where it was asked to be."""
    stage.wait(900)
    demand("I1", invariants.i1_gone(ours(stage)))
    _always(stage, scenario, before)
    if stage.objects():
        demand("I3", invariants.i3_never_back(before.checkpoint, newest(stage, scenario.spec)))


def _always(stage, scenario, before):
    """Check what holds whatever the command was."""
    assert foreign_things(stage) == before.foreign_things, "what is not ours was touched"
    demand("I2", _double_jobs(stage) if scenario.race else _doubles(stage, 2 if scenario.relay else 1))
    paid = {use.resource for use in stage.cloud.kernel.state.usage if "demo-tpu" in use.resource}
    demand("I7", f"paid for {sorted(paid)}" if len(paid) > scenario.nodes else "")


def _doubles(stage, most):
    """Return the TPUs of ours, when more than *most* of them were paid for at the same time."""
    uses = [
        (u.start, u.end or stage.clock.now(), u.resource)
        for u in stage.cloud.kernel.state.usage
        if "demo-tpu" in u.resource
    ]
    at_once = [sorted({name for start, end, name in uses if start <= at < end}) for at, _, _ in uses]
    worst = max(at_once, key=len, default=[])
    return f"more than {most} at a time: {worst}" if len(worst) > most else ""


def _double_jobs(stage):
    """Return the TPUs of a race that ran the job: the losers may be paid for, and must not train."""
    started = {name.rsplit("-w", 1)[0] for name, count in stage.machines.starts.items() if count}
    return f"jobs on {sorted(started)}" if len({s for s in started if "demo-tpu" in s}) > 1 else ""


def asked(stage, before):
    """Check that a command asks for nothing again and again (I5)."""
    for method, most in ASKS.items():
        count = stage.cloud.calls[method] - before[method]
        demand("I5", f"{count} times {method}" if count > most else "")


def record(stage):
    """Return the record that the bucket holds."""
    return decode(stage.get(object_names.RECORD), "demo")


def _untouched(stage, scenario):
    """Check that one who looks again changes nothing (I4)."""
    before = stage.mutations()
    scenario.again(stage, scenario.spec)
    demand("I4", invariants.i4_stable(stage.mutations() - before))
