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


def observe(lab, spec):
    """Return what later states are compared with."""
    return Before(foreign_things(lab), newest(lab, spec))


def foreign_things(lab):
    """Return what is not ours, by name, with what would be another one under the same name."""
    state = lab.cloud.kernel.state
    machines = {**state.nodes, **state.instances}
    buckets = {b.name: b.generation for b in lab.storage.buckets.list("local-project")}
    found = {one.name: one.numeric_id for one in machines.values()}
    return {name: one for name, one in {**found, **buckets}.items() if "demo" not in name}


def newest(lab, spec):
    """Return the step of the newest complete checkpoint."""
    if not lab.objects(object_names.CHECKPOINTS):
        return None
    found = read_checkpoints(lab.open(spec).store, spec.job.checkpoint)
    return max((one.step for one in found if one.complete), default=None)


def ours(lab):
    """Return what is billed for us, or keeps a name from us."""
    lab.cloud.tick()
    state = lab.cloud.kernel.state
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


def check_running(lab, scenario, before):
    """One TPU with its job, one VM, a usable bucket; left alone from then on."""
    lab.wait(60)
    nodes = {name: state for name, state in lab.nodes().items() if name.startswith("demo")}
    assert list(nodes.values()) == [NodeState.READY], nodes
    assert {v: s for v, s in lab.vms().items() if v.startswith("demo")} == {"demo-vm": "RUNNING"}
    (name,) = nodes
    waiting = {q: s for q, s in lab.queued().items() if q.startswith("demo") and q not in nodes}
    demand("I1", f"left in the queue: {waiting}" if waiting else "")
    jobs = [m for m in lab.machines.running if "demo-tpu" in m]
    node = next(n for n in lab.cloud.kernel.state.nodes.values() if n.name == name)
    assert node.body["acceleratorType"] == scenario.spec.tpu.type
    demand("I2", f"jobs on {jobs}" if sorted(jobs) != sorted(w.id for w in node.workers) else "")
    policy = clients().storage.bucket(lab.bucket).get_iam_policy()
    assert any("objectAdmin" in binding["role"] for binding in policy.bindings), "machines could not write"
    _always(lab, scenario, before)
    retained = record(lab)
    demand("I8", invariants.i8_truly(retained.outcome, really=False))
    zones = (*zones_to_observe(scenario.spec, retained), names.vm_zone(scenario.spec))
    demand("I1", invariants.i1_findable(ours(lab), "demo", zones))
    demand("I3", invariants.i3_never_back(before.checkpoint, newest(lab, scenario.spec)))
    _untouched(lab, scenario)


def check_done(lab, scenario, before):
    """Nothing is paid for but a stopped VM's disk, and data stays."""
    check_over(lab, scenario, before, Outcome.DONE)


def check_over(lab, scenario, before, outcome):
    """The same of a deployment that has ended in another way."""
    lab.wait(60)
    live = ours(lab)
    assert {v: s for v, s in lab.vms().items() if v.startswith("demo")} == {"demo-vm": "TERMINATED"}
    demand("I4", invariants.i4_settled(True, [one for one in live if one.name != "demo-vm"], 0, 0))
    _always(lab, scenario, before)
    demand("I3", invariants.i3_never_back(before.checkpoint, newest(lab, scenario.spec)))
    demand("I8", "" if record(lab).outcome is outcome else f"it is {outcome.value}, and nobody says so")
    _untouched(lab, scenario)


def check_gone(lab, scenario, before):
    """Nothing of ours is there, or comes later; the data is where it was asked to be."""
    lab.wait(900)
    demand("I1", invariants.i1_gone(ours(lab)))
    _always(lab, scenario, before)
    if lab.objects():
        demand("I3", invariants.i3_never_back(before.checkpoint, newest(lab, scenario.spec)))


def _always(lab, scenario, before):
    """Check what holds whatever the command was."""
    assert foreign_things(lab) == before.foreign_things, "what is not ours was touched"
    demand("I2", _double_jobs(lab) if scenario.race else _doubles(lab, 2 if scenario.relay else 1))
    paid = {use.resource for use in lab.cloud.kernel.state.usage if "demo-tpu" in use.resource}
    demand("I7", f"paid for {sorted(paid)}" if len(paid) > scenario.nodes else "")


def _doubles(lab, most):
    """Return the TPUs of ours, when more than *most* of them were paid for at the same time."""
    uses = [
        (u.start, u.end or lab.clock.now(), u.resource)
        for u in lab.cloud.kernel.state.usage
        if "demo-tpu" in u.resource
    ]
    at_once = [sorted({name for start, end, name in uses if start <= at < end}) for at, _, _ in uses]
    worst = max(at_once, key=len, default=[])
    return f"more than {most} at a time: {worst}" if len(worst) > most else ""


def _double_jobs(lab):
    """Return the TPUs of a race that ran the job: the losers may be paid for, and must not train."""
    started = {name.rsplit("-w", 1)[0] for name, count in lab.machines.starts.items() if count}
    return f"jobs on {sorted(started)}" if len({s for s in started if "demo-tpu" in s}) > 1 else ""


def asked(lab, before):
    """Check that a command asks for nothing again and again (I5)."""
    for method, most in ASKS.items():
        count = lab.cloud.calls[method] - before[method]
        demand("I5", f"{count} times {method}" if count > most else "")


def record(lab):
    """Return the record that the bucket holds."""
    return decode(lab.get(object_names.RECORD), "demo")


def _untouched(lab, scenario):
    """Check that one who looks again changes nothing (I4)."""
    before = lab.mutations()
    scenario.again(lab, scenario.spec)
    demand("I4", invariants.i4_stable(lab.mutations() - before))
