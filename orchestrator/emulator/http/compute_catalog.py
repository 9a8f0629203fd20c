"""Projects, zones, regions, machine types and images."""

import zlib
from typing import Any

from orchestrator.emulator.http.compute_shapes import link, named_resource
from orchestrator.emulator.http.dispatch import Call
from orchestrator.emulator.http.paging import aggregated, listed
from orchestrator.emulator.http.router import Response
from orchestrator.emulator.state import tables, vm_rules
from orchestrator.emulator.state.identifiers import compute_timestamp
from orchestrator.emulator.state.tables import VmType
from orchestrator.emulator.state.world import LocalCloud

DISK_TYPES = ("pd-balanced", "pd-ssd", "pd-standard")


class ComputeCatalog:
    """Answer the calls that only read the catalogue."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._own = f"projects/{cloud.settings.project}"

    def project(self, _call: Call) -> Response:
        settings = self._cloud.settings
        shown = named_resource("project", self._own, settings.project_number)
        account = {"defaultServiceAccount": settings.default_service_account}
        return Response.of({**shown, **account, "commonInstanceMetadata": {"kind": "compute#metadata"}})

    def zones(self, call: Call) -> Response:
        return listed(
            call.request, "zone", f"{self._own}/zones", [self._zone(zone) for zone in tables.zones()]
        )

    def zone(self, call: Call) -> Response:
        vm_rules.check_zone(self._cloud.kernel, call.zone)
        return Response.of(self._zone(call.zone))

    def disk_types(self, call: Call) -> Response:
        vm_rules.check_zone(self._cloud.kernel, call.zone)
        path = f"{self._own}/zones/{call.zone}/diskTypes"
        return listed(call.request, "diskType", path, [self._disk_type(call.zone, one) for one in DISK_TYPES])

    def disk_type(self, call: Call) -> Response:
        vm_rules.check_zone(self._cloud.kernel, call.zone)
        if call.name not in DISK_TYPES:
            raise vm_rules.missing(f"{self._own}/zones/{call.zone}/diskTypes/{call.name}")
        return Response.of(self._disk_type(call.zone, call.name))

    def _disk_type(self, zone: str, name: str) -> dict[str, Any]:
        place = f"{self._own}/zones/{zone}"
        return named_resource(
            "diskType", f"{place}/diskTypes/{name}", 30000 + DISK_TYPES.index(name), zone=link(place),
            validDiskSize="10GB-65536GB", defaultDiskSizeGb="500" if name == "pd-standard" else "100",
        )  # fmt: skip

    def regions(self, call: Call) -> Response:
        return listed(
            call.request, "region", f"{self._own}/regions", [self._region(r) for r in tables.regions()]
        )

    def region(self, call: Call) -> Response:
        """Answer regions.get, with the use of the CPUS quota."""
        if call.region not in tables.regions():
            raise vm_rules.missing(f"{self._own}/regions/{call.region}")
        return Response.of(self._region(call.region))

    def types(self, call: Call) -> Response:
        vm_rules.check_zone(self._cloud.kernel, call.zone)
        return listed(
            call.request, "machineType", f"{self._own}/zones/{call.zone}/machineTypes", self._types(call.zone)
        )

    def types_everywhere(self, call: Call) -> Response:
        scopes = {f"zones/{zone}": self._types(zone) for zone in tables.zones()}
        return aggregated(call.request, "machineTypes", f"{self._own}/aggregated/machineTypes", dict(scopes))

    def type(self, call: Call) -> Response:
        vm_rules.check_zone(self._cloud.kernel, call.zone)
        found = tables.vm_types(tables.region_of(call.zone)).get(call.name)
        if found is None:
            raise vm_rules.missing(f"{self._own}/zones/{call.zone}/machineTypes/{call.name}")
        return Response.of(self._type(call.zone, found))

    def images(self, call: Call) -> Response:
        """Answer images.list; the project of the local cloud has none of its own."""
        known = () if call.project == self._cloud.settings.project else vm_rules.families_of(call.project)
        found = [_image(call.project, vm_rules.image_of_family(call.project, one), one) for one in known]
        return listed(call.request, "image", f"projects/{call.project}/global/images", found)

    def family(self, call: Call) -> Response:
        return Response.of(_image(call.project, vm_rules.image_of_family(call.project, call.name), call.name))

    def image(self, call: Call) -> Response:
        return Response.of(_image(call.project, call.name, vm_rules.family_of_image(call.project, call.name)))

    def _zone(self, zone: str) -> dict[str, Any]:
        region = link(f"{self._own}/regions/{tables.region_of(zone)}")
        path = f"{self._own}/zones/{zone}"
        return named_resource("zone", path, _id(zone), region=region, status="UP", description=zone)

    def _region(self, region: str) -> dict[str, Any]:
        zones = [link(f"{self._own}/zones/{z}") for z in tables.zones() if tables.region_of(z) == region]
        limit = self._cloud.settings.quotas.get(("CPUS", region))
        quotas = [] if limit is None else [{"metric": "CPUS", "limit": limit, "usage": self._cpus(region)}]
        path = f"{self._own}/regions/{region}"
        return named_resource("region", path, _id(region), status="UP", zones=zones, quotas=quotas)

    def _cpus(self, region: str) -> int:
        return vm_rules.cpus_in_use(self._cloud.kernel, region)

    def _types(self, zone: str) -> list[dict[str, Any]]:
        return [self._type(zone, kind) for kind in tables.vm_types(tables.region_of(zone)).values()]

    def _type(self, zone: str, kind: VmType) -> dict[str, Any]:
        path = f"{self._own}/zones/{zone}/machineTypes/{kind.name}"
        memory, shared = int(kind.memory_gib * 1024), kind.vcpus < 1
        size = {"guestCpus": kind.guest_cpus, "memoryMb": memory, "isSharedCpu": shared}
        return named_resource("machineType", path, _id(kind.name), zone=zone, **size)


def _image(project: str, name: str, family: str) -> dict[str, Any]:
    path = f"projects/{project}/global/images/{name}"
    times = {"creationTimestamp": compute_timestamp(1767225600.0), "status": "READY", "diskSizeGb": "10"}
    return named_resource("image", path, _id(name), family=family, **times)


def _id(name: str) -> int:
    return 10**9 + zlib.crc32(name.encode())
