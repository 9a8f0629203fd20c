"""
Rules about the loop on the VM.
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


RULES = (Rule(("watch.on_vm", "vm"), _place),)
"""
The rules of this file.
"""
