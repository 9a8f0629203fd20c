"""Raise the error for the way a command ended: what happened, what was changed, and the next command."""

from orchestrator.domain.first_seen import BUCKET_ABSENT
from orchestrator.domain.observation import Absent
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.record import CONFIRMED_AFTER, Record, lasted
from orchestrator.error_codes import CODES
from orchestrator.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    JobFailedError,
    LimitReachedError,
    QuotaError,
    Retry,
    TpuctlError,
    UncommittedError,
    UsageError,
)
from orchestrator.planning.tpu.next_zone import hopeless
from orchestrator.planning.uncommitted import FETCH, link_text


def raise_blind(result: Pass) -> None:
    """Raise AuthError if the cloud permanently refuses to be observed."""
    unseen = result.blind
    if unseen is not None:
        raise AuthError(
            unseen.message,
            hint=unseen.hint or "fix the cause, then run the same command again",
            changed="nothing was created or deleted; what runs keeps running",
        )


def raise_bucket_gone(result: Pass, record: Record) -> None:
    """Raise TpuctlError if a bucket that held the job's data was absent in two observations."""
    gone = isinstance(result.world.bucket, Absent) and record.bucket.observed
    if gone and lasted(record, result.world, BUCKET_ABSENT, CONFIRMED_AFTER):
        raise TpuctlError(
            "the bucket with checkpoints, code and logs is gone",
            hint="run `tpuctl down --delete-data`, then `tpuctl up` to start over",
            changed="nothing was created in its place; machines that exist keep running",
        )


def raise_outcome(result: Pass) -> None:
    """
    Raise the error for an unhappy outcome of the plan; return if the deployment is done or still running.

    Raise UncommittedError, JobFailedError, UsageError (TPU-140) or LimitReachedError.
    """
    outcome, message = result.plan.outcome, result.plan.message
    machines_stopped = "the TPU was deleted and the VM stopped; checkpoints and logs are kept in the bucket"
    if outcome is Outcome.UNCOMMITTED:
        uploaded = any(heartbeat.uncommitted_files for heartbeat in result.world.known_heartbeats)
        copies = f"`{FETCH}` copies what it saved; then " if uploaded else ""
        link = link_text(result.world.known_heartbeats)
        raise UncommittedError(
            message,
            hint=f"{copies}let the job save below $TPUCTL_CHECKPOINT_DIR as the format wants{link}, "
            "or choose another job.checkpoint.format, and run `tpuctl up`",
            changed="the TPU was deleted and the VM stopped; files and logs are kept in the bucket",
        )
    if outcome is Outcome.FAILED:
        raise JobFailedError(
            f"the job failed: {message}",
            hint="see `tpuctl logs`, fix it, then run `tpuctl up`",
            changed=machines_stopped,
        )
    if outcome is Outcome.REFUSED:
        raise UsageError(
            message,
            hint="choose tpu.zones in the bucket's region, or another bucket.name",
            changed="nothing was created or deleted",
            code="TPU-140",
        )
    if outcome is Outcome.LIMIT_REACHED:
        raise LimitReachedError(
            message,
            hint=f"raise {result.plan.limit_reached or 'watch.budget_usd or watch.ttl'}, then run `tpuctl up`",
            changed=machines_stopped,
        )


def raise_hopeless(record: Record) -> None:
    """
    Raise the error for a refusal that another request cannot cure: permission, quota, an unknown answer.

    Raise QuotaError, AuthError, ConflictError or TpuctlError.
    """
    refusal = hopeless(record)
    if refusal is None:
        return
    text = f"{refusal.zone}: {refusal.text}" if refusal.zone else refusal.text
    untouched = "what exists already keeps running; see `tpuctl status`"
    if refusal.retry is Retry.QUOTA:
        hint = "ask for more quota, delete what holds it, or use another type or zone"
        raise QuotaError(text, hint=refusal.hint or hint, changed=untouched, code=refusal.code)
    hint = refusal.hint or "fix the cause, then run the same command again"
    named, _ = CODES.get(refusal.code, (TpuctlError, ""))
    # Not every class of the table: exit code 2 promises that nothing was begun, and here a pass has acted.
    kind = next((one for one in (AuthError, ConflictError) if issubclass(named, one)), TpuctlError)
    raise kind(text, hint=hint, changed=untouched, code=refusal.code if issubclass(named, kind) else "")


def raise_stockout(record: Record, zones: tuple[str, ...], type_: str) -> None:
    """Raise CapacityError if every one of *zones* has refused for lack of capacity."""
    nodes = [r for r in record.refusals if r.kind is Kind.NODE and r.retry is Retry.CAPACITY]
    refused = {r.zone for r in nodes}
    if set(zones) <= refused:
        raise CapacityError(
            f"no capacity now in {', '.join(zones)}: {nodes[-1].text}",
            hint=f"run `tpuctl watch` to keep asking, or name more zones in tpu.zones; see: tpuctl zones {type_}",
            changed="no TPU exists; bucket and VM stay as they are (`tpuctl down` removes them)",
        )
