"""Assemble an explanation, with the sentence of each rule."""

from orchestrator.advice.explain.explanation import (
    DeploymentFacts,
    Evidence,
    ExplainedItem,
    Explanation,
    changes_text,
    journal_of,
    next_pass,
)
from orchestrator.advice.explain.resources import explain_bucket, explain_tpu, explain_vm, not_visible
from orchestrator.advice.explain.rules import RULES
from orchestrator.contract.phase import Phase
from orchestrator.domain.first_seen import of_node
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.lease import called, called_with_user
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Decision, LoopRule, Outcome
from orchestrator.domain.record import Record, current_node, last_incarnation
from orchestrator.domain.text.amounts import span_text, usd_range_text
from orchestrator.domain.text.hints import LOAD_CHECKPOINT, MEND_JOB, OWN_STEPS, after_end, trains_on
from orchestrator.domain.text.phase_words import phase_words
from orchestrator.planning.deployment_state import was_started
from orchestrator.planning.failing import failing_text
from orchestrator.planning.ignored import ignored_text
from orchestrator.planning.job import BOOT_GRACE, decide_job
from orchestrator.planning.safety_nets import safety_nets
from orchestrator.planning.save_interval import reported_interval
from orchestrator.planning.tpu.next_zone import hopeless
from orchestrator.planning.uncommitted import FETCH, checkpoint_name, uncommitted_text

_ENDS = {
    Outcome.DONE: LoopRule.END_DONE,
    Outcome.UNCOMMITTED: LoopRule.END_UNCOMMITTED,
    Outcome.FAILED: LoopRule.END_FAILED,
    Outcome.LIMIT_REACHED: LoopRule.END_LIMIT_REACHED,
    Outcome.REFUSED: LoopRule.END_REFUSED,
}
_DO = {
    Outcome.DONE: "`tpuctl down` deletes the machines that are left; the data stays",
    Outcome.UNCOMMITTED: f"`{FETCH}`; then save as the format wants, or choose another one, and: tpuctl up",
}
_FETCHES = {Outcome.DONE: "tpuctl checkpoints fetch", Outcome.UNCOMMITTED: FETCH}


def explain(facts: DeploymentFacts) -> Explanation:
    """Return why the deployment is in its state, one item for each resource."""
    # The end first: once it is reached, no other item decides anything.
    first = _deployment(facts)
    rest = _wanted(facts) if first.ok else _ended(facts)
    items = (first, *rest)
    named = {item.rule: RULES[item.rule] for item in items}
    headline = _headline(facts, items)
    return Explanation(facts.spec.name, facts.state, headline, facts.world.observed_at, items, named)


def _wanted(facts: DeploymentFacts) -> tuple[ExplainedItem, ...]:
    items = (explain_bucket(facts), explain_vm(facts), explain_tpu(facts), *_saves(facts))
    return (*items, explain_job(facts), explain_watcher(facts))


def _ended(facts: DeploymentFacts) -> tuple[ExplainedItem, ...]:
    """Explain the remains of a deployment that has ended or does not exist: where they are."""
    return (explain_watcher(facts),) if facts.watcher is not None else ()


def _headline(facts: DeploymentFacts, items: tuple[ExplainedItem, ...]) -> str:
    """Return the most important sentence of the explanation."""
    first, *rest = items
    # See `Explanation.says_first_message`.
    if not first.ok:
        return f"{first.state}: {first.message}"
    watcher, job = items[-1], items[-2]
    bad_item = next((item for item in rest if not item.ok and item is not watcher), None)
    if bad_item is None:
        watched = "" if watcher.ok else ", and no watcher runs"
        return f"{first.state}: {job.message}{watched}"
    return f"{first.state}: {bad_item.message}"


