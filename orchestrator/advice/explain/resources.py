"""Explain the states of bucket, VM and TPU."""

from collections.abc import Sequence

from orchestrator.advice.explain.explanation import (
    DeploymentFacts,
    Evidence,
    ExplainedItem,
    changes_text,
    journal_of,
    next_pass,
)
from orchestrator.domain import names
from orchestrator.domain.first_seen import Condition, of_node
from orchestrator.domain.machines.maintenance import maintenance_text
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
from orchestrator.domain.plan import Decision, Kind, LoopRule
from orchestrator.domain.record import Record, Refusal, current_node
from orchestrator.domain.text.hints import FIX_CAUSE
from orchestrator.planning.decide import decide_bucket
from orchestrator.planning.drift import drift_notes
from orchestrator.planning.tpu.next_zone import (
    create_gate,
    full_zones,
    hopeless,
    next_zone,
    quota_held,
    quota_wait,
    remembered,
)
from orchestrator.planning.tpu.node_decision import decide_node
from orchestrator.planning.tpu.node_verdict import judge_node
from orchestrator.planning.vm import decide_vm

LAST_REFUSALS = 3


def not_visible(what: str, observed: Unknown, facts: DeploymentFacts) -> ExplainedItem:
    """Explain why the state of a resource is Unknown, and what that means for the next pass."""
    evidence = (Evidence("cloud", facts.world.observed_at, observed.message),)
    hint = observed.hint or "nothing; it is checked again"
    return ExplainedItem(
        what, "unknown", observed.message, LoopRule.UNKNOWN, evidence, "check again", next_pass(facts), hint
    )  # fmt: skip


def explain_bucket(facts: DeploymentFacts) -> ExplainedItem:
    """Explain why the bucket is present, deleted, absent or Unknown, and what happens next."""
    observed, now = facts.world.bucket, facts.world.observed_at
    if isinstance(observed, Unknown):
        return not_visible("bucket", observed, facts)
    decision = decide_bucket(facts.spec, facts.world, facts.record)
    if isinstance(observed, Present) and not decision.changes:
        held = observed.value
        evidence = (Evidence("cloud", now, f"{held.name} in {held.location}"),)
        return ExplainedItem(Kind.BUCKET.word, "present", "it is there", decision.rule, evidence, ok=True)
    asked = (_observation_of("bucket", observed, now), *journal_of(facts, "bucket"))
    if decision.rule is LoopRule.BUCKET_GONE:
        gone = (*asked, Evidence("record", None, "the bucket was there before"))
        hint = "`tpuctl down --delete-data`, then `tpuctl up`, to start over"
        return ExplainedItem(Kind.BUCKET.word, "gone", decision.waiting, decision.rule, gone, hint=hint)
    return _explained_request("absent", decision, facts, Kind.BUCKET, asked)


def explain_vm(facts: DeploymentFacts) -> ExplainedItem:
    """Explain the VM's state by the rule that the next pass applies to it, with evidence."""
    observed, now = facts.world.vm, facts.world.observed_at
    if facts.spec.vm == "none":
        return ExplainedItem(Kind.VM.word, "none", "none is wanted", LoopRule.VM_NONE, ok=True)
    if isinstance(observed, Unknown):
        return not_visible(Kind.VM.word, observed, facts)
    decision = decide_vm(facts.spec, facts.world, facts.record)
    evidence = (_observation_of(names.vm_name(facts.spec), observed, now), *journal_of(facts, "vm"))
    if isinstance(observed, Absent):
        return _explained_request("absent", decision, facts, Kind.VM, evidence)
    state = observed.value.state
    if state is VmState.RUNNING:
        return ExplainedItem(
            Kind.VM.word, state.value, "it runs", decision.rule, evidence[:1], hint=_differing(facts), ok=True
        )
    return _explained_request(state.value, decision, facts, Kind.VM, evidence)


def _differing(facts: DeploymentFacts) -> str:
    """Return how a running VM differs from the file, in words; empty if it does not."""
    return "; ".join(drift_notes(facts.spec, facts.world))


def explain_tpu(facts: DeploymentFacts) -> ExplainedItem:
    """Explain the TPU: its state, for how long, and what the rules make of it."""
    observed = facts.world.nodes
    if isinstance(observed, Unknown):
        return not_visible(Kind.NODE.word, observed, facts)
    node = current_node(facts.world, facts.record)
    verdict = judge_node(facts.spec, node, facts.world, facts.record)
    decision = decide_node(facts.spec, facts.world, facts.record)
    evidence = (*_node_evidence(facts, node), *journal_of(facts, "node"))
    state = "absent" if node is None else node.state.name
    if decision.rule is LoopRule.TPU_READY and not decision.changes:
        return ExplainedItem(
            Kind.NODE.word, state, "it is READY and healthy", decision.rule, evidence, ok=True
        )
    if decision.rule is LoopRule.TPU_REPORTS and not decision.changes:
        shown = node.health if node is not None and node.state is NodeState.READY else state
        return ExplainedItem(
            Kind.NODE.word,
            state,
            f"its workers report, so {shown} alone changes nothing",
            decision.rule,
            evidence,
        )
    return _explained_request(state, decision, facts, Kind.NODE, evidence, verdict.message)


