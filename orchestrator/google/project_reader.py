"""Read what a project has: APIs, zones, quota, firewall, permissions. Nothing is changed."""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network
from typing import Any, TypeVar

from orchestrator.domain.machines.vm_machine_types import CpuQuota
from orchestrator.domain.names import region_of
from orchestrator.domain.observation import Observed
from orchestrator.domain.ports import NetworkInterface
from orchestrator.google.bodies import IMAGE_PROJECT, image_family
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.rest import Rest
from orchestrator.google.secret_manager import SecretManager
from orchestrator.google.unknown_on_error import observed

T = TypeVar("T")

ON_BUCKET = (
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.buckets.get",
    "storage.buckets.getIamPolicy",
    "storage.buckets.setIamPolicy",
)
"""Permissions that `up`, `watch` and `down` need on the bucket of a deployment."""


class ProjectReader:
    """Read single facts of one project; errors become Unknown, "not found" becomes Absent."""

    def __init__(self, clients: Clients, interface: NetworkInterface | None = None) -> None:
        self._clients = clients
        self._interface = interface or NetworkInterface()
        self._project = clients.project

    def tpu_api(self, zone: str) -> Observed[str]:
        """Ask the TPU API for a location, which shows that the API is enabled."""
        name = f"projects/{self._project}/locations/{zone}"
        return self._ask(
            "ask the TPU API",
            lambda: str(self._clients.tpu.list_nodes(parent=name, **self._reading) and zone),
        )

    def offers(self, zone: str, accelerator: str) -> Observed[str]:
        """Ask whether a zone lists a type."""
        name = f"projects/{self._project}/locations/{zone}/acceleratorTypes/{accelerator}"
        what = f"ask for {accelerator} in {zone}"
        return self._ask(
            what, lambda: str(self._clients.tpu.get_accelerator_type(name=name, **self._reading).type_)
        )

    def has_runtime(self, zone: str, version: str) -> Observed[str]:
        """Ask whether a zone has a TPU software version."""
        name = f"projects/{self._project}/locations/{zone}/runtimeVersions/{version}"
        what = f"ask for {version} in {zone}"
        return self._ask(
            what, lambda: str(self._clients.tpu.get_runtime_version(name=name, **self._reading).version)
        )

    def machine_account(self) -> Observed[str]:
        """Ask Compute Engine for the project's default service account; empty if it has none."""
        return self._ask(
            f"read project '{self._project}'",
            lambda: str(
                self._clients.projects.get(project=self._project, **self._reading).default_service_account
            ),
        )

    def storage_api(self) -> Observed[str]:
        """Ask Cloud Storage for the first bucket of the project, which shows that the API is enabled."""

        def first() -> str:
            listed = self._clients.storage.list_buckets(max_results=1, **self._reading)
            return str(next((bucket.name for bucket in listed), ""))

        return self._ask("list buckets", first)

    def cpus(self, region: str, machine_zone: str, machine_type: str) -> Observed[CpuQuota]:
        """Ask for the CPUS quota of a region, and how much of it a machine type takes; Absent without a limit."""

        def quota() -> CpuQuota | None:
            regions = self._clients.compute("regions", "RegionsClient")
            shown = regions.get(project=self._project, region=region, **self._reading)
            found = next((q for q in shown.quotas if q.metric == "CPUS"), None)
            if found is None:
                return None
            types = self._clients.compute("machine_types", "MachineTypesClient")
            kind = types.get(
                project=self._project, zone=machine_zone, machine_type=machine_type, **self._reading
            )
            return CpuQuota(found.limit, found.usage, int(kind.guest_cpus))

        return self._ask(f"read the quota of {region}", quota)

    def tpu_limits(self, quota: str, zones: Iterable[str]) -> Observed[dict[str, int]]:
        """Ask for the project's limit of a TPU quota by zone; -1 is no limit."""
        return self._ask(f"read the quota {quota}", lambda: tpu_limits(self._clients, quota, zones))

    def has_machine_type(self, zone: str, machine_type: str) -> Observed[str]:
        """Ask whether a zone has a machine type."""

        def name() -> str:
            types = self._clients.compute("machine_types", "MachineTypesClient")
            shown = types.get(project=self._project, zone=zone, machine_type=machine_type, **self._reading)
            return str(shown.name)

        return self._ask(f"ask for {machine_type} in {zone}", name)

    def vm_image(self, machine_type: str, image: str = "") -> Observed[str]:
        """Ask for the newest image of the VM's family, or for *image*; Absent if it does not exist."""
        family = image.rpartition("/")[2] or image_family(machine_type)
        project = image.removeprefix("projects/").partition("/")[0] if image else IMAGE_PROJECT

        def newest() -> str:
            images = self._clients.compute("images", "ImagesClient")
            if image and "/family/" not in image:
                return str(images.get(project=project, image=family, **self._reading).name)
            return str(images.get_from_family(project=project, family=family, **self._reading).name)

        return self._ask(f"read the image family '{family}'", newest)

    def private_access(self, region: str) -> Observed[bool]:
        """Ask whether the network's subnetwork in a region has Private Google Access."""

        def access() -> bool:
            subnets = self._clients.compute("subnetworks", "SubnetworksClient")
            project, name = self._subnetwork
            shown = subnets.get(project=project, region=region, subnetwork=name, **self._reading)
            return bool(shown.private_ip_google_access)

        return self._ask(f"read the subnetwork of {region}", access)

    def ssh_allowed(self, source: str = "") -> Observed[bool]:
        """Ask whether a firewall rule of the network allows SSH from all of *source*."""

        def lets_in() -> bool:
            rules = self._clients.compute("firewalls", "FirewallsClient")
            shown = rules.list(project=self._network[0], **self._reading)
            tags = set(self._interface.tags)
            return any(
                rule.network.endswith(f"/{self._network[1]}")
                and rule.direction == "INGRESS" and not rule.disabled
                and (not rule.target_tags or not tags.isdisjoint(rule.target_tags))
                and any(_opens_ssh(allowed) for allowed in rule.allowed)
                and (not source or _covers(rule.source_ranges, source))
                for rule in shown
            )  # fmt: skip

        return self._ask("list the firewall rules", lets_in)

    @property
    def _network(self) -> tuple[str, str]:
        """Return the project of the network, which differs for a shared network, and its name."""
        return self._owned(self._interface.network, self._project)

    @property
    def _subnetwork(self) -> tuple[str, str]:
        host, network = self._network
        return self._owned(self._interface.subnetwork or network, host)

    @staticmethod
    def _owned(path: str, project: str) -> tuple[str, str]:
        parts = path.partition("projects/")[2].split("/")
        return parts[0] or project, path.rpartition("/")[2]

    def lacking(self, bucket: str) -> Observed[tuple[str, ...]]:
        """Ask which permissions on a bucket the caller lacks."""

        def missing() -> tuple[str, ...]:
            held = self._clients.storage.bucket(bucket).test_iam_permissions(
                list(ON_BUCKET), timeout=self._clients.settings.call_timeout
            )
            return tuple(name for name in ON_BUCKET if name not in held)

        return self._ask(f"ask for the permissions on '{bucket}'", missing)

    def secret_readers(self, name: str) -> Observed[tuple[str, ...]]:
        """Ask which accounts have the role to read a secret on the secret itself; Absent if it does not exist."""
        return self._ask(f"ask for secret '{name}'", lambda: SecretManager(self._clients).readers(name))

    def holds_objects(self, source: str) -> Observed[bool]:
        """Ask whether a folder of a bucket (gs://BUCKET/FOLDER) holds an object; Absent without the bucket."""
        bucket, _, prefix = source.removeprefix("gs://").partition("/")

        def read() -> bool:
            storage, reading = self._clients.storage, self._reading
            return any(True for _ in storage.list_blobs(bucket, prefix=prefix, max_results=1, **reading))

        return self._ask(f"read {source}", read)

    @property
    def _reading(self) -> dict[str, object]:
        return dict(self._clients.reading)

    def _ask(self, what: str, read: Callable[[], T | None]) -> Observed[T]:
        def asked() -> T | None:
            with translated(what):
                return read()

        return observed(asked)


