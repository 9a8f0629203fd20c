"""The methods the local cloud serves, by their names in the permission system's style."""

_TPU_OPERATIONS = ("create", "delete", "start", "stop", "update")
_COMPUTE_OPERATIONS = (
    "insert",
    "bulkInsert",
    "delete",
    "start",
    "stop",
    "reset",
    "setMetadata",
    "setLabels",
    "setTags",
    "setScheduling",
    "simulateMaintenanceEvent",
)

WITH_OPERATION = frozenset(
    [f"tpu.nodes.{verb}" for verb in _TPU_OPERATIONS]
    + [f"tpu.queuedResources.{verb}" for verb in ("create", "delete", "reset")]
    + [f"compute.instances.{verb}" for verb in _COMPUTE_OPERATIONS]
    + ["compute.disks.insert", "compute.disks.delete", "compute.firewalls.insert", "compute.firewalls.delete"]
)

# Lists that say which places they could not ask.
PARTIAL = frozenset(
    {
        "tpu.nodes.list",
        "tpu.queuedResources.list",
        "compute.instances.list",
        "compute.instances.aggregatedList",
    }
)

TPU = frozenset(
    [
        *(m for m in WITH_OPERATION if m.startswith("tpu.")),
        "tpu.nodes.get",
        "tpu.nodes.list",
        "tpu.nodes.getGuestAttributes",
        "tpu.queuedResources.get",
        "tpu.queuedResources.list",
        "tpu.operations.get",
        "tpu.operations.list",
        "tpu.operations.cancel",
        "tpu.operations.delete",
        "tpu.reservations.list",
        "tpu.locations.get",
        "tpu.locations.list",
        "tpu.locations.generateServiceIdentity",
        "tpu.acceleratortypes.get",
        "tpu.acceleratortypes.list",
        "tpu.runtimeversions.get",
        "tpu.runtimeversions.list",
    ]
)

COMPUTE = frozenset(
    [
        *(m for m in WITH_OPERATION if m.startswith("compute.")),
        "compute.instances.get",
        "compute.instances.list",
        "compute.instances.aggregatedList",
        "compute.instances.getSerialPortOutput",
        "compute.instances.getGuestAttributes",
        "compute.images.get",
        "compute.images.getFromFamily",
        "compute.images.list",
        "compute.projects.get",
        *(
            f"compute.{k}.{v}"
            for k in ("zones", "regions", "machineTypes", "diskTypes")
            for v in ("get", "list")
        ),
        *(
            f"compute.{k}.{v}"
            for k in ("disks", "networks", "subnetworks", "firewalls")
            for v in ("get", "list")
        ),
        "compute.machineTypes.aggregatedList",
        "compute.networks.getEffectiveFirewalls",
        "compute.disks.aggregatedList",
        "compute.subnetworks.aggregatedList",
        *(
            f"compute.{k}Operations.{v}"
            for k in ("zone", "region", "global")
            for v in ("get", "list", "wait")
        ),
        "compute.globalOperations.aggregatedList",
    ]
)

STORAGE = frozenset(
    [
        *(f"storage.buckets.{v}" for v in ("insert", "get", "list", "patch", "delete")),
        *(f"storage.buckets.{v}" for v in ("getIamPolicy", "setIamPolicy")),
        *(f"storage.objects.{v}" for v in ("insert", "get", "list", "patch", "delete")),
        *(f"storage.objects.{v}" for v in ("compose", "copy", "rewrite")),
        "storage.buckets.getStorageLayout",
        "storage.managedFolders.list",
    ]
)

SECRETS = frozenset(
    [
        *(f"secretmanager.secrets.{v}" for v in ("create", "get", "list", "delete")),
        *(f"secretmanager.secrets.{v}" for v in ("getIamPolicy", "setIamPolicy")),
        *(
            f"secretmanager.versions.{v}"
            for v in ("add", "access", "get", "list", "disable", "enable", "destroy")
        ),
    ]
)

ALL = TPU | COMPUTE | STORAGE | SECRETS

_TABLES = {
    "tpu": "tpu v2",
    "compute": "compute v1",
    "storage": "storage v1",
    "secretmanager": "secretmanager v1",
}

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
    """Return the permission that *method* needs."""
    return _RENAMED.get(method, method)


def error_table_of(method: str) -> str:
    """Return the API name that data/error_messages.csv uses for *method*."""
    return _TABLES[method.split(".", maxsplit=1)[0]]
