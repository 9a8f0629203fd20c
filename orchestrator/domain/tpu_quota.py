"""What a deployment's TPU takes of the project's quota."""

from orchestrator.domain.catalog import Catalog, TpuQuota
from orchestrator.domain.spec import Spec


def taken(spec: Spec, catalog: Catalog) -> tuple[int, TpuQuota] | None:
    """Return how much of which quota; None where it is not known, and for a reservation, which counts apart."""
    kind = catalog.accelerator(spec.tpu.type)
    # Google gives flex-start out of the preemptible quota (docs/facts.md 1.5).
    spot = spec.tpu.spot or spec.tpu.request == "flex-start"
    quota = catalog.quota_of(spec.tpu.type, spot=spot)
    return (kind.counted, quota) if kind and quota and not spec.tpu.reservation else None


def beyond(catalog: Catalog, accelerator_type: str, zone: str, limit: int) -> str:
    """
    Return the smallest type in *zone* of the same quota that a limit excludes; "" when there is none.

    -1 is no limit.
    """
    quota = catalog.quota_of(accelerator_type, spot=True)
    known = (catalog.accelerator(name) for name in catalog.types_in(zone))
    # A type of another quota may be granted, and cost.
    same = [one for one in known if one and quota and catalog.quota_of(one.type, spot=True) == quota]
    larger = [one for one in same if 0 <= limit < one.counted]
    return min(larger, key=lambda one: one.counted).type if larger else ""


def beyond_a_new_project(spec: Spec, catalog: Catalog) -> tuple[str, ...]:
    """Say that Google grants less to a new project; what this one has is not known without asking."""
    found = taken(spec, catalog)
    if found is None or found[0] <= found[1].fresh:
        return ()
    need, quota = found
    fits = catalog.within_quota(spec.tpu.type, spec.tpu.zones[0], quota.fresh)
    instead = f"{fits} would fit, or " if fits else ""
    text = f"{spec.tpu.type} takes {need} {quota.unit} of quota, a new project has {quota.fresh}"
    return (f"{text}: {instead}ask Google for more first. What yours has: tpuctl doctor",)
