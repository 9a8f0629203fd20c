"""Put an explanation together."""

from orchestrator.advice.explain.job import explain_job, explain_loop
from orchestrator.advice.explain.machines import explain_bucket, explain_tpu, explain_vm
from orchestrator.advice.explain.rules import RULES
from orchestrator.advice.explain.values import Evidence, Explanation, Part, Seen, next_pass, steps_text
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Outcome
from orchestrator.domain.record import Record
from orchestrator.planning.unclaimed import FETCH

_DO = {
    Outcome.DONE: "tpuctl down removes what is left; the data stays",
    Outcome.UNCLAIMED: f"{FETCH}; then save as the format wants, or choose another one, and: tpuctl up",
    Outcome.FAILED: "tpuctl logs shows why; mend it, then: tpuctl up",
    Outcome.SPENT: "raise watch.budget_usd or watch.ttl, then: tpuctl up",
    Outcome.REFUSED: "choose tpu.zones in the bucket's region, or another bucket.name",
}


def explain(seen: Seen) -> Explanation:
    """Return why the deployment is in its state."""
    first = _deployment(seen)
    rest = _wanted(seen) if first.calm else _ended(seen)
    parts = (first, *rest)
    named = {part.rule: RULES[part.rule] for part in parts}
    return Explanation(seen.spec.name, _headline(seen, parts), seen.world.seen_at, parts, named)


def _wanted(seen: Seen) -> tuple[Part, ...]:
    parts = (explain_bucket(seen), explain_vm(seen), explain_tpu(seen), explain_job(seen))
    return (*parts, explain_loop(seen))


def _ended(seen: Seen) -> tuple[Part, ...]:
    """Explain what is left of a deployment that has ended or does not exist: where it lies, not why it runs."""
    return (explain_loop(seen),) if seen.watching is not None else ()


def _headline(seen: Seen, parts: tuple[Part, ...]) -> str:
    """Return the one thing that matters most."""
    first, *rest = parts
    if not first.calm:
        return f"{first.state}: {first.why}"
    loop, job = parts[-1], parts[-2]
    troubled = next((part for part in rest if not part.calm and part is not loop), None)
    if troubled is None:
        watched = "" if loop.calm else ", and nobody watches it"
        return f"job {job.state}: {job.why}{watched}"
    return f"{troubled.what} {troubled.state}: {troubled.why}"


def _deployment(seen: Seen) -> Part:
    """Explain whether the deployment goes on or has come to its end."""
    record, plan, now = seen.record, seen.plan, seen.world.seen_at
    if not record.job.bundle:
        why = "nothing is wanted: `up` has not run, or `down` has"
        left = _left(seen)
        you = "tpuctl down removes what is left" if left else "tpuctl up"
        return Part("deployment", "not up", why, "end.down", left, you=you)
    outcome = plan.outcome
    if outcome is not None:
        evidence = (Evidence("cloud", now, plan.reason), *_limits(seen))
        nexts = steps_text(plan.changes) or "; ".join(plan.waiting) or "nothing"
        rule, when = f"end.{outcome.value}", next_pass(seen) if plan.changes or plan.waiting else None
        return Part("deployment", outcome.value, plan.reason, rule, evidence, nexts, when, _DO[outcome])
    ttl = record.started_at + seen.spec.watch.ttl if record.started_at else None
    nexts = f"it ends when its ttl of {seen.spec.watch.ttl} is over" if ttl else ""
    why = "the job is not done, and neither ttl nor budget is used up"
    return Part("deployment", "wanted", why, "end.none", _limits(seen), nexts, ttl, calm=True)


def _left(seen: Seen) -> tuple[Evidence, ...]:
    """Name the machines that exist though nothing is wanted."""
    nodes, vm, now = seen.world.nodes, seen.world.vm, seen.world.seen_at
    found = list(nodes.value) if isinstance(nodes, Present) else []
    machines = [Evidence("cloud", now, f"{n.name} in {n.zone} is {n.state.name}") for n in found]
    if isinstance(vm, Present):
        machines.append(Evidence("cloud", now, f"{vm.value.name} is {vm.value.state.value}"))
    return tuple(machines)


def _limits(seen: Seen) -> tuple[Evidence, ...]:
    record, now, budget = seen.record, seen.world.seen_at, seen.spec.watch.budget_usd
    told = f"{seen.usd:.2f} USD spent" + (f" of {budget:g}" if budget is not None else ", no budget is set")
    more = f", {record.node.preemptions} preemption{'' if record.node.preemptions == 1 else 's'} so far"
    return (*_ran(record), Evidence("record", now, told + more))


def _ran(record: Record) -> tuple[Evidence, ...]:
    if not record.started_at:
        return ()
    text = f"up began; incarnation {record.node.incarnation} is the newest"
    return (Evidence("record", record.started_at, text),)
