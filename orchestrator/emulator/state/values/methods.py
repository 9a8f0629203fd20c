"""List the methods that the local cloud serves, under names like those of permissions."""


def _all(resource: str, verbs: str) -> frozenset[str]:
    return frozenset(f"{resource}.{verb}" for verb in verbs.split())


_INSTANCES = (
    "insert bulkInsert delete start stop reset setMetadata setLabels setTags setScheduling setServiceAccount"
)
WITH_OPERATION = (
    _all("tpu.nodes", "create delete start stop update")
    | _all("tpu.queuedResources", "create delete reset")
    | _all("compute.instances", f"{_INSTANCES} simulateMaintenanceEvent")
    | _all("compute.disks", "insert delete")
    | _all("compute.firewalls", "insert delete")
)

# Lists whose answers name places that were not reached.
PARTIAL = (
    _all("tpu.nodes", "list") | _all("tpu.queuedResources", "list")
    | _all("compute.instances", "list aggregatedList")
)  # fmt: skip

TPU = frozenset(method for method in WITH_OPERATION if method.startswith("tpu.")).union(
    _all("tpu.nodes", "get list getGuestAttributes"),
    _all("tpu.queuedResources", "get list"),
    _all("tpu.operations", "get list cancel delete"),
    _all("tpu.reservations", "list"),
    _all("tpu.locations", "get list generateServiceIdentity"),
    _all("tpu.acceleratortypes", "get list"),
    _all("tpu.runtimeversions", "get list"),
)

COMPUTE = frozenset(method for method in WITH_OPERATION if method.startswith("compute.")).union(
    _all("compute.instances", "get list aggregatedList getSerialPortOutput getGuestAttributes"),
    _all("compute.images", "get getFromFamily list"),
    _all("compute.projects", "get"),
    _all("compute.machineTypes", "get list aggregatedList"),
    _all("compute.disks", "get list aggregatedList"),
    _all("compute.networks", "get list getEffectiveFirewalls"),
    _all("compute.subnetworks", "get list aggregatedList"),
    _all("compute.globalOperations", "aggregatedList"),
    *(_all(f"compute.{kind}", "get list") for kind in ("zones", "regions", "diskTypes", "firewalls")),
    *(_all(f"compute.{scope}Operations", "get list wait") for scope in ("zone", "region", "global")),
)

STORAGE: frozenset[str] = frozenset().union(
    _all("storage.buckets", "insert get list patch delete getIamPolicy setIamPolicy getStorageLayout"),
    _all("storage.objects", "insert get list patch delete compose copy rewrite"),
    _all("storage.managedFolders", "list"),
)

SECRETS = _all("secretmanager.secrets", "create get list delete getIamPolicy setIamPolicy") | _all(
    "secretmanager.versions", "add access get list disable enable destroy"
)

ALL = TPU | COMPUTE | STORAGE | SECRETS

_TABLES = {
    "tpu": "tpu v2", "compute": "compute v1", "storage": "storage v1", "secretmanager": "secretmanager v1",
}  # fmt: skip

_RENAMED = {
    "compute.instances.insert": "compute.instances.create",
    "compute.instances.bulkInsert": "compute.instances.create",
    "compute.disks.insert": "compute.disks.create",
    "compute.firewalls.insert": "compute.firewalls.create",
    "compute.instances.aggregatedList": "compute.instances.list",
    "storage.buckets.insert": "storage.buckets.create",
    "storage.buckets.patch": "storage.buckets.update",
    "storage.objects.insert": "storage.objects.create",
    "storage.objects.patch": "storage.objects.update",
}


def permission_of(method: str) -> str:
    return _RENAMED.get(method, method)


def error_table_of(method: str) -> str:
    """Return the API name that data/error_messages.csv uses for *method*."""
    return _TABLES[method.split(".", maxsplit=1)[0]]
