"""Check the project: APIs, what the zones offer, quota, network, bucket, permissions."""

from collections.abc import Collection, Mapping
from typing import TypeVar

from orchestrator.advice.doctor.facts import (
    NOT_ASKED,
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
from orchestrator.advice.doctor.login import not_observed
from orchestrator.domain import names
from orchestrator.domain.all_zones import ObservedAllZones, deletion_command, outside
from orchestrator.domain.level import Level
from orchestrator.domain.machines.tpu_quota import taken
from orchestrator.domain.machines.vm_machine_types import instead
from orchestrator.domain.observation import Absent, Node, Observed, Present, Unknown, Vm
from orchestrator.domain.spec import Spec

Machine = TypeVar("Machine", Node, Vm)
_WORST_FIRST = (Level.STOP, Level.WARN, Level.UNKNOWN, Level.OK)
IAP_RANGE = "35.235.240.0/20"
"""Source addresses of connections through Identity-Aware Proxy (docs/facts.md 6.3)."""
IAP_ROLE = "roles/iap.tunnelResourceAccessor"
_QUOTAS = "https://console.cloud.google.com/iam-admin/quotas"


def _api(observed: Observed[str], name: str, *, needed: bool = False) -> RawDoctorFinding:
    if isinstance(observed, Unknown):
        return not_observed(observed, needed=needed)
    if isinstance(observed, Absent):
        return stop("the project was not found", "see `project` above")
    return ok(f"{name} answers")


@rule("tpu-api", Group.GOOGLE)
def tpu_api(facts: Facts) -> RawDoctorFinding:
    """Look for a TPU API that is off or refuses the caller."""
    return _api(facts.google.tpu, "tpu.googleapis.com", needed=True)


@rule("compute-api", Group.GOOGLE)
def compute_api(facts: Facts) -> RawDoctorFinding:
    """Look for a Compute Engine API that is off or refuses the caller."""
    return _api(facts.google.compute, "compute.googleapis.com")


@rule("storage-api", Group.GOOGLE)
def storage_api(facts: Facts) -> RawDoctorFinding:
    """Look for a Cloud Storage API that is off or refuses the caller."""
    return _api(facts.google.storage, "storage.googleapis.com")


@rule_of_file("zones", Group.GOOGLE)
def zones(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for zones that do not offer the TPU type to this project."""
    return _offered(
        facts.google.offers, spec.tpu.type, "choose other tpu.zones in tpuctl.yaml, then: tpuctl plan"
    )


@rule_of_file("tpu-elsewhere", Group.GOOGLE)
def tpu_elsewhere(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for TPUs of the deployment's label in zones that the file does not name, by one list over all zones."""
    return _outside_zones(facts, facts.google.elsewhere, spec.tpu.zones, "TPU")


@rule_of_file("vm-elsewhere", Group.GOOGLE)
def vm_elsewhere(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for VMs of the deployment's label in zones that the file does not name, by one list over all zones."""
    zones = () if spec.vm == "none" else (names.vm_zone(spec),)
    return _outside_zones(facts, facts.google.vms_elsewhere, zones, "VM")


def _outside_zones(
    facts: Facts, found: ObservedAllZones[Machine], zones: Collection[str], kind: str
) -> RawDoctorFinding:
    if isinstance(found, Unknown):
        return unknown(found.message, found.hint)
    machines = outside(found.value, zones)
    if machines:
        listed = ", ".join(f"{one.name} {one.zone} {one.state.name}" for one in machines)
        command = deletion_command(machines[0], facts.google.project)
        hint = f"tpuctl down   (what its record does not know: {command})"
        return warn(f"tpuctl.yaml does not name the zone of {listed}", hint)
    if found.value.unreachable:
        return unknown(f"no answer from {', '.join(found.value.unreachable)}", "")
    return ok(f"no {kind} of this deployment in other zones")


@rule_of_file("runtime", Group.GOOGLE)
def runtime(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a TPU software version that a zone does not have, or that is not known for the type."""
    if not spec.tpu.runtime:
        return stop(f"no TPU software version is known for {spec.tpu.type}", "set tpu.runtime in tpuctl.yaml")
    return _offered(facts.google.runtimes, spec.tpu.runtime, "choose another tpu.runtime in tpuctl.yaml")


def _offered(found: Mapping[str, Observed[str]], what: str, hint: str) -> RawDoctorFinding:
    # Only a complete answer proves that a zone lacks it; an Unknown counts as unsure.
    lacking = [zone for zone, observed in found.items() if isinstance(observed, Absent)]
    unsure = [observed for observed in found.values() if isinstance(observed, Unknown)]
    have = [zone for zone, observed in found.items() if isinstance(observed, Present)]
    # One zone without it is a warning while another has it, because `up` tries that one next.
    if lacking:
        text = f"{what} is not offered in {', '.join(lacking)}"
        return warn(text, hint) if have else stop(text, hint)
    if unsure or not found:
        return not_observed(unsure[0]) if unsure else unknown(NOT_ASKED.message, "")
    return ok(f"{what} in {', '.join(have)}")


@rule("machine-account", Group.GOOGLE)
def machine_account(facts: Facts) -> RawDoctorFinding:
    """Look for the account that machines run as: a project may have no default one."""
    spec, observed = facts.file.spec, facts.google.machine_account
    if spec is not None and spec.service_account:
        return ok(f"{spec.service_account} (from the file)")
    if isinstance(observed, Unknown):
        if observed.denied:
            # `up` asks the same question, so a refusal counts here.
            return stop(
                "your login may not ask for the default account", "set service_account in tpuctl.yaml"
            )
        return not_observed(observed)
    if isinstance(observed, Absent) or not observed.value:
        return stop("the project has no default service account", "set service_account in tpuctl.yaml")
    return ok(observed.value)


@rule("service-agent", Group.GOOGLE)
def service_agent(facts: Facts) -> RawDoctorFinding:
    """Look at the TPU API's own agent, which Google makes when the API is switched on."""
    if isinstance(facts.google.tpu, Present):
        return ok("made by Google with the TPU API, which answers")
    if facts.google.unasked:
        return not_observed(facts.google.unasked)
    return unknown("not known while the TPU API does not answer", "see `tpu-api` above")


@rule_of_file("vm-quota", Group.GOOGLE)
def vm_quota(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for too small a quota of CPUS in the region for the VM."""
    observed = facts.google.cpus
    if spec.vm == "none":
        return ok("no VM is wanted")
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Absent):
        return ok("the region sets no limit on CPUS")
    quota = observed.value
    text = f"{quota.usage:g} of {quota.limit:g} CPUS in use, the VM takes {quota.wanted}"
    short = quota.limit - quota.usage < quota.wanted
    return stop(text, f"ask for more: {_page(facts)}") if short else ok(text)


@rule_of_file("vm-image", Group.GOOGLE)
def vm_image(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for the family of the VM's image: Google withdraws a family when its images are out of support."""
    observed = facts.google.vm_image
    if spec.vm == "none":
        return ok("no VM is wanted")
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Absent):
        return stop("Google does not offer the VM's image any more", "update tpuctl, or set vm: none")
    return ok(observed.value)


@rule_of_file("tpu-quota", Group.GOOGLE)
def tpu_quota(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for too small a quota of TPUs for the type, by what the Cloud Quotas API says of each zone."""
    observed, catalog = facts.google.tpu_limits, facts.file.catalog
    if spec.tpu.reservation:
        return ok(f"the reservation {spec.tpu.reservation} counts apart")
    found = taken(spec, catalog) if catalog else None
    if catalog is None or found is None:
        return unknown(
            f"which quota {spec.tpu.type} counts against is not known", f"look here: {_page(facts)}"
        )
    count, quota = found
    if facts.google.unasked:
        return not_observed(facts.google.unasked)
    need = f"{spec.tpu.type} takes {count} {quota.unit} of {quota.id}"
    if not isinstance(observed, Present) or not observed.value:
        message = (
            f"{need}; a new project has {quota.fresh} in a {quota.per}. What yours has could not be read"
        )
        return unknown(
            message, f"gcloud services enable cloudquotas.googleapis.com   or look here: {_page(facts)}"
        )
    small = _too_small(observed.value, count)
    if not small:
        least = min(observed.value.values())
        return ok(f"{need}, the limit is {least}" if least >= 0 else f"{need}, which has no limit")
    limit = max(small.values())
    text = f"{need}, the limit is {limit} in {', '.join(small)}"
    smaller = catalog.within_quota(spec.tpu.type, next(iter(small)), limit)
    fits = f"{smaller} would fit (tpu.type), or " if smaller else ""
    answer = stop if len(small) == len(observed.value) else warn
    return answer(text, f"{fits}ask for more: {_page(facts)}")


def _too_small(limits: Mapping[str, int], need: int) -> dict[str, int]:
    # -1 means no limit in Google's answers.
    return {at: limit for at, limit in limits.items() if 0 <= limit < need}


def _page(facts: Facts) -> str:
    return _QUOTAS + (f"?project={facts.google.project}" if facts.google.project else "")


@rule_of_file("vm-machine-type", Group.GOOGLE)
def vm_machine_type(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a zone that does not have the VM's machine type, as us-central2 with its v4."""
    observed = facts.google.vm_machine_type
    if spec.vm == "none":
        return ok("no VM is wanted")
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Absent):
        zone = names.vm_zone(spec)
        there = instead(spec.vm.machine_type, zone)
        which = f"{there}, or to another of" if there else "one of"
        shown = f"gcloud compute machine-types list --zones {zone}"
        return stop(
            f"{zone} has no {spec.vm.machine_type}", f"set vm.machine_type to {which}: {shown}   or vm: none"
        )
    return ok(f"{observed.value} in {names.vm_zone(spec)}")


def _network(spec: Spec | None) -> str:
    """Return the name of the deployment's network, without the path of a shared one."""
    return spec.network.rpartition("/")[2] if spec else "default"


@rule_of_file("private-access", Group.GOOGLE)
def private_access(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a machine without external address in a network that then cannot reach the bucket."""
    first, *others = names.regions(spec)
    observations = {first: facts.google.private_access}
    observations |= {region: facts.google.private_elsewhere.get(region, NOT_ASKED) for region in others}
    answers = [_private_in(region, observed, spec) for region, observed in observations.items()]
    return min(answers, key=lambda answer: _WORST_FIRST.index(answer.level))


def _private_in(region: str, observed: Observed[bool], spec: Spec) -> RawDoctorFinding:
    network, subnetwork = _network(spec), spec.subnetwork or _network(spec)
    if isinstance(observed, Absent):
        text = f"there is no subnetwork `{subnetwork}` in {region}"
        create = f"gcloud compute networks create {network} --subnet-mode auto"
        return stop(text, f"set network and subnetwork in tpuctl.yaml to those of your project, or: {create}")
    if spec.tpu.external_ip and (spec.vm == "none" or spec.vm.external_ip):
        return ok("not needed: the machines have external addresses")
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if observed.value:
        return ok(f"Private Google Access is on in {region}")
    command = f"gcloud compute networks subnets update {subnetwork} --region {region}"
    text = f"Private Google Access is off in {region}, and a machine has no external address"
    return stop(text, f"{command} --enable-private-ip-google-access")


@rule("firewall", Group.GOOGLE)
def firewall(facts: Facts) -> RawDoctorFinding:
    """Look for a rule that lets SSH in: `up` pushes code over it, `ssh`, `exec` and `tunnel` need it."""
    observed, network = facts.google.ssh_allowed, _network(facts.file.spec)
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Present) and observed.value:
        return ok(f"a rule of the network `{network}` lets SSH in")
    hint = f"gcloud compute firewall-rules create {network}-allow-ssh --network {network} --allow tcp:22"
    return warn("no rule lets SSH in: code comes from the bucket only", hint)


@rule_of_file("iap", Group.GOOGLE)
def iap(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look at the way to a VM without external address: gcloud here, and a rule for Identity-Aware Proxy."""
    observed = facts.google.iap_allowed
    if spec.vm == "none" or spec.vm.external_ip:
        return ok("not needed: no VM without external address is wanted")
    if not facts.computer.programs.get("gcloud"):
        hint = "install it: https://cloud.google.com/sdk/docs/install"
        return stop("gcloud leads to a VM without external address, and is not on this computer", hint)
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Present) and observed.value:
        return ok(f"a rule lets {IAP_RANGE} in; your login needs {IAP_ROLE} too, which is not checked")
    hint = f"gcloud compute firewall-rules create allow-ssh-from-iap --network {_network(spec)}"
    return stop(f"no rule lets {IAP_RANGE} in", f"{hint} --source-ranges {IAP_RANGE} --allow tcp:22")


@rule_of_file("bucket", Group.GOOGLE)
def bucket(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for a bucket that lies in another region than the TPU."""
    observed = facts.google.bucket
    if isinstance(observed, Unknown):
        return not_observed(observed)
    if isinstance(observed, Absent):
        return ok("none yet; `up` makes it")
    home, found = names.home_region(spec), observed.value
    if found.location != home:
        text = f"{found.name} lies in {found.location}, the TPU in {home}: slow, and billed as egress"
        return stop(text, "choose tpu.zones in the bucket's region, or another bucket.name")
    return ok(f"{found.name} in {found.location}")


@rule_of_file("permissions", Group.GOOGLE)
def permissions(facts: Facts, spec: Spec) -> RawDoctorFinding:
    """Look for permissions on the bucket that the caller lacks."""
    observed = facts.google.lacking
    if isinstance(facts.google.bucket, Absent):
        return ok("there is no bucket yet")
    if isinstance(observed, Present):
        if not observed.value:
            return ok("all that tpuctl needs")
        hint = f"gcloud projects add-iam-policy-binding {facts.google.project or 'PROJECT'}"
        return stop(
            f"missing: {', '.join(observed.value)}", f"{hint} --member user:YOU --role roles/storage.admin"
        )
    if facts.google.unasked:
        return not_observed(facts.google.unasked)
    message = observed.message if isinstance(observed, Unknown) else "the service does not answer this"
    return unknown(message, "a command that lacks one names it (TPU-202)")