def _deployment(facts: DeploymentFacts) -> ExplainedItem:
    """Explain whether the deployment continues or has ended."""
    record, plan = facts.record, facts.plan
    if not record.job.bundle:
        leftovers = _leftovers(facts)
        hint = "`tpuctl down` deletes what is left" if leftovers else _go_on(facts)
        message = _not_up_message(facts)
        return ExplainedItem(
            "deployment", facts.state.phrase, message, LoopRule.END_DOWN, leftovers, hint=hint
        )
    outcome = plan.outcome
    if outcome is not None:
        evidence = (_end_evidence(facts, outcome), *_limits(facts))
        nexts = changes_text(plan.changes) or "; ".join(plan.waiting) or "nothing"
        rule, when = _ENDS[outcome], None if plan.settled else next_pass(facts)
        return ExplainedItem(
            "deployment",
            facts.state.phrase,
            plan.message,
            rule,
            evidence,
            nexts,
            when,
            _after_end(facts, outcome),
        )
    ttl = record.started_at + facts.spec.watch.ttl if record.started_at else None
    message, rule = "the job is not done, and neither ttl nor budget has been reached", LoopRule.END_NONE
    # Only a watcher ends it; without one there is no time to promise.
    if next_pass(facts) is None:
        nexts, ttl = _unwatched_end(facts) if ttl else "", None
    else:
        nexts = (
            f"it ends with the job, at the latest when its ttl of {facts.spec.watch.ttl} is over"
            if ttl
            else ""
        )
    watched = next_pass(facts) is not None
    return ExplainedItem(
        "deployment",
        facts.state.phrase,
        message,
        rule,
        _limits(facts),
        nexts,
        ttl,
        ok=True,
        needs_watcher=watched,
    )


def _unwatched_end(facts: DeploymentFacts) -> str:
    """Return what ends the machines of a deployment that nothing watches."""
    nets = safety_nets(facts.spec, facts.record.started_at)
    shown = [net for net in nets if net.name == "tpu" or (net.name == "vm" and facts.spec.vm != "none")]
    return "; ".join(
        [
            "no watcher runs, so it ends neither with the job nor with its ttl",
            *(f"{n.title}: {n.message}" for n in shown),
        ]
    )


def _end_evidence(facts: DeploymentFacts, outcome: Outcome) -> Evidence:
    """Return the reason of the end with its source: the record, else the reports of the workers."""
    message, heartbeats = facts.plan.message, facts.world.known_heartbeats
    if outcome is Outcome.REFUSED:
        return Evidence("cloud", facts.world.observed_at, message)
    if facts.record.outcome or outcome is Outcome.LIMIT_REACHED or not heartbeats:
        return Evidence("record", None, message)
    return Evidence("heartbeat", max(heartbeat.updated for heartbeat in heartbeats), message)


def _not_up_message(facts: DeploymentFacts) -> str:
    if facts.deleted:
        return facts.deleted
    if facts.record.outcome is Outcome.DONE:
        return "the job is done, and `down` has run"
    return "`down` has run" if was_started(facts.record) or facts.record.outcome else "`up` has not run yet"


def _go_on(facts: DeploymentFacts) -> str:
    """Return how a deployment without machines goes on."""
    outcome = facts.record.outcome
    if facts.deleted:
        return (
            f"`tpuctl cost {facts.spec.name}` shows what it has cost, also after `tpuctl up` has started over"
        )
    fetch = _FETCHES.get(outcome) if outcome else None
    if fetch is None:
        return "tpuctl up"
    further = _more_training(facts) if outcome is Outcome.DONE else "`tpuctl up` goes on with it"
    return f"`{fetch}` copies what was trained; {further}"


def _more_training(facts: DeploymentFacts) -> str:
    """Return how a job that is done trains on."""
    target, trained = facts.spec.job.target_steps, facts.record.deadline.progress.step
    if target and trained and trained < target:
        return trains_on(target)
    beyond, change = (f"beyond step {target}", OWN_STEPS) if target else ("further", "or change the code")
    return f"to train {beyond}, raise job.target_steps {change}, then: tpuctl up"


def _after_end(facts: DeploymentFacts, outcome: Outcome) -> str:
    """Return what a person can do after *outcome*; an unreadable list counts as machines."""
    known = not isinstance(facts.world.nodes, Unknown) and not isinstance(facts.world.vm, Unknown)
    if outcome is Outcome.DONE and known and not _leftovers(facts):
        return (
            "`tpuctl checkpoints fetch` copies the model; `tpuctl down --delete-data` deletes the data; "
            f"{_more_training(facts)}"
        )
    more = f"; {_more_training(facts)}" if outcome is Outcome.DONE else ""
    return after_end(outcome, facts.plan.limit_reached) or f"{_DO[outcome]}{more}"


