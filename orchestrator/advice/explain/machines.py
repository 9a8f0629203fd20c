"""Explain bucket, VM and TPU."""

from collections.abc import Sequence

from orchestrator.advice.explain.values import Evidence, Part, Seen, journal_of, next_pass, steps_text
from orchestrator.domain import names
from orchestrator.domain.first_seen import Sign, of_node
from orchestrator.domain.maintenance import maintenance_text
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Node,
    NodeState,
    Present,
    Sight,
    Unknown,
    Vm,
    VmState,
)
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import TERMINAL, Record, Refusal, current_node
from orchestrator.domain.tpu_shape import unwanted
from orchestrator.planning.decide import decide_bucket
from orchestrator.planning.drift import drift_notes
from orchestrator.planning.job import reports
from orchestrator.planning.never_reported import late_to_report
from orchestrator.planning.next_zone import create_gate, full_zones, hopeless, next_zone, remembered
from orchestrator.planning.preemption import stopped_for_good
from orchestrator.planning.race import candidates, undecided
from orchestrator.planning.step import Step
from orchestrator.planning.tpu import PASSING, Judgement, decide_node, judge_node
from orchestrator.planning.vm import decide_vm

LAST_REFUSALS = 3


def not_visible(what: str, sight: Unknown, seen: Seen) -> Part:
    """Explain what could not be seen."""
    evidence = (Evidence("cloud", seen.world.observed_at, sight.why),)
    you = sight.hint or "nothing; it is looked at again"
    return Part(
        what, "unknown", sight.why, "sight.unknown", evidence, "look again", next_pass(seen), you
    )  # fmt: skip


def explain_bucket(seen: Seen) -> Part:
    """Explain the bucket."""
    sight, now = seen.world.bucket, seen.world.observed_at
    if isinstance(sight, Unknown):
        return not_visible("bucket", sight, seen)
    step = decide_bucket(seen.spec, seen.world, seen.record)
    if isinstance(sight, Present) and not step.changes:
        held = sight.value
        evidence = (Evidence("cloud", now, f"{held.name} in {held.location}"),)
        return Part("bucket", "present", "it is there", "bucket.kept", evidence, calm=True)
    asked = (_looked("bucket", sight, now), *journal_of(seen, "bucket"))
    if isinstance(sight, Absent) and seen.record.bucket.observed:
        gone = (*asked, Evidence("record", None, "the bucket was there before"))
        you = "tpuctl down --delete-data, then tpuctl up, to begin anew"
        return Part("bucket", "gone", step.waiting, "bucket.gone", gone, you=you)
    return _asked_for("bucket", "absent", "bucket.first", step, seen, Kind.BUCKET, asked)


def explain_vm(seen: Seen) -> Part:
    """Explain the VM."""
    sight, now = seen.world.vm, seen.world.observed_at
    if seen.spec.vm == "none":
        return Part("VM", "none", "none is wanted", "vm.none", calm=True)
    if isinstance(sight, Unknown):
        return not_visible("VM", sight, seen)
    step = decide_vm(seen.spec, seen.world, seen.record)
    evidence = (_looked(names.vm_name(seen.spec), sight, now), *journal_of(seen, "vm"))
    if isinstance(sight, Absent):
        rule = "vm.make" if step.changes or not seen.record.vm.accepted else "sight.twice"
        return _asked_for("VM", "absent", rule, step, seen, Kind.VM, evidence)
    state = sight.value.state
    if state is VmState.RUNNING:
        return Part("VM", state.value, "it runs", "vm.kept", evidence[:1], you=_differing(seen), calm=True)
    rule = "vm.start" if state in {VmState.TERMINATED, VmState.SUSPENDED} else "vm.moves"
    return _asked_for("VM", state.value, rule, step, seen, Kind.VM, evidence)


def _differing(seen: Seen) -> str:
    """Return what the file wants otherwise in a VM that runs."""
    return "; ".join(drift_notes(seen.spec, seen.world))


def explain_tpu(seen: Seen) -> Part:
    """Explain the TPU: its state, for how long, and what the rules make of it."""
    sight = seen.world.nodes
    if isinstance(sight, Unknown):
        return not_visible("TPU", sight, seen)
    node = current_node(seen.world, seen.record)
    judgement = judge_node(seen.spec, node, seen.world, seen.record)
    step = decide_node(seen.spec, seen.world, seen.record)
    evidence = (*_node_evidence(seen, node), *journal_of(seen, "node"))
    state = "absent" if node is None else node.state.name
    rule = _node_rule(node, seen, judgement, step)
    if rule == "tpu.kept" and not step.changes:
        return Part("TPU", state, "it is READY and healthy", rule, evidence, calm=True)
    if rule == "tpu.reports" and not step.changes:
        shown = node.health if node is not None and node.state is NodeState.READY else state
        return Part("TPU", state, f"its workers report, so {shown} alone changes nothing", rule, evidence)
    return _asked_for("TPU", state, rule, step, seen, Kind.NODE, evidence, judgement.why)


