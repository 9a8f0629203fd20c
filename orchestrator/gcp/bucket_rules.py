"""
How we treat buckets: the one role that machines get, and how often we try against others.
"""

from orchestrator.core.scopes import WRITER_ROLE
from orchestrator.errors import ConflictError

ROLE = WRITER_ROLE
BATCH = 100  # requests in one batch call
POLICY_TRIES = 5
EMPTY_TRIES = 3


def not_ours(name: str) -> ConflictError:
    """
    Return the error for a bucket name that somebody else has.
    """
    return ConflictError(
        f"create bucket '{name}': the name belongs to somebody else",
        hint="Choose another bucket.name in tpuctl.yaml, then run: tpuctl plan",
        unchanged="Nothing was changed.",
    )


def still_written(name: str) -> ConflictError:
    """
    Return the error for a bucket that fills up while it is being emptied.
    """
    return ConflictError(
        f"delete bucket '{name}': somebody keeps writing into it",
        aborted=True,
        hint="Stop what writes there, then run: tpuctl down --delete-data",
        unchanged="Part of the objects may be deleted; the bucket exists.",
    )
