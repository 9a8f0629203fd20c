"""Rules about the loop: on the VM, and against a deadline."""

from collections.abc import Iterator

from orchestrator.config.rules.rule import Problem, Rule
from orchestrator.domain.bucket_grants import shares_account
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec, VmSpec


def _place(spec: Spec, _: Catalog) -> Iterator[Problem]:
    if not spec.watch.on_vm:
        return
    if not isinstance(spec.vm, VmSpec):
        yield Problem("watch.on_vm", "the loop is to run on the VM, but vm is none", "describe the vm")
    elif spec.vm.spot:
        yield Problem(
            "watch.on_vm",
            "vm.spot is set: nobody starts a preempted VM again while the only loop runs on it",
            "leave vm.spot out; a small standard VM costs little",
            fatal=False,
        )


def _account(spec: Spec, _: Catalog) -> Iterator[Problem]:
    """Name a job that may do in the project what the loop may: nothing but the account keeps the two apart."""
    wide = "job.secrets" if spec.job.secrets else "watch.self_delete" if spec.watch.self_delete else ""
    if not wide or not isinstance(spec.vm, VmSpec) or not shares_account(spec):
        return
    hint = "set vm.service_account, an account for the loop alone (docs/on-vm.md), or trust the job with it"
    if spec.job.run_on == "vm":
        hint = "run the job on the TPU and set vm.service_account, or trust the job with it"
    text = f"with {wide} the job may do in the whole project what the loop may: both run as one account"
    yield Problem("watch.on_vm", text, hint, fatal=False)


def _deadline(spec: Spec, _: Catalog) -> Iterator[Problem]:
    deadline = spec.watch.deadline
    if deadline is None:
        return
    if spec.job.target_steps is None:
        yield Problem(
            "watch.deadline",
            "nobody can say whether the job is in time: its length is not known",
            "set job.target_steps, or leave watch.deadline out",
        )
    if deadline.after is not None and deadline.after > spec.watch.ttl:
        yield Problem(
            "watch.deadline",
            f"{deadline} is later than the end of ttl, {spec.watch.ttl}",
            "raise watch.ttl, or name an earlier deadline",
        )


def _last_resort(spec: Spec, _: Catalog) -> Iterator[Problem]:
    key = "watch.last_resort"
    if spec.watch.last_resort == "on-demand":
        return
    if spec.watch.deadline is None or not spec.tpu.spot:
        yield Problem(key, "only a deadline of a spot TPU has one", "set watch.deadline, or leave it out")
    elif spec.tpu.strategy != "failover":
        yield Problem(key, "flex-start is asked for in one zone at a time", "set tpu.strategy: failover")


RULES = (
    Rule(("watch.on_vm", "vm"), _place),
    Rule(
        ("watch.on_vm", "vm", "job.secrets", "job.run_on", "watch.self_delete", "service_account"), _account
    ),
    Rule(("watch.deadline", "watch.ttl", "job.target_steps"), _deadline),
    Rule(("watch.last_resort", "watch.deadline", "tpu.spot", "tpu.strategy"), _last_resort),
)
"""
The rules of this file.
"""
