"""
Decide what one pass changes: (spec, world, record) -> Plan, one short function for each resource.

Pure. Unknown never leads to a change; an absence counts after it was observed twice, 30 s apart.
"""

from dataclasses import replace

from orchestrator.domain import names
from orchestrator.domain.observation import Present, Unknown, World
from orchestrator.domain.plan import Change, Decision, Kind, LoopRule, Outcome, Plan, Verb
from orchestrator.domain.record import JobRecord, Record
from orchestrator.domain.spec import Spec
from orchestrator.domain.wait import Wait
from orchestrator.planning.deployment_outcome import judge_end, limit_reached, wind_down
from orchestrator.planning.job import decide_job
from orchestrator.planning.sidecars import decide_sidecars
from orchestrator.planning.tpu.next_zone import held_back
from orchestrator.planning.tpu.node_decision import decide_node
from orchestrator.planning.tpu.race import undecided
from orchestrator.planning.vm import decide_vm


def decide(spec: Spec, world: World, record: Record, usd_so_far: float = 0.0) -> Plan:
    """Return the plan of this pass; *usd_so_far* is the estimated cost so far."""
    outcome, message = judge_end(spec, world, record, usd_so_far)
    # A refusal deletes nothing: the mistake may be in the file, while the machines work.
    if outcome is Outcome.REFUSED:
        return Plan(outcome=outcome, message=message)
    if outcome is not None:
        limit = limit_reached(spec, world, record) if outcome is Outcome.LIMIT_REACHED else ""
        plan = wind_down(world, record, outcome, message, vm_last=spec.watch.on_vm)
        return replace(plan, limit_reached=limit)
    node = Decision() if spec.fleet else decide_node(spec, world, record)
    # Deliver nothing to machines that this pass replaces, nor to candidates that may lose their race.
    job = Decision() if spec.fleet or _in_doubt(node, record) else decide_job(spec, world, record)
    decisions = (
        decide_bucket(spec, world, record),
        decide_bundle(spec, world, record),
        decide_vm(spec, world, record),
        # The fleet's own deployment has bucket and VM only; each of its TPUs is a deployment of its own.
        node,
        replace(job, wait=job.wait and replace(job.wait, what=f"job: {job.wait.what}")),
        decide_sidecars(spec, world, record),
    )
    wakes = [d.wake_in for d in decisions if d.wake_in is not None]
    return Plan(
        changes=tuple(c for d in decisions for c in d.changes),
        waits=tuple(d.wait for d in decisions if d.wait),
        wake_in=min(wakes, default=None),
    )


def _in_doubt(node: Decision, record: Record) -> bool:
    return undecided(record) or any(c.verb is Verb.CREATE for c in node.changes)


def decide_bucket(spec: Spec, world: World, record: Record) -> Decision:
    """Create the bucket if it does not exist; refuse to replace one that held data."""
    bucket = world.bucket
    if isinstance(bucket, Unknown):
        return Decision(wait=Wait(f"bucket: not known ({bucket.message})"), rule=LoopRule.UNKNOWN)
    region = names.home_region(spec)
    if isinstance(bucket, Present):
        if record.bucket.ready or spec.bucket.adopt:
            return Decision(rule=LoopRule.BUCKET_PRESENT)
        message = "its grants may be unfinished"
        change = Change(Kind.BUCKET, Verb.CREATE, bucket.value.name, message, region)
    elif record.bucket.observed:
        # An empty bucket in its place would look like success, and the job would start again at step 0.
        text = "bucket: it was there and is gone; nothing is created in its place"
        return Decision(wait=Wait(text), rule=LoopRule.BUCKET_GONE)
    else:
        change = Change(Kind.BUCKET, Verb.CREATE, "", "there is none yet", region)
    return held_back(spec, record, world, Kind.BUCKET, region) or Decision(
        (change,), rule=LoopRule.BUCKET_FIRST
    )


def _upload_reason(job: JobRecord) -> str:
    """Return why code is uploaded; of an upload before the last one the record knows nothing."""
    uploaded = job.uploaded.partition(":")[0]
    if not uploaded:
        return "the bucket does not have it yet"
    if uploaded == job.bundle:
        return "it was uploaded with the agent of another version of tpuctl"
    return f"the code that was uploaded last is {uploaded[:12]}"


def decide_bundle(spec: Spec, world: World, record: Record) -> Decision:
    """Upload code and agent once the bucket exists."""
    wanted = f"{record.job.bundle}:{record.job.agent}"
    usable = isinstance(world.bucket, Present) and (record.bucket.ready or spec.bucket.adopt)
    if not usable or not record.job.bundle or record.job.uploaded == wanted:
        return Decision()
    # `down` forgets what is in the bucket, since people may delete it before the next `up`.
    before = len(record.up_times) > bool(record.started_at) and not record.job.uploaded
    message = "each `up` after a `down` uploads it" if before else _upload_reason(record.job)
    change = Change(Kind.BUNDLE, Verb.CREATE, record.job.bundle[:12], message)
    return held_back(spec, record, world, Kind.BUNDLE) or Decision((change,))
