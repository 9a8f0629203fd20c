"""Tell the user what to do next, for each kind of refusal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.machines.vm_machine_types import instead
from orchestrator.errors import QuotaError
from orchestrator.google.refusal import GoogleRefusal

_ROLES = {
    "tpu.googleapis.com": "roles/tpu.admin",
    "compute.googleapis.com": "roles/compute.instanceAdmin.v1",
    "storage.googleapis.com": "roles/storage.admin",
}
_BY_CONSTRAINT = {
    "compute.vmExternalIpAccess": "tpu.external_ip: false and vm.external_ip: false",
    "compute.requireShieldedVm": "secure_boot: true",
    "compute.requireOsLogin": "os_login: true",
    "compute.trustedImageProjects": "vm.image to an image of a trusted project, or vm: none,",
    "compute.restrictVpcNetworks": "network to an allowed one",
    "compute.restrictSharedVpcSubnetworks": "subnetwork to an allowed one",
    "compute.restrictVpcSubnetworks": "subnetwork to an allowed one",
    "gcp.resourceLocations": "tpu.zones to zones of an allowed region",
    "storage.softDeletePolicySeconds": "bucket.soft_delete: 7d",
}
"""Settings that avoid a violation of Google's predefined constraints (docs/facts.md 2.7)."""
_ROLE_BY_PERMISSION = {
    "tpu": "roles/tpu.admin",
    "compute": "roles/compute.instanceAdmin.v1",
    "storage": "roles/storage.admin",
    "iam": "roles/iam.serviceAccountUser",
}

NAME_NETWORK = (
    "set network (and subnetwork, for a custom-mode network) in tpuctl.yaml; to list the networks: "
    "gcloud compute networks list; if there is none: gcloud compute networks create default --subnet-mode auto"
)
NAME_DISK = "see: gcloud compute disks list; then correct tpu.disks or tpu.zones in tpuctl.yaml"
LOG_IN = (
    "run: gcloud auth application-default login   (gcloud auth login alone is not enough); "
    "to try tpuctl without an account, add --cloud local"
)
OTHER_ZONE = "change tpu.zones in tpuctl.yaml, as the project may not use this zone; then run: tpuctl plan"
FIX_FILE = "correct the setting in tpuctl.yaml, then run: tpuctl plan"
MORE_ZONES = "tpuctl tries the next zone, then waits; more zones in tpu.zones raise the chance"
NO_RESERVATION_MEANT = (
    f"no reservation was requested: Google also answers this when a zone has no spot; {MORE_ZONES}"
)
"""Explanation for a text about a reservation that is in fact a stockout (docs/facts.md 1.6)."""
FLEX_START = (
    "tpuctl tries the next zone in tpu.zones; to see the zones that are known to offer it, run: tpuctl plan"
)
WAIT = "`watch` tries again by itself; run any other command again"
CHECK_NETWORK = "check the network and the proxy settings, then repeat the command"
READ_STATUS = "`tpuctl status` shows what exists"
WIDER_SCOPE = (
    "on a machine: create it again with `tpuctl down`, then `tpuctl up`; "
    "with a login of your own: gcloud auth application-default login"
)
REPORT = "run: tpuctl status   and report the message if it persists; tpuctl does not understand this answer"


def enable_api(found: GoogleRefusal) -> str:
    """Return the command that enables the API."""
    command = f"gcloud services enable {found.service or 'SERVICE'} --project {found.project or 'PROJECT'}"
    return f"run: {command}   (then wait a few minutes)"


def grant_role(found: GoogleRefusal) -> str:
    """Return the command that grants the missing role."""
    permission = _permission(found)
    role = _ROLE_BY_PERMISSION.get(permission.partition(".")[0]) or _ROLES.get(found.service, "ROLE")
    missing = f"missing permission: {permission}; " if permission else ""
    return f"{missing}{_ask_for_role(found, role)}"


def name_machine(found: GoogleRefusal) -> str:
    """Name the setting of the VM's machine type, and the command that lists those of its zone."""
    zone = found.zone or "ZONE"
    there = instead("e2-", found.zone) if found.zone else ""
    which = f"{there} or another of" if there else "one of"
    shown = f"gcloud compute machine-types list --zones {zone}"
    return f"set vm.machine_type in tpuctl.yaml to {which}: {shown}   or set vm: none"


def obey_policy(found: GoogleRefusal) -> str:
    """Name the setting that avoids the violation of a constraint, else who can lift the constraint."""
    avoid = _BY_CONSTRAINT.get(found.constraint)
    if avoid:
        return f"set {avoid} in tpuctl.yaml, then run: tpuctl plan"
    shown = f"gcloud org-policies describe {found.constraint or 'CONSTRAINT'} --effective"
    return f"ask the organisation's administrator; the policy: {shown} --project {found.project or 'PROJECT'}"


def set_quota_project(found: GoogleRefusal) -> str:
    """Return the command that charges calls to the project itself."""
    project = found.project or "PROJECT"
    return f"run: gcloud auth application-default set-quota-project {project}"


def use_project(found: GoogleRefusal) -> str:
    """Name the role that allows calls to be charged to the project."""
    return _ask_for_role(found, "roles/serviceusage.serviceUsageConsumer")


def _ask_for_role(found: GoogleRefusal, role: str) -> str:
    project = found.project or "PROJECT"
    command = f"gcloud projects add-iam-policy-binding {project} --member user:YOU --role {role}"
    return f"ask the project's owner to run: {command}"


def more_quota(found: GoogleRefusal) -> str:
    """Return the advice for a quota refusal, with the address of the quota page, which no local cloud has."""
    project = f"?project={found.project}" if found.project else ""
    more = f"request more quota: https://console.cloud.google.com/iam-admin/quotas{project}"
    if found.is_local:
        more = (
            "let the local cloud grant any: `tpuctl local stop`, then `tpuctl local start --no-fresh-project`"
        )
    return f"waiting helps only if another TPU goes; delete unneeded TPUs, change tpu.zones, or {more}"


def _permission(found: GoogleRefusal) -> str:
    """Return the missing permission from the details, else from the text; used for hints only."""
    named = found.metadata.get("permission", "")
    # Compute and Storage name it in the text alone.
    match = re.search(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'", found.message)
    return named or (match[1] if match else "")


_LIMIT = re.compile(r"\blimit:?\s+(\d{1,9})\b", re.IGNORECASE)


@contextmanager
def comparing_with_quota(accelerator_type: str, zone: str) -> Iterator[None]:
    """Extend the hint of a quota refusal by the request, the limit, and a type that fits."""
    try:
        yield
    except QuotaError as error:
        # Only the text has the limit. It improves the hint and decides nothing.
        found = _LIMIT.search(error.message)
        hint = _comparison(accelerator_type, zone, int(found[1])) if found else ""
        error.explain(hint=f"{hint}; {error.hint}" if hint else "")
        raise


def _comparison(accelerator_type: str, zone: str, limit: int) -> str:
    catalog = load_catalog()
    wanted = catalog.accelerator(accelerator_type)
    quota = catalog.quota_of(accelerator_type, spot=True)
    if wanted is None or quota is None:
        return ""
    asked = f"you requested {wanted.counted} {quota.unit}, the limit is {limit}"
    if wanted.counted <= limit:
        return f"{asked}: other TPUs use too much of it"
    smaller = catalog.within_quota(accelerator_type, zone, limit)
    return f"{asked}: {smaller} would fit (tpu.type)" if smaller else asked
