"""Define the rules for names, zones and types: what the cloud, or a zone of it, cannot provide."""

import re
from collections.abc import Iterator

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.contract.bucket.object_names import OURS
from orchestrator.domain.catalog import Catalog, region_zones
from orchestrator.domain.level import Level
from orchestrator.domain.machines.vm_machine_types import instead
from orchestrator.domain.names import region_of, regions, vm_zone
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.suggest import did_you_mean, join

# The longest derived name must fit into a cloud's limit of 63: `-vm`, `-tpu-gN`, the bucket's digest.
NAME_LENGTH = 40
NAME_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
MAX_PREFIX = 200
"""Most characters of a prefix, so that object names (1,024 bytes) have room for the files of checkpoints."""
LABEL = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""Names that Compute Engine accepts for networks, images and tags (RFC 1035)."""
SHORTEST_SOFT_DELETE, MAX_SOFT_DELETE = 7 * 86400.0, 90 * 86400.0
MULTI_REGIONS = ("us", "eu", "asia")

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z0-9]+")
_V5E = re.compile(r"v5(?:e|lite|-lite|lite-?pod|e-?pod)-?(\d+)")
_BUCKET = re.compile(r"[a-z0-9][-_a-z0-9.]*[a-z0-9]")
_FOLDER = re.compile(r"[a-z0-9][-_a-z0-9]*(?:/[a-z0-9][-_a-z0-9]*)*")
_TAKEN = frozenset(OURS)
_EGRESS = "traffic between regions is slow and billed, so bucket, VM and TPU share one region; leave it out"


def _name(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if not re.fullmatch(NAME_PATTERN, spec.name) or len(spec.name) > NAME_LENGTH:
        yield SettingFinding(
            "name",
            f'"{spec.name[:60]}" cannot name cloud resources',
            f"use 1 to {NAME_LENGTH} lower-case letters, digits and '-', first a letter, last a letter or digit",
        )
    elif "google" in spec.name and spec.bucket.name is None:
        hint = "choose another name, or set bucket.name"
        yield SettingFinding(
            "name", 'contains "google", which Cloud Storage refuses in the name of a bucket', hint
        )


def _network(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if not _named(spec.network, "projects/[^/]+/global/networks/"):
        text = f'"{spec.network[:80]}" is neither the name of a network nor projects/P/global/networks/NAME'
        yield SettingFinding("network", text, "see: gcloud compute networks list")
    if spec.subnetwork is not None and not _named(
        spec.subnetwork, "projects/[^/]+/regions/[^/]+/subnetworks/"
    ):
        text = f'"{spec.subnetwork[:80]}" is neither a name nor projects/P/regions/R/subnetworks/NAME'
        yield SettingFinding("subnetwork", text, "see: gcloud compute networks subnets list")
    for index, tag in enumerate(spec.tags):
        if not re.fullmatch(LABEL, tag):
            hint = "use lower-case letters, digits and '-', first a letter"
            yield SettingFinding(at("tags", index), f'"{tag[:63]}" is not a network tag', hint)


def _named(text: str, path: str) -> bool:
    return re.fullmatch(f"(?:{path})?{LABEL}", text) is not None


def _image(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    image = spec.vm.image if spec.vm != "none" else None
    if image is not None and not re.fullmatch(f"projects/[^/]+/global/images/(?:family/)?{LABEL}", image):
        hint = "write projects/P/global/images/family/F or projects/P/global/images/NAME"
        yield SettingFinding("vm.image", f'"{image[:80]}" is not the path of an image', hint)


def _project(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.project is not None and not re.fullmatch(r"[a-z][-a-z0-9.:]*[a-z0-9]", spec.project):
        yield SettingFinding(
            "project", f'"{spec.project[:60]}" is not a project id', "see: gcloud projects list"
        )


def _account(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    given = {"service_account": spec.service_account, "impersonate": spec.impersonate}
    if spec.vm != "none":
        given["vm.service_account"] = spec.vm.service_account
    for key, account in given.items():
        if account is not None and not re.fullmatch(r"[^@\s]+@[^@\s]+", account):
            hint = "see: gcloud iam service-accounts list"
            yield SettingFinding(key, f'"{account[:60]}" is not an e-mail address', hint)


def _type(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    found = catalog.accelerator(spec.tpu.type)
    if found and not found.tpu_api:
        yield SettingFinding(
            "tpu.type",
            f"{spec.tpu.type} is served by Compute Engine and GKE only, not by the Cloud TPU API",
            "tpuctl uses the Cloud TPU API: choose a v2 to v6e type, for example v6e-8",
        )
    elif not found:
        near = _google_says(spec.tpu.type, catalog) or did_you_mean(spec.tpu.type, catalog.served())
        yield SettingFinding(
            "tpu.type",
            f'unknown type "{spec.tpu.type[:60]}"',
            near or f"choose one of {join(_samples(catalog))}, ...",
        )


def _google_says(tpu_type: str, catalog: Catalog) -> str:
    """Return the API's spelling of a type such as v5e-8; empty for other words."""
    match = _V5E.fullmatch(tpu_type.lower())
    name = f"v5litepod-{match[1]}" if match else ""
    return f"the API calls it {name}" if name in catalog.served() else ""


