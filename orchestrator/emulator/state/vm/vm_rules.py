"""Apply Compute Engine's refusals, and parse the body of a VM."""

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from orchestrator.emulator.state import tables
from orchestrator.emulator.state.api_errors import ApiError, compute_case, invalid, missing
from orchestrator.emulator.state.identifiers import is_rfc1035
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tables import VmType
from orchestrator.emulator.state.values.instance import Instance, Status

_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_LIMIT_VALUE, _LIMIT_ALL = 256 * 1024, 512 * 1024
_RUNS = frozenset(Status) - {Status.TERMINATED, Status.SUSPENDED}
# Names of images end in a fixed date, since every local machine boots from the computer's files anyway.
_STAMP = "v20260101"
FAMILIES = {
    # Debian 12 and older are out of support; a family whose images are all deprecated is not
    # found (docs/facts.md 2.6).
    "debian-cloud": ("debian-13",),
    "ubuntu-os-cloud": ("ubuntu-2204-lts", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64"),
    "ubuntu-os-accelerator-images": ("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",),
}


def check_zone(kernel: Kernel, zone: str) -> None:
    if zone not in tables.zones():
        raise missing(f"projects/{kernel.settings.project}/zones/{zone}")


def names_of_several(kernel: Kernel, zone: str, body: Mapping[str, Any]) -> list[str]:
    """Return the names of a bulk insert: the given ones, or the first free numbers of its pattern."""
    named, pattern = body.get("perInstanceProperties", {}), str(body.get("namePattern", ""))
    count = int(body.get("count", len(named)))
    if named:
        names = [str(one.get("name") or key) for key, one in named.items()]
    elif (marks := pattern.count("#")) and "#" * marks in pattern:
        every = (pattern.replace("#" * marks, f"{number:0{marks}}") for number in range(1, 10_000))
        free = (one for one in every if (zone, one) not in kernel.state.instances)
        names = list(islice(free, max(count, 0)))
    else:
        raise invalid("Invalid value for field 'resource.namePattern': it has no '#', and no VM is named.")
    if not 1 <= count == len(names):
        raise invalid(f"Invalid value for field 'resource.count': '{count}'.")
    return names


def check_name(kernel: Kernel, target: CallTarget) -> None:
    """Raise ApiError for a name that is not RFC 1035 (400) or is taken (409)."""
    if not is_rfc1035(target.name):
        pattern = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
        raise invalid(
            f"Invalid value for field 'resource.name': '{target.name}'. Must be a match of regex '{pattern}'"
        )
    if (target.zone, target.name) in kernel.state.instances:
        raise compute_case("already exists").error(**kernel.values(target))


def machine_type(target: CallTarget, url: str) -> VmType:
    """Return the machine type that *url* names. Raise ApiError 400."""
    name = url.rsplit("/", 1)[-1]
    if name.startswith("ct5lp-"):
        raise compute_case("v5e machine type refused").error(machine_type=name)
    found = tables.vm_types(tables.region_of(target.zone)).get(name)
    if found is None:
        message = "The referenced resource does not exist."
        raise invalid(f"Invalid value for field 'resource.machineType': '{url}'. {message}")
    return found


def scheduling(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scheduling with Compute Engine's defaults. Raise ApiError 400, ValueError."""
    given = dict(body.get("scheduling") or {})
    run_limit(given, 0.0)
    spot = given.get("provisioningModel") == "SPOT" or bool(given.get("preemptible"))
    if spot and given.get("automaticRestart"):
        raise invalid("Scheduling must have preemptible be false when AutomaticRestart is true.")
    if spot and given.get("onHostMaintenance") == "MIGRATE":
        raise invalid("Spot VMs cannot migrate: onHostMaintenance must be TERMINATE.")
    if given.get("instanceTerminationAction") not in (None, "STOP", "DELETE"):
        raise invalid("Invalid value for field 'resource.scheduling.instanceTerminationAction'.")
    if not spot:
        standard = {"onHostMaintenance": "MIGRATE", "automaticRestart": True, "provisioningModel": "STANDARD"}
        return standard | given | {"preemptible": False}
    model = {"provisioningModel": "SPOT"} if given.get("provisioningModel") == "SPOT" else {}
    action = {"instanceTerminationAction": "STOP"} if model else {}
    fixed = {"onHostMaintenance": "TERMINATE", "automaticRestart": False, "preemptible": True}
    return action | given | fixed | model


def run_limit(rules: Mapping[str, Any], now: float) -> float | None:
    """
    Return when the run time of a VM that starts *now* ends in seconds since the epoch, or None.

    Raise ValueError for an unreadable duration or time.
    """
    limits = []
    if rules.get("maxRunDuration"):
        limits.append(now + float(rules["maxRunDuration"].get("seconds", 0)))
    if rules.get("terminationTime"):
        limits.append(datetime.fromisoformat(rules["terminationTime"].replace("Z", "+00:00")).timestamp())
    return min(limits, default=None)


def metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the items of a Metadata body. Raise ApiError 400 for a bad key or too much data."""
    items = {item.get("key", ""): item.get("value", "") for item in body.get("items", ())}
    if len(items) != len(body.get("items", ())):
        raise invalid("Invalid value for field 'metadata': duplicate metadata key.")
    for key, value in items.items():
        if not _METADATA_KEY.fullmatch(key):
            raise invalid(f"Invalid value for field 'metadata.items.key': '{key}'.")
        if len(value.encode()) > _LIMIT_VALUE:
            raise invalid(f"Value for metadata key '{key}' is too large: at most {_LIMIT_VALUE} bytes.")
    if sum(len(k) + len(v.encode()) for k, v in items.items()) > _LIMIT_ALL:
        raise invalid(f"Metadata is too large: maximum total size is {_LIMIT_ALL} bytes.")
    return items


def check_image(disk: Mapping[str, Any]) -> str:
    """Return the full name of a boot disk's image. Raise ApiError."""
    url = (disk.get("initializeParams") or {}).get("sourceImage", "")
    if not url:
        raise invalid("Invalid value for field 'resource.disks[0]': no source image and no source disk.")
    return resolve_image(url)


def over_quota(kernel: Kernel, instance: Instance) -> int | None:
    """
    Return the region's CPUS limit if the VM would exceed it, else None.

    Spot VMs count against the same quota; the separate preemptible quota is not modelled.
    """
    region = tables.region_of(instance.zone)
    limit = kernel.settings.quotas.get(("CPUS", region))
    if limit is None:
        return None
    others = cpus_in_use(kernel, region) - (instance.type.guest_cpus if _counts(kernel, instance) else 0)
    return limit if others + instance.type.guest_cpus > limit else None


def cpus_in_use(kernel: Kernel, region: str) -> int:
    vms = [vm for vm in kernel.state.instances.values() if vm.status in _RUNS]
    return sum(vm.type.guest_cpus for vm in vms if tables.region_of(vm.zone) == region)


def _counts(kernel: Kernel, instance: Instance) -> bool:
    return instance.status in _RUNS and (instance.zone, instance.name) in kernel.state.instances


def families_of(project: str) -> tuple[str, ...]:
    """Return the families of a public project. Raise ApiError 404."""
    if project not in FAMILIES:
        raise ApiError(404, "notFound", f"The resource 'projects/{project}' was not found")
    return FAMILIES[project]


def image_of_family(project: str, family: str) -> str:
    """Return the newest image of *family*. Raise ApiError 404."""
    if family not in FAMILIES.get(project, ()):
        path = f"projects/{project}/global/images/family/{family}"
        raise ApiError(404, "notFound", f"The resource '{path}' was not found")
    return f"{family}-{_STAMP}"


def family_of_image(project: str, image: str) -> str:
    """Return the family of *image*. Raise ApiError 404."""
    family = image.removesuffix(f"-{_STAMP}")
    if family not in FAMILIES.get(project, ()) or family == image:
        path = f"projects/{project}/global/images/{image}"
        raise ApiError(404, "notFound", f"The resource '{path}' was not found")
    return family


def resolve_image(url: str) -> str:
    """
    Return `projects/P/global/images/NAME` for the URL of an image or family. Raise ApiError.

    gcloud writes a family as `projects/P/zones/-/imageFamilyViews/FAMILY`.
    """
    parts = url[url.index("projects/") :].split("/") if "projects/" in url else []
    if len(parts) == 6 and parts[4] in ("family", "imageFamilyViews"):
        return f"projects/{parts[1]}/global/images/{image_of_family(parts[1], parts[5])}"
    if len(parts) == 5 and parts[2:4] == ["global", "images"]:
        family_of_image(parts[1], parts[4])
        return "/".join(parts)
    raise ApiError(400, "invalid", f"Invalid value for field 'sourceImage': '{url}'. The URL is malformed.")
