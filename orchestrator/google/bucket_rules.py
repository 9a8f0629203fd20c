"""How we treat buckets: the roles that machines get, and how often we try against others."""

from collections.abc import Collection, Sequence
from typing import Any

from orchestrator.domain.bucket_grants import TITLE, Grant, grants
from orchestrator.domain.ports import BucketOrder
from orchestrator.domain.scopes import BUCKET_ROLE, READER_ROLE, WRITER_ROLE
from orchestrator.errors import ConflictError

OURS = (BUCKET_ROLE, READER_ROLE, WRITER_ROLE)
BATCH = 100  # requests in one batch call
POLICY_TRIES = 5
EMPTY_TRIES = 3


def grants_of(order: BucketOrder) -> tuple[Grant, ...]:
    """Return what the machines of a bucket are granted on it."""
    return grants(order.name, order.writer, order.vm, loop=order.loop)


def with_grants(bindings: Sequence[dict[str, Any]], wanted: Collection[Grant]) -> list[dict[str, Any]]:
    """
    Return a policy's bindings, whose members are sets, with those that are *wanted*.

    What an earlier version gave the same accounts without a condition is taken back. Bindings of others
    stay, also those of an account of which nothing is wanted.
    """
    members = {grant.member for grant in wanted}
    kept = []
    for binding in bindings:
        title = (binding.get("condition") or {}).get("title", "")
        made_by_us = binding["role"] in OURS and title in ("", TITLE)
        rest = binding["members"] - (members if made_by_us else set())
        if rest or not binding["members"]:
            kept.append({**binding, "members": rest})
    for grant in wanted:
        condition = {"condition": grant.condition} if grant.condition else {}
        kept.append({"role": grant.role, "members": {grant.member}, **condition})
    return list(bindings) if _same(kept, bindings) else kept


def _same(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> bool:
    return _triples(one) == _triples(other)


def _triples(bindings: Sequence[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (binding["role"], member, str((binding.get("condition") or {}).get("expression", "")))
        for binding in bindings
        for member in binding["members"]
    }


def not_ours(name: str) -> ConflictError:
    """Return the error for a bucket name that is taken."""
    return ConflictError(
        f"create bucket '{name}': the name is taken by another project",
        hint="Choose another bucket.name in tpuctl.yaml, then run: tpuctl plan",
        changed="Nothing was changed.",
    )


def still_written(name: str) -> ConflictError:
    """Return the error for a bucket that fills up while it is being emptied."""
    return ConflictError(
        f"delete bucket '{name}': another process keeps writing to it",
        aborted=True,
        hint="Stop that process, then run: tpuctl down --delete-data",
        changed="Some objects may be deleted; the bucket still exists.",
    )
