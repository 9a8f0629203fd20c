"""Check the deployment file without asking a cloud."""

from orchestrator.advice.doctor.facts import (
    Facts,
    Group,
    RawDoctorFinding,
    ok,
    rule,
    rule_of_file,
    stop,
    unknown,
    warn,
)
from orchestrator.domain import names
from orchestrator.domain.spec import Spec


@rule("file", Group.FILE)
def file(facts: Facts) -> RawDoctorFinding:
    """Look for a deployment file with errors."""
    found = facts.file
    if found.message:
        return stop(found.message, found.hint or "correct this, then run: tpuctl plan")
    return (
        ok(found.path) if found.path else unknown("no tpuctl.yaml here or in a folder above", "tpuctl init")
    )


@rule_of_file("source", Group.FILE)
def source(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a source folder that cannot be pushed."""
    found = facts.file
    if found.source_message:
        return stop(found.source_message, "correct job.source, or add a .tpuctlignore")
    return ok(f"{found.source}: {(found.source_bytes or 0) / 2**20:.1f} MiB to push")


@rule_of_file("regions", Group.FILE)
def regions(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for TPU, VM and bucket in different regions: traffic between these is slow and billed."""
    found = _regions(spec)
    home = found.pop("TPU")
    apart = {what: region for what, region in found.items() if region != home}
    if apart and not spec.tpu.across_regions:
        text = ", ".join(f"{what} in {region}" for what, region in apart.items())
        return stop(f"{text}, but the TPU in {home}", "choose zones of one region in tpuctl.yaml")
    bucket = found["bucket"]
    far = [region for region in names.regions(spec) if region != bucket]
    if far:
        text = f"the bucket in {bucket}, TPUs also in {', '.join(far)}: traffic between them is billed"
        return warn(text, "nothing, if that is meant: tpuctl plan says what it costs")
    return ok(f"{', '.join(['TPU', *found])} in {home}")


def _regions(spec: Spec) -> dict[str, str]:
    found = {"TPU": names.region_of(spec.tpu.zones[0]), "bucket": names.home_region(spec)}
    return found if spec.vm == "none" else {**found, "VM": names.region_of(names.vm_zone(spec))}


@rule_of_file("ports", Group.FILE)
def ports(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for ports of this computer that `tpuctl tunnel` would use and another program holds."""
    taken = facts.file.taken
    if taken:
        text = ", ".join(f"{port} ({name})" for name, port in taken.items())
        name, port = next(iter(taken.items()))
        hint = f"nothing, `tunnel` takes a free one; or: tpuctl tunnel {name} --port {port + 10000}"
        return warn(f"held by another program: {text}", hint)
    return ok("those of the sidecars are free")
