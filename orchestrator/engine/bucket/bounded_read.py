"""Read objects that machines write: in parallel, within the limits of `contract/bucket/limits.py`."""

from collections.abc import Sequence
from functools import partial

from orchestrator import threads
from orchestrator.contract.bucket.limits import Limit
from orchestrator.domain.ports import Store, StoredObject

PARALLEL = 16


def read_first(store: Store, listed: Sequence[StoredObject], limit: Limit) -> dict[str, StoredObject | None]:
    """
    Return the first of the *listed* objects by name; None for one that is gone. Objects beyond *limit* are skipped.

    An object larger than its limit is cut, so that its parser rejects it.
    """
    names, remaining = [], limit.together
    for one in listed[: limit.many]:
        # By the listed size; an object that grows meanwhile is cut by the limit of its own read.
        remaining -= min(one.size, limit.each)
        if remaining < 0:
            break
        names.append(one.name)
    with threads.pool(PARALLEL) as pool:
        return dict(zip(names, pool.map(partial(store.read, limit=limit.each), names), strict=True))
