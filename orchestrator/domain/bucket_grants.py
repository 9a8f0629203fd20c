"""
Compute the IAM bindings of a deployment's bucket.

Machines may read every object. They may write all but those that the controller acts on: record, lease,
journal, status, code and data. Google evaluates the condition for each object (docs/facts.md 3.2).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.contract.bucket.object_names import BUNDLES, CLAIM, DATA, GANG, HEARTBEAT, STATE, WAKE
from orchestrator.domain.machines.scopes import BUCKET_ROLE, READER_ROLE, WRITER_ROLE
from orchestrator.domain.spec import Spec, VmSpec

CONTROLLED = (STATE, BUNDLES, DATA)
"""Prefixes that only the controller may write, with the exceptions in REPORTED."""
REPORTED = (HEARTBEAT, GANG, CLAIM, WAKE)
"""Prefixes within CONTROLLED that machines write their reports to."""

GRANT_SETTLES = 600.0
"""Seconds until a new role is in force everywhere: usually 2 minutes, 7 or more at worst (docs/facts.md 6.2)."""
TITLE = "tpuctl_machines"
DESCRIPTION = "Machines write neither records nor code."


@dataclass(frozen=True)
class Grant:
    """One role of one account on the bucket; without *expression* it covers every object."""

    role: str
    account: str
    expression: str = ""

    @property
    def member(self) -> str:
        """Return the account in the form of an IAM policy."""
        return f"serviceAccount:{self.account}"

    @property
    def condition(self) -> dict[str, str]:
        """Return the binding's condition; empty if it has none."""
        if not self.expression:
            return {}
        return {"title": TITLE, "description": DESCRIPTION, "expression": self.expression}


def settling(granted_at: float, now: float) -> bool:
    """Return whether a role given at *granted_at* may not be in force everywhere yet, which explains a refusal."""
    return now - granted_at < GRANT_SETTLES


def grants(bucket: str, tpu: str, vm: str = "", *, loop: bool = False) -> tuple[Grant, ...]:
    """
    Return the grants for the accounts of TPUs and VM (empty: the same); with *loop* the VM runs the loop.

    The loop writes everything, and a condition cannot tell it from a job under the same account.
    """
    controller = (vm or tpu) if loop else ""
    machines = [account for account in dict.fromkeys((tpu, vm or tpu)) if account != controller]
    narrow = [
        grant
        for account in machines
        for grant in (
            Grant(BUCKET_ROLE, account),
            Grant(READER_ROLE, account),
            Grant(WRITER_ROLE, account, not_controlled(bucket)),
        )
    ]
    wide = (Grant(BUCKET_ROLE, controller), Grant(WRITER_ROLE, controller)) if controller else ()
    return (*narrow, *wide)


def not_controlled(bucket: str) -> str:
    """Return the condition, in the Common Expression Language, that an object is not the controller's."""
    controlled, reported = _any_of(bucket, CONTROLLED), _any_of(bucket, REPORTED)
    # Few prefixes, because an expression may have at most 12 logical operators (docs/facts.md 3.2).
    return f"!({controlled}) || {reported}"


def _any_of(bucket: str, prefixes: Iterable[str]) -> str:
    # The underscore stands for the project in resource names of objects (docs/facts.md 3.2).
    start = f"projects/_/buckets/{bucket}/objects/"
    return " || ".join(f'resource.name.startsWith("{start}{prefix}")' for prefix in prefixes)


def vm_account(spec: Spec) -> str | None:
    """Return the VM's account from the file; None if it is that of all machines."""
    own = spec.vm.service_account if isinstance(spec.vm, VmSpec) else None
    return own or spec.service_account


def shares_account(spec: Spec) -> bool:
    """Return whether job and loop run as the same account on the VM, so that the job may do what the loop may."""
    return spec.watch.on_vm and (spec.job.run_on == "vm" or vm_account(spec) == spec.service_account)


def grants_mark(spec: Spec) -> str:
    """Return a fingerprint of the wanted grants; if the record has another, `up` sets the grants again."""
    accounts = f"{spec.service_account or ''}:{vm_account(spec) or ''}"
    # The 2 is the version of these grants: raise it when they change, so that `up` updates existing buckets.
    return f"2:{accounts}:{int(spec.watch.on_vm)}:{int(spec.bucket.soft_delete or 0)}"
