"""Explain the states of bucket, VM and TPU."""

from collections.abc import Sequence

from orchestrator.advice.explain.explanation import (
    DeploymentFacts,
    Evidence,
    ExplainedPart,
    journal_of,
    next_pass,
    steps_text,
)
from orchestrator.domain import names
from orchestrator.domain.first_seen import Sign, of_node
from orchestrator.domain.maintenance import maintenance_text
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Node,
    NodeState,
    Observed,
    Present,
    Unknown,
    Vm,
    VmState,
)
from orchestrator.domain.plan import Kind, Step
from orchestrator.domain.record import TERMINAL, Record, Refusal, current_node, succeeded
from orchestrator.domain.tpu_shape import unwanted
from orchestrator.planning.decide import decide_bucket
from orchestrator.planning.drift import drift_notes
from orchestrator.planning.job import reports
from orchestrator.planning.never_reported import late_to_report
from orchestrator.planning.next_zone import create_gate, full_zones, hopeless, next_zone, remembered
from orchestrator.planning.preemption import stopped_for_good
from orchestrator.planning.race import candidates, undecided
from orchestrator.planning.tpu import NodeJudgement, decide_node, judge_node
from orchestrator.planning.vm import decide_vm

LAST_REFUSALS = 3


def not_visible(what: str, observed: Unknown, facts: DeploymentFacts) -> ExplainedPart:
    """Explain why the state of a resource is Unknown, and what that means for the next pass."""
    evidence = (Evidence("cloud", facts.world.observed_at, observed.why),)
    you = observed.hint or "nothing; it is checked again"
    return ExplainedPart(
        what, "unknown", observed.why, "sight.unknown", evidence, "look again", next_pass(facts), you
    )  # fmt: skip


def explain_bucket(facts: DeploymentFacts) -> ExplainedPart:
    """Explain why the bucket is present, deleted, absent or Unknown, and what happens next."""
    observed, now = facts.world.bucket, facts.world.observed_at
    if isinstance(observed, Unknown):
        return not_visible("bucket", observed, facts)
    step = decide_bucket(facts.spec, facts.world, facts.record)
    if isinstance(observed, Present) and not step.changes:
        held = observed.value
        evidence = (Evidence("cloud", now, f"{held.name} in {held.location}"),)
        return ExplainedPart("bucket", "present", "it is there", "bucket.kept", evidence, calm=True)
    asked = (_looked("bucket", observed, now), *journal_of(facts, "bucket"))
    if isinstance(observed, Absent) and facts.record.bucket.observed:
        gone = (*asked, Evidence("record", None, "the bucket was there before"))
        you = "tpuctl down --delete-data, then tpuctl up, to start over"
        return ExplainedPart("bucket", "gone", step.waiting, "bucket.gone", gone, you=you)
    return _asked_for("bucket", "absent", "bucket.first", step, facts, Kind.BUCKET, asked)


def explain_vm(facts: DeploymentFacts) -> ExplainedPart:
    """Explain the VM's state by the rule that the next pass applies to it, with evidence."""
    observed, now = facts.world.vm, facts.world.observed_at
    if facts.spec.vm == "none":
        return ExplainedPart("VM", "none", "none is wanted", "vm.none", calm=True)
    if isinstance(observed, Unknown):
        return not_visible("VM", observed, facts)
    step = decide_vm(facts.spec, facts.world, facts.record)
    evidence = (_looked(names.vm_name(facts.spec), observed, now), *journal_of(facts, "vm"))
    if isinstance(observed, Absent):
        rule = "vm.make" if step.changes or not facts.record.vm.accepted else "sight.twice"
        return _asked_for("VM", "absent", rule, step, facts, Kind.VM, evidence)
    state = observed.value.state
    if state is VmState.RUNNING:
        return ExplainedPart(
            "VM", state.value, "it runs", "vm.kept", evidence[:1], you=_differing(facts), calm=True
        )
    rule = "vm.start" if state in {VmState.TERMINATED, VmState.SUSPENDED} else "vm.moves"
    return _asked_for("VM", state.value, rule, step, facts, Kind.VM, evidence)


def _differing(facts: DeploymentFacts) -> str:
    """Return how a running VM differs from the file, in words; empty if it does not."""
    return "; ".join(drift_notes(facts.spec, facts.world))


def explain_tpu(facts: DeploymentFacts) -> ExplainedPart:
    """Explain the TPU: its state, for how long, and what the rules make of it."""
    observed = facts.world.nodes
    if isinstance(observed, Unknown):
        return not_visible("TPU", observed, facts)
    node = current_node(facts.world, facts.record)
    judgement = judge_node(facts.spec, node, facts.world, facts.record)
    step = decide_node(facts.spec, facts.world, facts.record)
    evidence = (*_node_evidence(facts, node), *journal_of(facts, "node"))
    state = "absent" if node is None else node.state.name
    rule = _node_rule(node, facts, judgement, step)
    if rule == "tpu.kept" and not step.changes:
        return ExplainedPart("TPU", state, "it is READY and healthy", rule, evidence, calm=True)
    if rule == "tpu.reports" and not step.changes:
        shown = node.health if node is not None and node.state is NodeState.READY else state
        return ExplainedPart(
            "TPU", state, f"its workers report, so {shown} alone changes nothing", rule, evidence
        )
    return _asked_for("TPU", state, rule, step, facts, Kind.NODE, evidence, judgement.why)


