"""The rules by which tpuctl decides, by id: what an explanation names and docs/explain.md lists."""

from typing import Final

RULES: Final[dict[str, str]] = {
    "sight.unknown": "What could not be seen is unknown, not absent: nothing is made or deleted on it.",
    "sight.twice": "An absence counts after two looks 30 s apart have shown it.",
    "end.done": "When every worker reports that it is done, TPUs are deleted and the VM is stopped.",
    "end.unclaimed": "Status 0 without a complete checkpoint is not done: its files are kept in unclaimed/.",
    "end.failed": "A job that left too often without progress ends the deployment; data is kept.",
    "end.spent": "When ttl or budget_usd is used up, TPUs are deleted and the VM is stopped; data is kept.",
    "end.refused": "A bucket in another region than the TPU is refused: each checkpoint would be billed.",
    "end.none": "Until the job is done, has failed or is out of ttl or budget, it is kept running.",
    "end.down": "After `down`, or before `up`, nothing is wanted and nothing is made.",
    "bucket.first": "The bucket is made first: everything that must not be lost lies in it.",
    "bucket.gone": "A bucket that held data and is gone is never replaced by an empty one.",
    "bucket.kept": "A bucket that is there is left alone.",
    "vm.none": "The file says `vm: none`.",
    "vm.make": "A VM that is not there is made.",
    "vm.start": "A VM that was stopped or preempted is started again; its disk is still there.",
    "vm.moves": "While an operation runs on the VM, nothing else is asked for.",
    "vm.kept": "A VM that runs is left alone.",
    "tpu.make": "A TPU that is not there is asked for, under a new name for each incarnation.",
    "tpu.lost": "A TPU that was taken away (PREEMPTED, TERMINATED, STOPPED) is deleted and replaced at once.",
    "tpu.left": "A TPU whose workers all had their notice and rest is replaced before it is gone.",
    "tpu.race": "Of several TPUs the first one READY, or the first machine to boot, is named; the others go.",
    "tpu.creating": "A TPU may stay CREATING for 30 min before it is replaced.",
    "tpu.queued": "An order waits in the queue as long as tpu.wait lets it; PROVISIONING may last 30 min.",
    "tpu.passing": "A passing state (REPAIRING, RESTARTING ...) may last 5 min before the TPU is replaced.",
    "tpu.reports": "A TPU whose workers report is kept, whatever state or health the API shows.",
    "tpu.unhealthy": "An unhealthy, silent TPU is replaced: after 30 s if it never reported, else 8 min.",
    "tpu.unreachable": "A READY TPU counts as lost when a worker is silent and SSH fails too: two witnesses.",
    "tpu.mute": "A READY TPU goes whose script has not begun in 6 min, or that never reports in 20 min.",
    "tpu.kept": "A TPU that is READY, healthy and wanted is left alone.",
    "tpu.unwanted": "A TPU of another shape than the file's is replaced.",
    "refused.wait": "After a refusal the next try waits, doubling: 5 to 60 s for capacity, to 120 for quota.",
    "refused.final": "What waiting cannot cure (permission, quota after 5 tries) is not asked for again.",
    "job.waits": "The job waits for TPU, bucket, code, and with `run_on: vm` for the VM.",
    "job.push": "Machines without the wanted code or settings get them over SSH.",
    "job.silent": "A worker without a heartbeat for four intervals is looked after over SSH.",
    "job.starts": "A machine has two minutes from READY to its first heartbeat.",
    "job.uncommitted": "While nothing is committed, a save that lies there for four heartbeats is named.",
    "job.runs": "A job whose workers all report is left alone.",
    "loop.alive": "One tpuctl at a time acts; it renews its lease every 20 s.",
    "loop.dead": "A lease that was not renewed for 60 s may be taken over: its holder is taken for dead.",
    "loop.nobody": "Nobody watches, so nobody replaces a TPU that is taken away.",
}


def manual() -> str:
    """Return the list of all rules as Markdown: what docs/explain.md ends with."""
    rows = [f"| `{name}` | {text} |" for name, text in RULES.items()]
    return "\n".join(("| rule | what it says |", "| --- | --- |", *rows)) + "\n"
