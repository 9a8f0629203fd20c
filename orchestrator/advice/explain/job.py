"""Explain the job and who watches it."""

from orchestrator.advice.explain.machines import not_visible
from orchestrator.advice.explain.values import Evidence, Part, Seen, journal_of, next_pass, steps_text
from orchestrator.domain.first_seen import of_node
from orchestrator.domain.observation import Heartbeat, NodeState, Phase, Present, Unknown
from orchestrator.domain.record import current_node
from orchestrator.planning.job import BOOT_GRACE, decide_job, outdated
from orchestrator.planning.step import Step
from orchestrator.planning.unclaimed import checkpoint_name, uncommitted_text

_SAVE = "let the job save as the format wants, or choose another job.checkpoint.format, then: tpuctl push"


def explain_job(seen: Seen) -> Part:
    """Explain the job from its workers' heartbeats."""
    sight = seen.world.heartbeats
    if isinstance(sight, Unknown):
        return not_visible("job", sight, seen)
    beats = sight.value if isinstance(sight, Present) else ()
    step = decide_job(seen.spec, seen.world, seen.record)
    evidence = (*(_beat(beat) for beat in beats), *journal_of(seen, "job", "bundle"))
    state = ", ".join(sorted({beat.phase.value for beat in beats})) or "not heard of"
    if step.changes:
        why = step.changes[0].why
        node = current_node(seen.world, seen.record)
        due = node is not None and outdated(seen.spec, seen.record, node, beats)
        rule = "job.push" if due else "job.silent"
        you = "" if next_pass(seen) else "tpuctl watch"
        return Part("job", state, why, rule, evidence, steps_text(step.changes), next_pass(seen, step), you)
    lying = uncommitted_text(seen.spec.job.checkpoint, beats)
    if not step.waiting and lying:
        return Part("job", state, lying, "job.uncommitted", evidence, "goes on", next_pass(seen), _SAVE)
    if not step.waiting:
        return Part("job", state, _runs(beats), "job.runs", evidence, calm=True)
    return _waits(seen, state, step, evidence)


def _waits(seen: Seen, state: str, step: Step, evidence: tuple[Evidence, ...]) -> Part:
    """Explain a job that cannot run yet: for want of a machine, or because it boots."""
    waiting = step.waiting.removeprefix("job: ")
    if step.blocked:
        nexts = "it starts by itself when that is there"
        return Part("job", state, waiting, "job.waits", evidence, nexts, next_pass(seen))
    ready = seen.record.first_seen.get(of_node(seen.record.node.incarnation, NodeState.READY))
    if ready is not None:
        evidence = (Evidence("record", ready, "the TPU was seen READY for the first time"), *evidence)
    silent = ready is not None and current_node(seen.world, seen.record) is not None
    when = ready + BOOT_GRACE if silent and ready is not None else None
    you = "tpuctl logs -f shows what the machine does"
    return Part("job", state, waiting, "job.starts", evidence, "the workers report", when, you)


def _runs(beats: tuple[Heartbeat, ...]) -> str:
    steps = [beat.step for beat in beats if beat.step is not None]
    if any(beat.phase is not Phase.RUN for beat in beats):
        return "its workers report"
    return f"it runs, at step {min(steps)}" if steps else "it runs"


def _beat(beat: Heartbeat) -> Evidence:
    parts = [f"worker {beat.worker}: {beat.phase.value}"]
    parts += [f"step {beat.step}"] if beat.step is not None else []
    parts += [f"checkpoint {_number(beat)}"] if beat.committed_step is not None else []
    parts += [f"start {beat.starts}"] if beat.starts > 1 else []
    parts += [beat.message] if beat.message else []
    return Evidence("heartbeat", beat.updated, ", ".join(parts))


def _number(beat: Heartbeat) -> str:
    return checkpoint_name(beat).removeprefix("step ")


def explain_loop(seen: Seen) -> Part:
    """Explain who takes care of the deployment."""
    watching, now = seen.watching, seen.world.seen_at
    where = " --on-vm" if seen.spec.watch.on_vm else ""
    if watching is None:
        why = "no lease is held: nobody works on the deployment"
        return Part("loop", "nobody", why, "loop.nobody", next="nothing", you=f"tpuctl watch{where}")
    held = f"{watching.command} of {watching.who} renewed its lease"
    evidence = (Evidence("lease", now - watching.age, held),)
    if not watching.alive:
        why = f"the lease of {watching.command} was not renewed for {watching.age:.0f} s"
        return Part("loop", "gone", why, "loop.dead", evidence, "nothing", you=f"tpuctl watch{where}")
    why = f"tpuctl {watching.command} works on it, and looks every {seen.spec.watch.poll}"
    state = "on the VM" if watching.on_vm else "at work"
    return Part("loop", state, why, "loop.alive", evidence, "the next look", next_pass(seen), calm=True)
