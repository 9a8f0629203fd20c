"""Compute how much of the project's quota a deployment's TPU takes."""

from orchestrator.domain.catalog import Catalog, TpuQuota
from orchestrator.domain.spec import Spec


def taken(spec: Spec, catalog: Catalog) -> tuple[int, TpuQuota] | None:
    """Return amount and quota; None if not known, and for a reservation, which has no quota of this kind."""
    kind = catalog.accelerator(spec.tpu.type)
    # Google takes flex-start from the preemptible quota (docs/facts.md 1.5).
    spot = spec.tpu.spot or spec.tpu.request == "flex-start"
    quota = catalog.quota_of(spec.tpu.type, spot=spot)
    return (kind.counted, quota) if kind and quota and not spec.tpu.reservation else None


def beyond(catalog: Catalog, accelerator_type: str, zone: str, limit: int) -> str:
    """
    Return the smallest type in *zone* of the same quota that exceeds *limit*; "" if there is none.

    A limit of -1 is no limit.
    """
    quota = catalog.quota_of(accelerator_type, spot=True)
    known = (catalog.accelerator(name) for name in catalog.types_in(zone))
    # A type with another quota may be granted, and billed.
    same = [one for one in known if one and quota and catalog.quota_of(one.type, spot=True) == quota]
    larger = [one for one in same if 0 <= limit < one.counted]
    return min(larger, key=lambda one: one.counted).type if larger else ""


def beyond_a_new_project(spec: Spec, catalog: Catalog) -> tuple[str, ...]:
    """Return the warning that a new project's quota is smaller; this project's is known only by asking Google."""
    found = taken(spec, catalog)
    if found is None or found[0] <= found[1].fresh:
        return ()
    need, quota = found
    fits = catalog.within_quota(spec.tpu.type, spec.tpu.zones[0], quota.fresh)
    instead = f"{fits} would fit, or " if fits else ""
    text = f"{spec.tpu.type} takes {need} {quota.unit} of quota, a new project has {quota.fresh}"
    return (f"{text}: {instead}ask Google for more first. What yours has: tpuctl doctor",)