def _leftovers(facts: DeploymentFacts) -> tuple[Evidence, ...]:
    """Return the machines that still exist although the deployment has ended."""
    nodes, vm, now = facts.world.nodes, facts.world.vm, facts.world.observed_at
    found = list(nodes.value) if isinstance(nodes, Present) else []
    machines = [Evidence("cloud", now, f"{n.name} in {n.zone} is {n.state.name}") for n in found]
    if isinstance(vm, Present):
        machines.append(Evidence("cloud", now, f"{vm.value.name} is {vm.value.state.value}"))
    return tuple(machines)


def _limits(facts: DeploymentFacts) -> tuple[Evidence, ...]:
    record, now, budget = facts.record, facts.world.observed_at, facts.spec.watch.budget_usd
    limit = (
        f"the budget of {budget:g} USD counts the higher sum" if budget is not None else "no budget is set"
    )
    billed = ", nothing is billed" if facts.unbilled else ""
    spent = f"about {usd_range_text(facts.usd, facts.upper_usd)} so far (an estimate{billed}); {limit}"
    more = f", {record.node.preemptions} preemption{'' if record.node.preemptions == 1 else 's'}"
    return (*_ran(record), Evidence("record", now, spent + more))


def _ran(record: Record) -> tuple[Evidence, ...]:
    if not record.started_at:
        return ()
    # After `down` the record has the number of the next TPU, and there never was that one.
    newest = last_incarnation(record)
    # `up` last, since its age follows.
    text = f"the newest TPU is #{newest}; `up` started" if newest else "`up` started"
    return (Evidence("record", record.started_at, text),)


def _saves(facts: DeploymentFacts) -> tuple[ExplainedItem, ...]:
    """Explain how often the job is asked to save, if its machines report it."""
    observed = facts.world.heartbeats
    interval = reported_interval(observed.value) if isinstance(observed, Present) else None
    if interval is None:
        return ()
    rule = LoopRule.SAVES_AUTO if interval.time_between_interruptions is not None else LoopRule.SAVES_FIXED
    message = interval.message or "the file says so"
    if interval.seconds is None:
        message = f"job.checkpoint.every is not set{f'; {interval.message}' if interval.message else ''}"
    return (ExplainedItem("saves", interval.in_words, message, rule, ok=True),)


_SAVE = "let the job save as the format wants, or choose another job.checkpoint.format, then: tpuctl push"


def explain_job(facts: DeploymentFacts) -> ExplainedItem:
    """Explain the job from its workers' heartbeats."""
    observed = facts.world.heartbeats
    if isinstance(observed, Unknown):
        return not_visible("job", observed, facts)
    heartbeats = observed.value if isinstance(observed, Present) else ()
    # The loop's own decision function, because a second implementation could differ from what is done.
    decision = decide_job(facts.spec, facts.world, facts.record)
    # What a machine that is gone reported last is not what it does.
    last = "last report: " if facts.state.without_tpu else ""
    evidence = (
        *(_heartbeat(heartbeat, last) for heartbeat in heartbeats),
        *journal_of(facts, "job", "bundle", since=facts.record.node.requested_at),
    )
    phases = ", ".join(sorted({heartbeat.phase.value for heartbeat in heartbeats}))
    # "run" would contradict that it waits for a TPU.
    ended = "stopped with its TPU" if last else phases
    state = ended if phases else _without_heartbeat(facts)
    if decision.changes:
        message, nexts = decision.changes[0].message, changes_text(decision.changes)
        hint = "" if next_pass(facts) else facts.watch_command
        return ExplainedItem(
            "job", state, message, decision.rule, evidence, nexts, next_pass(facts, decision), hint
        )
    message = uncommitted_text(facts.spec.job.checkpoint, heartbeats)
    if decision.settled and message:
        return ExplainedItem(
            "job", state, message, LoopRule.JOB_UNCOMMITTED, evidence, "goes on", next_pass(facts), _SAVE
        )
    failing = "" if last else failing_text(heartbeats, facts.spec.job.failures)
    if failing:
        # By its agent, at a time that no pass decides.
        nexts = "its agent starts it again after each failure, until it is given up"
        return ExplainedItem(
            "job", state, failing, LoopRule.JOB_FAILING, evidence, nexts, hint=MEND_JOB, needs_watcher=False
        )
    ignored = ignored_text(heartbeats)
    if decision.settled and ignored:
        rule, when = LoopRule.JOB_IGNORES_CHECKPOINT, next_pass(facts)
        return ExplainedItem("job", state, ignored, rule, evidence, "goes on", when, LOAD_CHECKPOINT)
    if decision.settled:
        return ExplainedItem("job", state, _runs(heartbeats), decision.rule, evidence, ok=True)
    return _waits(facts, state, decision, evidence)


