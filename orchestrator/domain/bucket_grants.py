"""
Who may do what with the objects of a deployment's bucket: the bindings of its IAM policy.

Machines read all of it. They write everywhere but where the controller keeps what it acts on: record, lease,
journal, status, code and data. Google evaluates the condition for each object (docs/facts.md 3.2).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.contract.object_names import BUNDLES, CLAIM, DATA, GANG, HEARTBEAT, STATE, WAKE
from orchestrator.domain.scopes import BUCKET_ROLE, READER_ROLE, WRITER_ROLE
from orchestrator.domain.spec import Spec, VmSpec

CONTROLLED = (STATE, BUNDLES, DATA)
"""Where only the controller writes ..."""
REPORTED = (HEARTBEAT, GANG, CLAIM, WAKE)
"""... but for these, in which machines report."""

GRANT_SETTLES = 600.0
"""Seconds after which a role counts everywhere: mostly 2 minutes, 7 or more at worst (docs/facts.md 6.2)."""
TITLE = "tpuctl_machines"
DESCRIPTION = "Machines write neither records nor code."


@dataclass(frozen=True)
class Grant:
    """Hold one role of one account on the bucket; without an *expression* it holds for every object."""

    role: str
    account: str
    expression: str = ""

    @property
    def member(self) -> str:
        """Return the account as a policy names it."""
        return f"serviceAccount:{self.account}"

    @property
    def condition(self) -> dict[str, str]:
        """Return the binding's condition, empty when there is none."""
        if not self.expression:
            return {}
        return {"title": TITLE, "description": DESCRIPTION, "expression": self.expression}


def settling(granted_at: float, now: float) -> bool:
    """Say whether a refusal may be that of a role given at *granted_at* which does not count everywhere yet."""
    return now - granted_at < GRANT_SETTLES


def grants(bucket: str, tpu: str, vm: str = "", *, loop: bool = False) -> tuple[Grant, ...]:
    """
    Return what the accounts of *tpu* and *vm* get (empty: the same); with *loop* the VM runs the loop.

    The loop writes everything, and a condition cannot tell it from a job that runs as the same account.
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
    """Return the condition, in the Common Expression Language, that an object is none of the controller's."""
    controlled, reported = _any_of(bucket, CONTROLLED), _any_of(bucket, REPORTED)
    # Few prefixes on purpose: an expression has at most 12 logical operators (docs/facts.md 3.2).
    return f"!({controlled}) || {reported}"


def _any_of(bucket: str, prefixes: Iterable[str]) -> str:
    # The underscore stands for the project in every name of an object (docs/facts.md 3.2).
    start = f"projects/_/buckets/{bucket}/objects/"
    return " || ".join(f'resource.name.startsWith("{start}{prefix}")' for prefix in prefixes)


def vm_account(spec: Spec) -> str | None:
    """Return the account that the file names for the VM; None where it is that of all machines."""
    own = spec.vm.service_account if isinstance(spec.vm, VmSpec) else None
    return own or spec.service_account


def shares_account(spec: Spec) -> bool:
    """Say whether the job runs as the account of a loop on the VM, and so may do what the loop may."""
    return spec.watch.on_vm and (spec.job.run_on == "vm" or vm_account(spec) == spec.service_account)


def grants_mark(spec: Spec) -> str:
    """Return a mark of what the file asks for: where the record has another, `up` sets the bucket up anew."""
    accounts = f"{spec.service_account or ''}:{vm_account(spec) or ''}"
    # The 2 is the version of these grants: raise it when they change, so that
    # buckets of earlier versions get them.
    return f"2:{accounts}:{int(spec.watch.on_vm)}:{int(spec.bucket.soft_delete or 0)}"
