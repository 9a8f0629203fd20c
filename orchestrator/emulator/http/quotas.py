"""
Serve the Cloud Quotas API: the project's limit of one TPU quota, by zone or region.

Form and meaning are those of the API's reference and of gcloud's client (docs/facts.md 1.6). The value -1 for
"no limit" is by analogy with the Service Usage API.
"""

from typing import Any

from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.state import tables
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.tpu.node_rules import quota_limit

API, PERMISSION = "cloudquotas.googleapis.com", "cloudquotas.quotas.get"
UNLIMITED = -1
_PATH = "/v1/projects/{project}/locations/global/services/tpu.googleapis.com/quotaInfos/{quota}"


def quota_routes(router: Router, cloud: LocalCloud) -> None:
    def answer(_: Request, project: str, quota: str) -> Response:
        settings = cloud.settings
        if API in settings.disabled_apis:
            text = f"Cloud Quotas API has not been used in project {project} before or it is disabled."
            raise ApiError(403, "PERMISSION_DENIED", text)
        if PERMISSION in settings.denied_permissions:
            text = f"Permission '{PERMISSION}' denied on resource 'projects/{project}' (or it may not exist)."
            raise ApiError(403, "PERMISSION_DENIED", text)
        if (
            project not in (settings.project, str(settings.project_number))
            or quota not in tables.fresh_quotas()
        ):
            raise ApiError(404, "NOT_FOUND", f"Quota '{quota}' was not found.")
        with cloud.lock:
            return Response.of(_info(cloud, quota))

    router.add("GET", _PATH, answer)


def _info(cloud: LocalCloud, quota: str) -> dict[str, Any]:
    kind = "region" if "PerRegion" in quota else "zone"
    zones = tables.zone_types()
    places = sorted(zones if kind == "zone" else {tables.region_of(zone) for zone in zones})
    limits = {at: quota_limit(cloud.kernel, quota, at) for at in places}
    service = "tpu.googleapis.com"
    owner = f"projects/{cloud.settings.project_number}/locations/global/services/{service}"
    return {
        "name": f"{owner}/quotaInfos/{quota}",
        "quotaId": quota,
        "service": service,
        "containerType": "PROJECT",
        "dimensions": [kind],
        "dimensionsInfos": [
            {
                "dimensions": {kind: at},
                "details": {"value": str(UNLIMITED if limit is None else limit)},
                "applicableLocations": [at],
            }
            for at, limit in limits.items()
        ],
    }
