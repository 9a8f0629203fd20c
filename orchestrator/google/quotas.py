"""The limits of a quota of TPUs, by the Cloud Quotas API (docs/facts.md 1.6)."""

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.domain.names import region_of
from orchestrator.google.clients import Clients
from orchestrator.google.rest import Rest

GOOGLE = "https://cloudquotas.googleapis.com"
UNLIMITED = -1


def tpu_limits(clients: Clients, quota: str, zones: Iterable[str]) -> dict[str, int]:
    """Return the project's limit of *quota* in each of *zones* of which the answer speaks; -1 is no limit."""
    service = f"/v1/projects/{clients.project}/locations/global/services/tpu.googleapis.com"
    info = Rest(clients, GOOGLE).get(f"{service}/quotaInfos/{quota}", f"read the quota {quota}")
    found = {zone: _limit(info.get("dimensionsInfos", []), zone) for zone in zones}
    return {zone: limit for zone, limit in found.items() if limit is not None}


def _limit(infos: Iterable[Mapping[str, Any]], zone: str) -> int | None:
    """Return the limit that counts in *zone*: an entry that names the place goes before one for all the others."""
    places = {"zone": zone, "region": region_of(zone)}
    general = None
    for info in infos:
        named = {key: at for key, at in info.get("dimensions", {}).items() if key in places}
        value = info.get("details", {}).get("value")
        if value is None or any(places[key] != at for key, at in named.items()):
            continue
        if named:
            return int(value)
        general = int(value)
    return general