def _node_rule(node: Node | None, facts: DeploymentFacts, judgement: NodeJudgement, step: Step) -> str:
    """Return the rule that decided about the current node."""
    record = facts.record
    # In the planner's own order: the first rule that applies is the one that has decided.
    if undecided(record) and candidates(record):
        return "tpu.race"
    making = any(change.beside for change in step.changes)
    if node is not None and (making or (succeeded(record) and candidates(record))):
        return "tpu.next"
    if node is None:
        return "tpu.make" if step.changes or not record.node.accepted else "sight.twice"
    gone = node.state in TERMINAL or node.state is NodeState.DELETING
    if not gone and stopped_for_good(facts.spec, facts.world, node):
        return "tpu.left"
    if unwanted(record) and node.state not in TERMINAL:
        return "tpu.unwanted"
    if gone or node.state is NodeState.STOPPED:
        return "tpu.lost"
    if node.state is not NodeState.READY or not node.healthy:
        return _odd_rule(node, facts)
    if late_to_report(facts.spec, facts.world, record) and judgement.silent:
        return "tpu.mute"
    return "tpu.unreachable" if judgement.why else "tpu.kept"


def _odd_rule(node: Node, facts: DeploymentFacts) -> str:
    """Return the rule for a TPU that exists and that the API does not call READY and healthy."""
    if reports(facts.spec, facts.world, node):
        return "tpu.reports"
    if node.state is NodeState.CREATING:
        return "tpu.queued" if node.queued else "tpu.creating"
    return "tpu.unhealthy" if node.state is NodeState.READY else "tpu.passing"


def _node_evidence(facts: DeploymentFacts, node: Node | None) -> tuple[Evidence, ...]:
    record, now = facts.record, facts.world.observed_at
    found = [Evidence("cloud", now, _node_text(node, record))]
    state = "absent" if node is None else node.state.name.lower()
    sign = Sign.ABSENT if node is None else node.state
    since = record.first_seen.get(of_node(record.node.incarnation, sign))
    if since is not None:
        found.append(Evidence("record", since, f"seen {state} for the first time"))
    if record.node.requested_at:
        text = f"TPU #{record.node.incarnation} requested in {record.node.zone}"
        found.append(Evidence("record", record.node.requested_at, text))
    for rival in record.race.rivals:
        text = f"TPU #{rival.incarnation} requested in {rival.zone}, in race {record.race.round}"
        found.append(Evidence("record", rival.requested_at, text))
    found += [Evidence("record", *known) for known in remembered(facts.spec, record)]
    for operation in record.operations:
        if operation.kind is Kind.NODE:
            text = f"{operation.verb.word} of {operation.name} is under way"
            found.append(Evidence("record", operation.started_at or None, text))
    return tuple(found)


def _node_text(node: Node | None, record: Record) -> str:
    if node is None:
        return f"TPU #{record.node.incarnation} is not there" if record.node.incarnation else "no TPU"
    health = "" if node.healthy else f" ({node.health})"
    maintenance = maintenance_text(node.maintenance)
    health += f"; {maintenance}, which alone changes nothing" if maintenance else ""
    queued = f", its queued resource {node.queued.state.name}" if node.queued else ""
    return f"{node.name} in {node.zone} is {node.state.name}{health}{queued}"


def _looked(name: str, observed: Observed[Bucket] | Observed[Vm], now: float) -> Evidence:
    if not isinstance(observed, Present):
        return Evidence("cloud", now, f"{name} is not there")
    held = observed.value
    return Evidence("cloud", now, f"{name} is {held.state.value if isinstance(held, Vm) else 'there'}")


def _asked_for(
    what: str, state: str, rule: str, step: Step, facts: DeploymentFacts, kind: Kind,
    evidence: tuple[Evidence, ...], why: str = "",
) -> ExplainedPart:  # fmt: skip
    """Explain what is about to be created, changed or waited for; refusals of its kind come first."""
    refused = [r for r in facts.record.refusals if r.kind is kind]
    why = why or (step.changes[-1].why if step.changes else step.waiting)
    evidence = (*_refusals(refused), *evidence)
    # With a change in the plan the wait is over, and an old refusal explains nothing.
    if refused and not step.changes:
        return _refused(what, state, facts, kind, refused[-1], evidence, len(refused))
    if step.changes:
        nexts, you = steps_text(step.changes), "" if next_pass(facts, step) else "tpuctl watch"
        return ExplainedPart(what, state, why, rule, evidence, nexts, next_pass(facts, step), you)
    you = "" if next_pass(facts) else "tpuctl watch"
    return ExplainedPart(
        what, state, why, rule, evidence, step.waiting or "look again", next_pass(facts, step), you
    )


def _refusals(refused: Sequence[Refusal]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence("record", r.at, f"refused{f' in {r.zone}' if r.zone else ''} ({r.retry.value}): {r.text}")
        for r in refused[-LAST_REFUSALS:]
    )


def _refused(
    what: str,
    state: str,
    facts: DeploymentFacts,
    kind: Kind,
    last: Refusal,
    evidence: tuple[Evidence, ...],
    count: int,
) -> ExplainedPart:
    final = hopeless(facts.record)
    why = f"{count} refusal{'s' if count > 1 else ''}, the last for {last.retry.value}"
    if final is not None:
        you = final.hint or "fix the cause, then run: tpuctl up"
        return ExplainedPart(what, state, why, "refused.final", evidence, "nothing", None, you)
    world = facts.world
    zone = last.zone
    if kind is Kind.NODE:
        zone = next_zone(
            facts.spec,
            facts.record,
            world.observed_at,
            world.prices,
            full_zones(facts.spec, world, facts.record),
        )
    # The same functions decide in the loop, so this is what it will do.
    gate = create_gate(facts.spec, facts.record, zone, kind)
    when = max(gate, next_pass(facts) or 0.0) if next_pass(facts) else None
    you = last.hint or "name more zones in tpu.zones, or wait"
    nexts = f"ask again{f' in {zone}' if zone else ''}, not before the wait is over"
    return ExplainedPart(what, state, why, "refused.wait", evidence, nexts, when, you)