def _node_evidence(facts: DeploymentFacts, node: Node | None) -> tuple[Evidence, ...]:
    record, now = facts.record, facts.world.observed_at
    found = [Evidence("cloud", now, _node_text(node, record))]
    state = "absent" if node is None else node.state.name.lower()
    sign = Condition.ABSENT if node is None else node.state
    since = record.first_seen.get(of_node(record.node.incarnation, sign))
    if since is not None:
        found.append(Evidence("record", since, f"first found {state}"))
    if record.node.requested_at:
        text = f"TPU #{record.node.incarnation} requested in {record.node.zone}"
        found.append(Evidence("record", record.node.requested_at, text))
    for candidate in record.race.candidates:
        text = f"TPU #{candidate.incarnation} requested in {candidate.zone}, in race {record.race.round}"
        found.append(Evidence("record", candidate.requested_at, text))
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


def _observation_of(name: str, observed: Observed[Bucket] | Observed[Vm], now: float) -> Evidence:
    if not isinstance(observed, Present):
        return Evidence("cloud", now, f"{name} is not there")
    held = observed.value
    return Evidence("cloud", now, f"{name} is {held.state.value if isinstance(held, Vm) else 'there'}")


def _explained_request(
    state: str, decision: Decision, facts: DeploymentFacts, kind: Kind,
    evidence: tuple[Evidence, ...], message: str = "",
) -> ExplainedItem:  # fmt: skip
    """Explain what is about to be created, changed or waited for; refusals of its kind come first."""
    refused = [r for r in facts.record.refusals if r.kind is kind]
    message = message or (decision.changes[-1].message if decision.changes else decision.waiting)
    evidence = (*_refusals(refused), *evidence)
    # With a change in the plan the wait is over, and an old refusal explains nothing.
    if refused and decision.rule in {LoopRule.REFUSED_WAIT, LoopRule.REFUSED_FINAL}:
        return _refused(state, facts, kind, decision, refused, evidence)
    if decision.changes:
        nexts, hint = (
            changes_text(decision.changes),
            "" if next_pass(facts, decision) else facts.watch_command,
        )
        return ExplainedItem(
            kind.word, state, message, decision.rule, evidence, nexts, next_pass(facts, decision), hint
        )
    hint = "" if next_pass(facts) else facts.watch_command
    nexts = decision.waiting or "check again"
    return ExplainedItem(
        kind.word, state, message, decision.rule, evidence, nexts, next_pass(facts, decision), hint
    )


def _refusals(refused: Sequence[Refusal]) -> tuple[Evidence, ...]:
    """Return the last refusals, after a line for those before, so that all are counted as the message counts."""
    shown, before = refused[-LAST_REFUSALS:], refused[:-LAST_REFUSALS]
    earlier = f"{len(before)} earlier refusal{'s' if len(before) > 1 else ''}, the last of them"
    return (
        *([Evidence("record", before[-1].at, earlier)] if before else []),
        *(
            Evidence("record", r.at, f"refused{f' in {r.zone}' if r.zone else ''} ({_class_of(r)}): {r.text}")
            for r in shown
        ),
    )


def _class_of(refusal: Refusal) -> str:
    return "quota, held by a TPU of this deployment" if refusal.full else refusal.retry.value


def _refused(
    state: str,
    facts: DeploymentFacts,
    kind: Kind,
    decision: Decision,
    refused: Sequence[Refusal],
    evidence: tuple[Evidence, ...],
) -> ExplainedItem:
    final, last, count = hopeless(facts.record), refused[-1], len(refused)
    message = f"{count} refusal{'s' if count > 1 else ''} in the last hour, the last for {last.retry.value}"
    if final is not None:
        hint = f"{final.hint or FIX_CAUSE}; then: tpuctl up"
        return ExplainedItem(
            kind.word, state, message, LoopRule.REFUSED_FINAL, evidence, "nothing", None, hint
        )
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
        here = [r for r in facts.record.refusals if r.kind is kind and r.zone == zone]
        held = quota_held(world, facts.record, zone)
        if held or (here and here[-1].full):
            # Nothing is wrong, so not the advice of the refusal, which is for a quota that is too small.
            message = (
                quota_wait(zone).text
                if held
                else f"the old TPU held the quota in {zone} until it was deleted"
            )
            nexts = "ask again when it is deleted" if held else f"ask again in {zone}"
            hint = "nothing; that is an ordinary wait" if next_pass(facts) else facts.watch_command
            return ExplainedItem(
                kind.word,
                state,
                message,
                LoopRule.REFUSED_WAIT,
                evidence,
                nexts,
                next_pass(facts, decision),
                hint,
            )
    hint = last.hint or f"wait, or name more zones in tpu.zones; see: tpuctl zones {facts.spec.tpu.type}"
    nexts = f"ask again{f' in {zone}' if zone else ''}, not before the wait is over"
    # The loop wakes when the wait is over, however long its poll is.
    gate = create_gate(facts.spec, facts.record, zone, kind)
    when = max(gate, next_pass(facts, decision) or 0.0) if next_pass(facts) else None
    return ExplainedItem(kind.word, state, message, LoopRule.REFUSED_WAIT, evidence, nexts, when, hint)
