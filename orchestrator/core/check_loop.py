"""
Rules about the loop: on the VM, and against a deadline.
"""

from collections.abc import Iterator

from orchestrator.core.catalog import Catalog
from orchestrator.core.rule import Problem, Rule
from orchestrator.core.spec import Spec, VmSpec


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


RULES = (
    Rule(("watch.on_vm", "vm"), _place),
    Rule(("watch.deadline", "watch.ttl", "job.target_steps"), _deadline),
)
"""
The rules of this file.
"""
