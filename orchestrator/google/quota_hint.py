"""What a quota refusal means for the requested TPU."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.errors import QuotaError

_LIMIT = re.compile(r"\blimit:?\s+(\d{1,9})\b", re.IGNORECASE)


@contextmanager
def comparing_with_quota(accelerator_type: str, zone: str) -> Iterator[None]:
    """Let a quota refusal name the request, the limit, and a type that would fit."""
    try:
        yield
    except QuotaError as error:
        # Only the text has the limit. It improves the hint, and decides nothing.
        found = _LIMIT.search(error.message)
        hint = _comparison(accelerator_type, zone, int(found[1])) if found else ""
        error.hint = f"{hint} {error.hint}" if hint else error.hint
        raise


def _comparison(accelerator_type: str, zone: str, limit: int) -> str:
    catalog = load_catalog()
    wanted = catalog.accelerator(accelerator_type)
    quota = catalog.quota_of(accelerator_type, spot=True)
    if wanted is None or quota is None:
        return ""
    asked = f"You requested {wanted.counted} {quota.unit}, the limit is {limit}"
    if wanted.counted <= limit:
        return f"{asked}: other TPUs use the rest."
    smaller = catalog.within_quota(accelerator_type, zone, limit)
    return f"{asked}: {smaller} would fit (tpu.type)." if smaller else f"{asked}."