def _node_rule(node: Node | None, seen: Seen, judgement: Judgement, step: Step) -> str:
    """Return the rule that decided about the current node."""
    record = seen.record
    if undecided(record) and candidates(record):
        return "tpu.race"
    if node is None:
        return "tpu.make" if step.changes or not record.node.accepted else "sight.twice"
    gone = node.state in TERMINAL or node.state is NodeState.DELETING
    if not gone and stopped_for_good(seen.spec, seen.world, node):
        return "tpu.left"
    if unwanted(record) and node.state not in TERMINAL:
        return "tpu.unwanted"
    if gone or node.state is NodeState.STOPPED:
        return "tpu.lost"
    if node.state is not NodeState.READY or not node.healthy:
        return _odd_rule(node, seen)
    if late_to_report(seen.spec, seen.world, record) and judgement.silent:
        return "tpu.mute"
    return "tpu.unreachable" if judgement.why else "tpu.kept"


def _odd_rule(node: Node, seen: Seen) -> str:
    """Return the rule for a TPU that is there, and that the API does not call READY and healthy."""
    if reports(seen.spec, seen.world, node):
        return "tpu.reports"
    if node.state is NodeState.CREATING:
        return "tpu.queued" if node.queued else "tpu.creating"
    return "tpu.passing" if node.state in PASSING else "tpu.unhealthy"


def _node_evidence(seen: Seen, node: Node | None) -> tuple[Evidence, ...]:
    record, now = seen.record, seen.world.observed_at
    found = [Evidence("cloud", now, _node_text(node, record))]
    state = "absent" if node is None else node.state.name.lower()
    seen_as = Sign.ABSENT if node is None else node.state
    since = record.first_seen.get(of_node(record.node.incarnation, seen_as))
    if since is not None:
        found.append(Evidence("record", since, f"seen {state} for the first time"))
    if record.node.requested_at:
        text = f"incarnation {record.node.incarnation} asked for in {record.node.zone}"
        found.append(Evidence("record", record.node.requested_at, text))
    for rival in record.race.rivals:
        text = f"incarnation {rival.incarnation} asked for in {rival.zone}, in race {record.race.round}"
        found.append(Evidence("record", rival.requested_at, text))
    found += [Evidence("record", *known) for known in remembered(seen.spec, record)]
    for operation in record.operations:
        if operation.kind is Kind.NODE:
            text = f"{operation.verb.word} of {operation.name} is under way"
            found.append(Evidence("record", operation.started_at or None, text))
    return tuple(found)


def _node_text(node: Node | None, record: Record) -> str:
    if node is None:
        return f"no TPU of incarnation {record.node.incarnation}" if record.node.incarnation else "no TPU"
    health = "" if node.healthy else f" ({node.health})"
    told = maintenance_text(node.maintenance)
    health += f"; {told}, which alone changes nothing" if told else ""
    queued = f", its queued resource {node.queued.state.name}" if node.queued else ""
    return f"{node.name} in {node.zone} is {node.state.name}{health}{queued}"


def _looked(name: str, sight: Sight[Bucket] | Sight[Vm], now: float) -> Evidence:
    if not isinstance(sight, Present):
        return Evidence("cloud", now, f"{name} is not there")
    held = sight.value
    return Evidence("cloud", now, f"{name} is {held.state.value if isinstance(held, Vm) else 'there'}")


def _asked_for(
    what: str, state: str, rule: str, step: Step, seen: Seen, kind: Kind,
    evidence: tuple[Evidence, ...], why: str = "",
) -> Part:  # fmt: skip
    """Explain what is about to be made, changed or waited for; refusals of its kind come first."""
    refused = [r for r in seen.record.refusals if r.kind is kind]
    why = why or (step.changes[-1].why if step.changes else step.waiting)
    evidence = (*_refusals(refused), *evidence)
    if refused and not step.changes:
        return _refused(what, state, seen, kind, refused[-1], evidence, len(refused))
    if step.changes:
        nexts, you = steps_text(step.changes), "" if next_pass(seen, step) else "tpuctl watch"
        return Part(what, state, why, rule, evidence, nexts, next_pass(seen, step), you)
    you = "" if next_pass(seen) else "tpuctl watch"
    return Part(what, state, why, rule, evidence, step.waiting or "look again", next_pass(seen, step), you)


def _refusals(refused: Sequence[Refusal]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence("record", r.at, f"refused{f' in {r.zone}' if r.zone else ''} ({r.retry.value}): {r.text}")
        for r in refused[-LAST_REFUSALS:]
    )


def _refused(
    what: str, state: str, seen: Seen, kind: Kind, last: Refusal, evidence: tuple[Evidence, ...], count: int
) -> Part:
    final = hopeless(seen.record)
    why = f"{count} refusal{'s' if count > 1 else ''}, the last for {last.retry.value}"
    if final is not None:
        you = final.hint or "mend the cause, then run: tpuctl up"
        return Part(what, state, why, "refused.final", evidence, "nothing", None, you)
    world = seen.world
    zone = last.zone
    if kind is Kind.NODE:
        zone = next_zone(
            seen.spec,
            seen.record,
            world.observed_at,
            world.prices,
            full_zones(seen.spec, world, seen.record),
        )
    gate = create_gate(seen.spec, seen.record, zone, kind)
    when = max(gate, next_pass(seen) or 0.0) if next_pass(seen) else None
    you = last.hint or "name more zones in tpu.zones, or wait"
    nexts = f"ask again{f' in {zone}' if zone else ''}, not before the wait is over"
    return Part(what, state, why, "refused.wait", evidence, nexts, when, you)
