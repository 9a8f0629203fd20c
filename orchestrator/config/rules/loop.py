"""Define the rules for the loop on the VM."""

from collections.abc import Iterator

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.domain.bucket_grants import shares_account
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec, VmSpec


def _vm(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if not spec.watch.on_vm:
        return
    if not isinstance(spec.vm, VmSpec):
        yield SettingFinding("watch.on_vm", "watch.on_vm needs a VM, but vm is none", "describe the vm")
    elif spec.vm.spot:
        yield SettingFinding(
            "watch.on_vm",
            "vm.spot is set: no watcher restarts a preempted VM while the only loop runs on it",
            "remove vm.spot; a small standard VM costs little",
            level=Level.WARN,
        )


def _account(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    """Warn about a job that gets the loop's rights in the project: only separate accounts keep them apart."""
    reasons = {
        "job.secrets": bool(spec.job.secrets), "watch.self_delete": spec.watch.self_delete,
        "tpu.scope": spec.tpu.scope == "cloud-platform",
    }  # fmt: skip
    wide = next((key for key, holds in reasons.items() if holds), "")
    if not wide or not isinstance(spec.vm, VmSpec) or not shares_account(spec):
        return
    hint = "set vm.service_account to a separate account for the loop (docs/on-vm.md), or accept this"
    if spec.job.run_on == "vm":
        hint = "run the job on the TPU and set vm.service_account, or accept this"
    text = (
        f"with {wide} the job has the loop's permissions in the whole project: both run as the same account"
    )
    yield SettingFinding("watch.on_vm", text, hint, level=Level.WARN)


def _deadline(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    deadline = spec.watch.deadline
    if deadline is None:
        return
    if spec.job.target_steps is None:
        yield SettingFinding(
            "watch.deadline",
            "a deadline needs the length of the job, which is not known",
            "set job.target_steps, or remove watch.deadline",
        )
    if deadline.after is not None and deadline.after > spec.watch.ttl:
        yield SettingFinding(
            "watch.deadline",
            f"{deadline} is later than the end of ttl, {spec.watch.ttl}",
            "raise watch.ttl, or set an earlier deadline",
        )


def _last_resort(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    key = "watch.last_resort"
    if spec.watch.last_resort == "on-demand":
        return
    if spec.watch.deadline is None or not spec.tpu.spot:
        yield SettingFinding(key, "needs watch.deadline and a spot TPU", "set watch.deadline, or remove it")
    elif spec.tpu.strategy != "failover":
        yield SettingFinding(
            key, "flex-start is requested in one zone at a time", "set tpu.strategy: failover"
        )


RULES = (
    SettingRule(("watch.on_vm", "vm"), _vm),
    SettingRule(
        (
            "watch.on_vm",
            "vm",
            "tpu.scope",
            "job.secrets",
            "job.run_on",
            "watch.self_delete",
            "service_account",
        ),
        _account,
    ),
    SettingRule(("watch.deadline", "watch.ttl", "job.target_steps"), _deadline),
    SettingRule(("watch.last_resort", "watch.deadline", "tpu.spot", "tpu.strategy"), _last_resort),
)