def _covers(ranges: Iterable[str], source: str) -> bool:
    """Return whether one of *ranges* contains all of *source*; an IPv6 range never does."""
    wanted = IPv4Network(source)
    return any(":" not in held and wanted.subnet_of(IPv4Network(held, strict=False)) for held in ranges)


def _opens_ssh(allowed: object) -> bool:
    """Return whether an `allowed` entry of a firewall rule admits TCP port 22."""
    protocol, ports = getattr(allowed, "I_p_protocol", ""), list(getattr(allowed, "ports", ()))
    return protocol in {"tcp", "all"} and (not ports or any(_holds_22(text) for text in ports))


def _holds_22(ports: str) -> bool:
    first, _, last = ports.partition("-")
    return int(first) <= 22 <= int(last or first)


GOOGLE = "https://cloudquotas.googleapis.com"
UNLIMITED = -1


def tpu_limits(clients: Clients, quota: str, zones: Iterable[str]) -> dict[str, int]:
    """Return the project's limit of *quota* in each of *zones* that the answer contains; -1 is no limit."""
    service = f"/v1/projects/{clients.project}/locations/global/services/tpu.googleapis.com"
    info = Rest(clients, GOOGLE).get(f"{service}/quotaInfos/{quota}", f"read the quota {quota}")
    found = {zone: _limit(info.get("dimensionsInfos", []), zone) for zone in zones}
    return {zone: limit for zone, limit in found.items() if limit is not None}


def _limit(infos: Iterable[Mapping[str, Any]], zone: str) -> int | None:
    """Return the limit that applies in *zone*: an entry for the place precedes one for all others."""
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
