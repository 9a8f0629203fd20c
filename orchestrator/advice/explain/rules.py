"""Say in a sentence each what the rules are, by which decisions are made; for `explain` and docs/explain.md."""

from typing import Final

from orchestrator.contract.interval import MAX_INTERVAL, MIN_INTERVAL
from orchestrator.domain.lease import EXPIRES_AFTER, RENEWAL
from orchestrator.domain.plan import LoopRule
from orchestrator.domain.record import CONFIRMED_AFTER
from orchestrator.errors import Retry
from orchestrator.planning.job import BOOT_GRACE, SILENCE
from orchestrator.planning.tpu.never_reported import SILENT_TIMEOUT, START_TIMEOUT
from orchestrator.planning.tpu.next_zone import BACKOFF, QUOTA_TRIES
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT, REPAIR_TIMEOUT, UNHEALTHY_TIMEOUT
from orchestrator.planning.tpu.queued_tpu import PROVISIONING_TIMEOUT


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} min"


_COUNT: Final = ("no", "one", "two", "three", "four", "five", "six")
# The numbers are those of the planner and the lease, so that a sentence cannot outlive its rule. Only the agent's
# own (heartbeats until a save is named) stands here: what runs on machines is not imported.
RULES: Final[dict[LoopRule, str]] = {
    LoopRule.UNKNOWN: (
        "What could not be observed is unknown, not absent: nothing is created or deleted because of it."
    ),
    LoopRule.ABSENCE_UNCONFIRMED: (
        f"An absence counts after two observations {CONFIRMED_AFTER:g} s apart have shown it."
    ),
    LoopRule.END_DONE: "When every worker reports that it is done, TPUs are deleted and the VM is stopped.",
    LoopRule.END_UNCOMMITTED: (
        "Status 0 without a complete checkpoint is not done: its files are kept in unclaimed/."
    ),
    LoopRule.END_FAILED: "A job that ended too often without progress ends the deployment; its data is kept.",
    LoopRule.END_LIMIT_REACHED: (
        "When ttl or budget_usd is used up, TPUs are deleted and the VM is stopped; its data is kept."
    ),
    LoopRule.END_REFUSED: (
        "A bucket in another region than the TPU is refused: each checkpoint would be billed."
    ),
    LoopRule.END_NONE: "Until the job is done, has failed or is out of ttl or budget, it is kept running.",
    LoopRule.END_DOWN: "After `down`, or before `up`, nothing is created.",
    LoopRule.BUCKET_FIRST: "The bucket is created first: it holds everything that must not be lost.",
    LoopRule.BUCKET_GONE: "A bucket that held data and is gone is never replaced by an empty one.",
    LoopRule.BUCKET_PRESENT: "An existing bucket is left alone.",
    LoopRule.VM_NONE: "The file says `vm: none`.",
    LoopRule.VM_CREATE: "A VM that does not exist is created.",
    LoopRule.VM_START: "A VM that was stopped or preempted is started again; its disk is still there.",
    LoopRule.VM_OPERATION: "While an operation runs on the VM, nothing else is requested.",
    LoopRule.VM_RUNNING: "A VM that runs is left alone.",
    LoopRule.TPU_CREATE: "A TPU that does not exist is requested. Each one has a new number in its name.",
    LoopRule.TPU_ENDED: (
        "A TPU that was taken away (PREEMPTED, TERMINATED, STOPPED) is deleted and replaced at once."
    ),
    LoopRule.TPU_PREEMPTING: (
        "Once all workers of a TPU that is being preempted have saved and stopped, the next one is requested."
    ),
    LoopRule.TPU_RACE: (
        "Of several requested TPUs the first one READY, or the first to boot, wins; the others are deleted."
    ),
    LoopRule.TPU_NEXT: (
        "A TPU that is being preempted, or on demand for a deadline, works until the next one is READY."
    ),
    LoopRule.TPU_CREATING: f"A TPU may stay CREATING for {_minutes(CREATE_TIMEOUT)} before it is replaced.",
    LoopRule.TPU_QUEUED: (
        "A request waits in the queue as long as tpu.wait lets it; PROVISIONING may last "
        f"{_minutes(PROVISIONING_TIMEOUT)}."
    ),
    LoopRule.TPU_TRANSIENT_STATE: (
        f"A transient state (REPAIRING, RESTARTING ...) may last {_minutes(REPAIR_TIMEOUT)} before the TPU is "
        "replaced."
    ),
    LoopRule.TPU_REPORTS: "A TPU whose workers report is kept, whatever state or health the API shows.",
    LoopRule.TPU_UNHEALTHY: (
        f"An unhealthy, silent TPU is replaced: after {CONFIRMED_AFTER:g} s if it never reported, else "
        f"{_minutes(UNHEALTHY_TIMEOUT)}."
    ),
    LoopRule.TPU_UNREACHABLE: ("A READY TPU counts as lost when a worker is silent and SSH to it fails too."),
    LoopRule.TPU_NEVER_REPORTED: (
        f"A READY TPU is replaced if its startup script has not begun in {_minutes(SILENT_TIMEOUT)}, or if no "
        f"worker reports in {_minutes(START_TIMEOUT)}."
    ),
    LoopRule.TPU_READY: "A TPU that is READY, healthy and wanted is left alone.",
    LoopRule.TPU_UNWANTED: "A TPU of another shape than the file's is replaced.",
    LoopRule.REFUSED_WAIT: (
        f"After a refusal the next try waits, doubling: {BACKOFF[Retry.CAPACITY].first:g} to "
        f"{BACKOFF[Retry.CAPACITY].longest:g} s for capacity, to {BACKOFF[Retry.QUOTA].longest:g} for quota."
    ),
    LoopRule.REFUSED_FINAL: (
        f"What waiting cannot cure (permission, quota after {QUOTA_TRIES} tries) is not requested again before the "
        "next `tpuctl up` or `tpuctl watch`."
    ),
    LoopRule.JOB_WAITS: "The job waits for TPU, bucket, code, and with `run_on: vm` for the VM.",
    LoopRule.JOB_PUSH: "Machines without the wanted code or settings get them over SSH.",
    LoopRule.JOB_SILENT: (
        f"A worker without a heartbeat for {_COUNT[SILENCE]} intervals is checked over SSH."
    ),
    LoopRule.JOB_STARTS: (
        f"A machine has {_COUNT[int(BOOT_GRACE // 60)]} minutes from READY to its first heartbeat."
    ),
    LoopRule.JOB_UNCOMMITTED: (
        "While there is no checkpoint, a save that has been there for four heartbeats is reported."
    ),
    LoopRule.JOB_FAILING: (
        "A job that fails is started again, at most job.failures times in a row without a new checkpoint."
    ),
    LoopRule.JOB_IGNORES_CHECKPOINT: (
        "A job whose first step is before the checkpoint that was restored for it is reported."
    ),
    LoopRule.SAVES_AUTO: (
        f"The interval is sqrt(2 x save pause x time between interruptions), between {MIN_INTERVAL:g} s and "
        f"{MAX_INTERVAL / 3600:g} h."
    ),
    LoopRule.SAVES_FIXED: "The file fixes the time between two saves, or leaves it to the job.",
    LoopRule.JOB_RUNS: "A job whose workers all report is left alone.",
    LoopRule.WATCHER_RUNNING: f"One tpuctl at a time acts; it renews its lease every {RENEWAL:g} s.",
    LoopRule.WATCHER_LEASE_EXPIRED: (
        f"A lease that was not renewed for {EXPIRES_AFTER:g} s may be taken over: its holder counts as dead."
    ),
    LoopRule.WATCHER_NONE: "No watcher runs, so a preempted TPU is not replaced.",
}


def manual() -> str:
    """Return the list of all rules as Markdown, for docs/explain.md."""
    rows = [f"| `{rule.value}` | {text} |" for rule, text in RULES.items()]
    return "\n".join(("| rule | what it says |", "| --- | --- |", *rows)) + "\n"