def _samples(catalog: Catalog) -> list[str]:
    firsts = {catalog.accelerators[name].generation: name for name in reversed(catalog.served())}
    return sorted(firsts.values())


def _zones(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    if not spec.tpu.zones:
        yield SettingFinding("tpu.zones", "names no zone", "name at least one, for example [europe-west4-b]")
    for index, zone in enumerate(spec.tpu.zones):
        path = at("tpu.zones", index)
        if zone in spec.tpu.zones[:index]:
            yield SettingFinding(path, f"names {zone} twice", "name each zone once")
        elif not catalog.types_in(zone):
            near = did_you_mean(zone, catalog.zones) or _region_hint(zone, catalog)
            yield SettingFinding(path, f'unknown TPU zone "{zone[:60]}"', near)


def _region_hint(zone: str, catalog: Catalog) -> str:
    same = region_zones(catalog, region_of(zone)) or region_zones(catalog, zone)
    return (
        f"TPU zones there: {join(same)}"
        if same
        else "the TPU zones are in: gcloud compute tpus locations list"
    )


def _one_region(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    """Refuse zones of several regions unless the file allows them and the job can use them."""
    if spec.tpu.across_regions:
        if spec.job.run_on == "vm" and len(regions(spec)) > 1:
            hint = "write run_on: tpu, or name zones of one region"
            yield SettingFinding("job.run_on", "a job on the VM needs its TPU in the VM's region", hint)
        return
    if spec.tpu.strategy == "race-regions":
        hint = "set tpu.across_regions: true and name zones of several regions, or write race"
        yield SettingFinding("tpu.strategy", "race-regions needs zones of several regions", hint)
    known = [zone for zone in spec.tpu.zones if catalog.types_in(zone)]
    for index, zone in enumerate(spec.tpu.zones):
        if zone in known and region_of(zone) != region_of(known[0]):
            yield SettingFinding(
                at("tpu.zones", index),
                f"{zone} is not in the same region as {known[0]}",
                "use one region, or set tpu.across_regions: true; the bucket stays, and traffic to it is billed",
            )


def _type_in_zone(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    found = catalog.accelerator(spec.tpu.type)
    for index, zone in enumerate(spec.tpu.zones if found and found.tpu_api else ()):
        if catalog.types_in(zone) and spec.tpu.type not in catalog.types_in(zone):
            zones = catalog.zones_of(spec.tpu.type)
            yield SettingFinding(
                at("tpu.zones", index),
                f"{zone} has no {spec.tpu.type}",
                f"zones with it: {', '.join(zones)}" if zones else "no zone in the table has it",
            )


def _other_types(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    """Refuse another type that some zone lacks, because any combination may be requested automatically."""
    zones = [zone for zone in spec.tpu.zones if catalog.types_in(zone)]
    for index, tpu_type in enumerate(spec.tpu.other_types):
        path = at("tpu.other_types", index)
        found = catalog.accelerator(tpu_type)
        if not found or not found.tpu_api:
            near = _google_says(tpu_type, catalog) or did_you_mean(tpu_type, catalog.served())
            yield SettingFinding(
                path, f'"{tpu_type[:60]}" is not a type of the Cloud TPU API', near or "leave it out"
            )
        elif tpu_type in (spec.tpu.type, *spec.tpu.other_types[:index]):
            yield SettingFinding(path, f"names {tpu_type} twice", "name each type once")
        elif lacking := [zone for zone in zones if tpu_type not in catalog.types_in(zone)]:
            yield SettingFinding(
                path, f"{lacking[0]} has no {tpu_type}", "name only zones that have all types"
            )
        elif found.runtime is None:
            yield SettingFinding(path, f"no TPU software version is known for {tpu_type}", "leave it out")


def _runtime(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    runtime = spec.tpu.runtime
    # Only a warning: Google adds versions faster than this table is updated.
    if runtime is not None and runtime not in catalog.runtimes and not runtime.startswith("tpu-vm-"):
        near = did_you_mean(runtime, catalog.runtimes)
        yield SettingFinding(
            "tpu.runtime",
            f'"{runtime[:60]}" is not in our table',
            near or "the cloud decides",
            level=Level.WARN,
        )


def _machine(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    known = {name for name, _ in catalog.machines}
    if spec.vm != "none" and spec.vm.machine_type not in known:
        near = did_you_mean(spec.vm.machine_type, known)
        yield SettingFinding(
            "vm.machine_type",
            f'"{spec.vm.machine_type[:60]}" has no known price',
            near or "check the name",
            level=Level.WARN,
        )


def _machine_there(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.vm == "none" or not spec.tpu.zones:
        return
    zone = vm_zone(spec)
    there = instead(spec.vm.machine_type, zone)
    if there:
        text = f"{spec.vm.machine_type} may not exist in {zone}; without the VM no TPU is requested"
        yield SettingFinding(
            "vm.machine_type", text, f"write machine_type: {there}, or vm: none", level=Level.WARN
        )


def _vm_name(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.vm == "none" or spec.vm.name is None:
        return
    if not re.fullmatch(LABEL, spec.vm.name):
        hint = "see: gcloud compute instances list"
        yield SettingFinding("vm.name", f'"{spec.vm.name[:60]}" is not the name of a VM', hint)
    if spec.fleet:
        yield SettingFinding("vm.name", "a fleet has a VM of its own", "leave it out")
    if spec.vm.image:
        yield SettingFinding("vm.image", f"{spec.vm.name} has its image already", "leave vm.image out")


def _vm_zone(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    zone, region = spec.vm.zone if spec.vm != "none" else None, _region(spec, catalog)
    if zone is not None and not _ZONE.fullmatch(zone):
        yield SettingFinding("vm.zone", f'"{zone[:60]}" is not a zone', "for example europe-west4-b")
    elif zone is not None and region and region_of(zone) != region:
        yield SettingFinding("vm.zone", f"{zone} is outside the TPU's region {region}", _EGRESS)


def _location(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    location, region = spec.bucket.location, _region(spec, catalog)
    if location is None or not region or location.lower() == region:
        return
    if not spec.tpu.across_regions:
        yield SettingFinding("bucket.location", f"{location[:60]} is not the TPU's region {region}", _EGRESS)
    elif location.lower() not in MULTI_REGIONS:
        text = f"{location[:60]} is neither {region}, the first zone's region, nor a multi-region"
        yield SettingFinding("bucket.location", text, f"leave it out, or use one of {join(MULTI_REGIONS)}")


def _region(spec: Spec, catalog: Catalog) -> str:
    """Return the region of the first known zone, or an empty text."""
    return next((region_of(zone) for zone in spec.tpu.zones if catalog.types_in(zone)), "")


def _bucket(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    name = spec.bucket.name
    if name is None:
        if spec.bucket.adopt:
            yield SettingFinding(
                "bucket.adopt", "needs the name of the bucket", "set bucket.name to the existing bucket"
            )
        return
    if not _BUCKET.fullmatch(name) or not 3 <= len(name) <= 63 or ".." in name:
        yield SettingFinding(
            "bucket.name",
            f'"{name[:70]}" cannot name a bucket',
            "use 3 to 63 lower-case letters, digits, '-', '_' and '.', first and last a letter or digit",
        )
    elif name.startswith("goog") or "google" in name:
        yield SettingFinding(
            "bucket.name", 'starts with "goog" or contains "google", which Cloud Storage refuses', "rename it"
        )


def _prefix(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    prefix = spec.bucket.prefix
    if not prefix:
        return
    if not spec.bucket.adopt:
        text = "only a folder of an adopted bucket can be shared"
        yield SettingFinding(
            "bucket.prefix", text, "set bucket.adopt: true and bucket.name to a bucket that exists"
        )
    if not _FOLDER.fullmatch(prefix) or len(prefix) > MAX_PREFIX:
        text = f'"{prefix[:60]}" cannot be the folder of a deployment'
        hint = f"use lower-case letters, digits, '-', '_' and '/', for example runs/a; at most {MAX_PREFIX}"
        yield SettingFinding("bucket.prefix", text, hint)
    elif any(f"{part}/" in _TAKEN for part in prefix.split("/")):
        text = f"a deployment without a prefix uses the folders {join(sorted(_TAKEN))} itself"
        yield SettingFinding("bucket.prefix", text, "choose another name")


def _soft_delete(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    seconds = spec.bucket.soft_delete
    if seconds is None:
        return
    if seconds and not SHORTEST_SOFT_DELETE <= seconds <= MAX_SOFT_DELETE:
        hint = "remove it to switch it off"
        yield SettingFinding(
            "bucket.soft_delete", f"{seconds} is not between 7d and 90d, Google's limits", hint
        )
    elif seconds and spec.bucket.adopt:
        text = "bucket.adopt is set, and an adopted bucket is never changed"
        yield SettingFinding("bucket.soft_delete", text, "set it yourself: gcloud storage buckets update")


RULES = (
    SettingRule(("name", "bucket.name"), _name),
    SettingRule(("project",), _project),
    SettingRule(("network", "subnetwork", "tags"), _network),
    SettingRule(("vm.image",), _image),
    SettingRule(("service_account", "vm.service_account", "impersonate"), _account),
    SettingRule(("tpu.type",), _type),
    SettingRule(("tpu.zones",), _zones),
    SettingRule(("tpu.zones", "tpu.across_regions", "tpu.strategy", "job.run_on"), _one_region),
    SettingRule(("tpu.type", "tpu.zones"), _type_in_zone),
    SettingRule(("tpu.other_types", "tpu.zones"), _other_types),
    SettingRule(("tpu.runtime",), _runtime),
    SettingRule(("vm.machine_type",), _machine),
    SettingRule(("vm.machine_type", "tpu.zones"), _machine_there),
    SettingRule(("vm.name", "vm.image", "fleet"), _vm_name),
    SettingRule(("vm.zone", "tpu.zones"), _vm_zone),
    SettingRule(("bucket.name", "bucket.adopt"), _bucket),
    SettingRule(("bucket.prefix", "bucket.adopt"), _prefix),
    SettingRule(("bucket.soft_delete", "bucket.adopt"), _soft_delete),
    SettingRule(("bucket.location", "tpu.zones", "tpu.across_regions"), _location),
)
