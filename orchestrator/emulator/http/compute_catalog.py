"""Serve read-only resources of Compute Engine: projects, zones, regions, types, images, networks, disks."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from orchestrator.emulator.http.compute_shapes import disk_json, link, named_resource
from orchestrator.emulator.http.dispatch import ApiCall
from orchestrator.emulator.http.paging import Shown, aggregated, listed, out_of_reach
from orchestrator.emulator.http.router import Response
from orchestrator.emulator.state import api_errors, tables
from orchestrator.emulator.state.identifiers import compute_timestamp
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.network import Vpc
from orchestrator.emulator.state.tables import VmType
from orchestrator.emulator.state.vm import vm_rules

DISK_TYPES = ("pd-balanced", "pd-ssd", "pd-standard")
_NETWORK_ID, _NETWORK_STEP = 1000000000, 100_000
_RULE_FIELDS = ("id", "name", "created", "network")
T = TypeVar("T")


class Collection(Generic[T]):
    """
    Answers get, list and aggregatedList of one *kind* of resources.

    They are *within* `zones`, `regions`, `global`, or the project itself (""). *found* returns those of a
    zone or region by name, *show* converts one to JSON.
    """

    def __init__(
        self,
        cloud: LocalCloud,
        kind: str,
        within: str,
        found: Callable[[str], Mapping[str, T]],
        show: Callable[[str, T], Shown],
    ) -> None:
        self._cloud, self._kind, self._within, self._found, self._show = cloud, kind, within, found, show

    def get(self, call: ApiCall) -> Response:
        location, known = self._found_at(call)
        if call.name not in known:
            raise api_errors.missing(f"{self._path(location)}/{call.name}")
        return Response.of(self._show(location, known[call.name]))

    def list(self, call: ApiCall) -> Response:
        location, known = self._found_at(call)
        if self._cloud.kernel.partial:
            warning = {"code": "UNREACHABLE", "message": f"'{location}' did not answer."}
            shown = {"kind": f"compute#{self._kind}List", "id": self._path(location), "warning": warning}
            return Response.of(shown)
        items = [self._show(location, one) for one in known.values()]
        return listed(call.request, self._kind, self._path(location), items)

    def aggregated(self, call: ApiCall) -> Response:
        """Answer aggregatedList by zone or region."""
        locations = tables.zones() if self._within == "zones" else tables.regions()
        key = f"{self._kind}s"
        path = f"projects/{self._cloud.settings.project}/aggregated/{key}"
        if self._cloud.kernel.partial:
            return out_of_reach(key, path, [f"{self._within}/{location}" for location in locations])
        scopes = {
            f"{self._within}/{location}": [
                self._show(location, one) for one in self._found(location).values()
            ]
            for location in locations
        }
        return aggregated(call.request, key, path, scopes)

    def _found_at(self, call: ApiCall) -> tuple[str, Mapping[str, T]]:
        if call.zone:
            vm_rules.check_zone(self._cloud.kernel, call.zone)
        elif call.region and call.region not in tables.regions():
            raise api_errors.missing(f"projects/{self._cloud.settings.project}/regions/{call.region}")
        location = call.zone or call.region
        return location, self._found(location)

    def _path(self, location: str) -> str:
        parts = ("projects", self._cloud.settings.project, self._within, location, f"{self._kind}s")
        return "/".join(part for part in parts if part)


class ComputeCatalog:
    """The collections that follow from the tables and the project, and other read-only calls."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._own = f"projects/{cloud.settings.project}"
        disks, network = cloud.compute.disks, cloud.network
        self.zones = Collection(cloud, "zone", "", lambda _: _named(tables.zones()), self._zone)
        self.regions = Collection(cloud, "region", "", lambda _: _named(tables.regions()), self._region)
        self.types = Collection(
            cloud, "machineType", "zones", lambda zone: tables.vm_types(tables.region_of(zone)), self._type
        )
        self.disk_types = Collection(
            cloud, "diskType", "zones", lambda _: _named(DISK_TYPES), self._disk_type
        )
        self.disks = Collection(
            cloud,
            "disk",
            "zones",
            lambda zone: {one.name: one for one in disks.in_zone(zone)},
            lambda _, one: disk_json(cloud.settings.project, one, disks.users(one)),
        )
        self.networks = Collection(cloud, "network", "global", lambda _: network.vpcs, self._network)
        self.subnets = Collection(cloud, "subnetwork", "regions", self._subnets, self._subnet)
        self.firewalls = Collection(
            cloud,
            "firewall",
            "global",
            lambda _: {one["name"]: one for one in network.firewalls()},
            self._rule,
        )

    def project(self, _call: ApiCall) -> Response:
        settings = self._cloud.settings
        shown = named_resource("project", self._own, settings.project_number)
        account = {"defaultServiceAccount": settings.default_service_account}
        return Response.of({**shown, **account, "commonInstanceMetadata": {"kind": "compute#metadata"}})

    def images(self, call: ApiCall) -> Response:
        """Answer images.list; the local cloud's project has no images of its own."""
        known = () if call.project == self._cloud.settings.project else vm_rules.families_of(call.project)
        found = [_image(call.project, vm_rules.image_of_family(call.project, one), one) for one in known]
        return listed(call.request, "image", f"projects/{call.project}/global/images", found)

    def family(self, call: ApiCall) -> Response:
        return Response.of(_image(call.project, vm_rules.image_of_family(call.project, call.name), call.name))

    def image(self, call: ApiCall) -> Response:
        return Response.of(_image(call.project, call.name, vm_rules.family_of_image(call.project, call.name)))

    def effective_firewalls(self, call: ApiCall) -> Response:
        """Answer networks.getEffectiveFirewalls; the local cloud has only the network's own rules."""
        self.networks.get(call)
        return Response.of({"firewalls": [self._rule("", one) for one in self._cloud.network.firewalls()]})

    def _zone(self, _: str, zone: str) -> Shown:
        region = link(f"{self._own}/regions/{tables.region_of(zone)}")
        path = f"{self._own}/zones/{zone}"
        return named_resource("zone", path, _id(zone), region=region, status="UP", description=zone)

    def _region(self, _: str, region: str) -> Shown:
        """Return a region, with the usage of its CPUS quota if it has one."""
        zones = [link(f"{self._own}/zones/{z}") for z in tables.zones() if tables.region_of(z) == region]
        limit = self._cloud.settings.quotas.get(("CPUS", region))
        used = 0 if limit is None else vm_rules.cpus_in_use(self._cloud.kernel, region)
        quotas = [] if limit is None else [{"metric": "CPUS", "limit": limit, "usage": used}]
        path = f"{self._own}/regions/{region}"
        return named_resource("region", path, _id(region), status="UP", zones=zones, quotas=quotas)

    def _type(self, zone: str, kind: VmType) -> Shown:
        path = f"{self._own}/zones/{zone}/machineTypes/{kind.name}"
        memory, shared = int(kind.memory_gib * 1024), kind.vcpus < 1
        size = {"guestCpus": kind.guest_cpus, "memoryMb": memory, "isSharedCpu": shared}
        return named_resource("machineType", path, _id(kind.name), zone=zone, **size)

    def _disk_type(self, zone: str, name: str) -> Shown:
        location = f"{self._own}/zones/{zone}"
        return named_resource(
            "diskType", f"{location}/diskTypes/{name}", 30000 + DISK_TYPES.index(name), zone=link(location),
            validDiskSize="10GB-65536GB", defaultDiskSizeGb="500" if name == "pd-standard" else "100",
        )  # fmt: skip

    def _network(self, _: str, vpc: Vpc) -> Shown:
        regions = vpc.subnetworks.items()
        subnets = [link(f"{self._own}/regions/{region}/subnetworks/{name}") for region, (name, _) in regions]
        path, mode = f"{self._own}/global/networks/{vpc.name}", vpc.automatic
        number = self._number(vpc)
        return named_resource("network", path, number, autoCreateSubnetworks=mode, subnetworks=subnets)

    def _number(self, vpc: Vpc) -> int:
        return _NETWORK_ID + _NETWORK_STEP * list(self._cloud.network.vpcs).index(vpc.name)

    def _subnets(self, region: str) -> dict[str, Vpc]:
        vpcs = self._cloud.network.vpcs.values()
        return {vpc.subnetworks[region][0]: vpc for vpc in vpcs if region in vpc.subnetworks}

    def _subnet(self, region: str, vpc: Vpc) -> Shown:
        name, addresses = vpc.subnetworks[region]
        return named_resource(
            "subnetwork",
            f"{self._own}/regions/{region}/subnetworks/{name}",
            self._number(vpc) + 1 + list(tables.regions()).index(region),
            region=link(f"{self._own}/regions/{region}"),
            network=link(f"{self._own}/global/networks/{vpc.name}"),
            ipCidrRange=addresses,
            privateIpGoogleAccess=True,
        )

    def _rule(self, _: str, rule: dict[str, Any]) -> Shown:
        fields = {key: value for key, value in rule.items() if key not in _RULE_FIELDS}
        network = str(rule.get("network", "default")).rpartition("/")[2]
        return named_resource(
            "firewall",
            f"{self._own}/global/firewalls/{rule['name']}",
            int(rule["id"]),
            network=link(f"{self._own}/global/networks/{network}"),
            creationTimestamp=compute_timestamp(rule["created"]),
            **fields,
        )


def _named(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def _image(project: str, name: str, family: str) -> Shown:
    path = f"projects/{project}/global/images/{name}"
    times = {"creationTimestamp": compute_timestamp(1767225600.0), "status": "READY", "diskSizeGb": "10"}
    return named_resource("image", path, _id(name), family=family, **times)


def _id(name: str) -> int:
    return 10**9 + zlib.crc32(name.encode())