def _without_heartbeat(facts: DeploymentFacts) -> str:
    step = facts.record.deadline.progress.step
    return f"no TPU reports it; step {step} is in the bucket" if step else "no heartbeat yet"


def _waits(
    facts: DeploymentFacts, state: str, decision: Decision, evidence: tuple[Evidence, ...]
) -> ExplainedItem:
    """Explain a job that cannot run yet: its machine does not exist or is booting."""
    if decision.blocked:
        final = hopeless(facts.record) is not None
        nexts = "nothing before `tpuctl up`" if final else "it starts by itself when that is there"
        when = None if final else next_pass(facts)
        return ExplainedItem("job", state, decision.waiting, decision.rule, evidence, nexts, when)
    ready = facts.record.first_seen.get(of_node(facts.record.node.incarnation, NodeState.READY))
    if ready is not None:
        evidence = (Evidence("record", ready, "TPU first found READY"), *evidence)
    hint = "`tpuctl logs -f` shows what the machine does"
    if facts.world.known_heartbeats:
        nexts, when = "look again", next_pass(facts, decision)
    else:
        nexts = "a check over SSH, if no worker has reported until then"
        here = current_node(facts.world, facts.record) is not None
        when = ready + BOOT_GRACE if here and ready is not None else None
    return ExplainedItem("job", state, decision.waiting, decision.rule, evidence, nexts, when, hint)


def _runs(heartbeats: tuple[Heartbeat, ...]) -> str:
    steps = [heartbeat.step for heartbeat in heartbeats if heartbeat.step is not None]
    if any(heartbeat.phase is not Phase.RUN for heartbeat in heartbeats):
        return "its workers report"
    return f"it is at step {min(steps)}" if steps else "its workers report"


def _heartbeat(heartbeat: Heartbeat, last: str) -> Evidence:
    parts = [f"worker {heartbeat.worker}{', ' if last else ': '}{last}{phase_words(heartbeat.phase.value)}"]
    parts += [f"step {heartbeat.step}"] if heartbeat.step is not None else []
    parts += [f"checkpoint at {checkpoint_name(heartbeat)}"] if heartbeat.committed_step is not None else []
    if heartbeat.ignored_message:
        parts.append(f"step {heartbeat.resumed_from} restored, first step {heartbeat.began_step}")
    parts += [f"attempt {heartbeat.attempts}"] if heartbeat.attempts > 1 else []
    parts += [text for text in (heartbeat.aside_message, heartbeat.message) if text]
    return Evidence("heartbeat", heartbeat.updated, ", ".join(parts))


def explain_watcher(facts: DeploymentFacts) -> ExplainedItem:
    """Explain which process watches the deployment, if any."""
    watcher, now = facts.watcher, facts.world.observed_at
    if watcher is None:
        message = "no `tpuctl watch` runs for it, on this computer or another one"
        refused = hopeless(facts.record) is not None
        hint = "first cure what was refused, then: tpuctl up" if refused else facts.watch_command
        return ExplainedItem(
            "watcher", "not running", message, LoopRule.WATCHER_NONE, next="nothing", hint=hint
        )
    held = f"{called_with_user(watcher.command, watcher.who)} works on it"
    evidence = (Evidence("lease", now - watcher.renewed_age_s, held),)
    if not watcher.alive:
        message = f"{called(watcher.command)} has given no sign of life for {watcher.renewed_age_s:.0f} s"
        return ExplainedItem(
            "watcher",
            "lease expired",
            message,
            LoopRule.WATCHER_LEASE_EXPIRED,
            evidence,
            "nothing",
            hint=facts.watch_command,
        )
    message = f"{called(watcher.command)} works on it, and checks every {span_text(facts.spec.watch.poll)}"
    state = "on the VM" if watcher.on == "vm" else "at work"
    return ExplainedItem(
        "watcher",
        state,
        message,
        LoopRule.WATCHER_RUNNING,
        evidence,
        "the next check",
        next_pass(facts),
        ok=True,
    )
