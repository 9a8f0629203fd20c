"""Apply an organisation's constraints that refuse machines, if the local cloud has any."""

from collections.abc import Mapping
from typing import Any

from orchestrator.emulator.state.api_errors import ApiError, OperationError
from orchestrator.emulator.state.kernel import CallTarget, Kernel

EXTERNAL_IP = "compute.vmExternalIpAccess"
SHIELDED_VM = "compute.requireShieldedVm"
OS_LOGIN = "compute.requireOsLogin"
TRUSTED_IMAGES = "compute.trustedImageProjects"
GUEST_ATTRIBUTES = "compute.disableGuestAttributesAccess"
CONSTRAINTS = (EXTERNAL_IP, SHIELDED_VM, OS_LOGIN, TRUSTED_IMAGES, GUEST_ATTRIBUTES)
_MORE = (
    "See https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints"
    " for more information."
)


def check_vm(kernel: Kernel, target: CallTarget, body: Mapping[str, Any], image: str) -> None:
    """
    Raise ApiError 412 for a VM that a constraint forbids; *image* is `projects/P/global/images/I`.

    The texts are from public logs (docs/facts.md 2.7); that of requireOsLogin is modelled on them.
    """
    interfaces = body.get("networkInterfaces") or [{}]
    metadata = {i.get("key"): i.get("value") for i in (body.get("metadata") or {}).get("items", ())}
    shielded = body.get("shieldedInstanceConfig") or {}
    resource = f"projects/{kernel.settings.project}/zones/{target.zone}/instances/{target.name}"
    refused = _refused(
        kernel,
        external=bool(interfaces[0].get("accessConfigs")),
        secure=bool(shielded.get("enableSecureBoot")),
        os_login=str(metadata.get("enable-oslogin", "TRUE")),
        resource=resource,
    )
    if not refused and TRUSTED_IMAGES in kernel.settings.constraints:
        owner = image.split("/")[1]
        if owner != kernel.settings.project:
            refused = _violated(kernel, TRUSTED_IMAGES, f"Use of images from project {owner} is prohibited.")
    if refused:
        raise ApiError(412, "conditionNotMet", refused)


def node_refusal(kernel: Kernel, target: CallTarget, body: Mapping[str, Any]) -> OperationError | None:
    """
    Return the error of a TPU's creation that a constraint forbids, else None.

    No public record shows such an answer of the TPU API; that it is in the operation, with code 9, is assumed
    (docs/facts.md 2.7).
    """
    resource = f"projects/{kernel.settings.project}/locations/{target.zone}/nodes/{target.name}"
    refused = _refused(
        kernel,
        external=bool((body.get("networkConfig") or {}).get("enableExternalIps")),
        secure=bool((body.get("shieldedInstanceConfig") or {}).get("enableSecureBoot")),
        os_login=str((body.get("metadata") or {}).get("enable-oslogin", "TRUE")),
        resource=resource,
    )
    return OperationError(9, refused) if refused else None


def check_guest_attributes(kernel: Kernel, *, compute: bool) -> None:
    """Raise ApiError if a constraint disables the API of guest attributes."""
    if GUEST_ATTRIBUTES in kernel.settings.constraints:
        reason = "conditionNotMet" if compute else "FAILED_PRECONDITION"
        raise ApiError(412 if compute else 400, reason, _violated(kernel, GUEST_ATTRIBUTES, _MORE))


def _refused(kernel: Kernel, *, external: bool, secure: bool, os_login: str, resource: str) -> str:
    held = kernel.settings.constraints
    if EXTERNAL_IP in held and external:
        return _violated(
            kernel, EXTERNAL_IP, f"Add instance {resource} to the constraint to use external IP with it."
        )
    if SHIELDED_VM in held and not secure:
        text = "Secure Boot is not enabled in the 'shielded_instance_config' field."
        return _violated(kernel, SHIELDED_VM, f"{text} {_MORE}")
    if OS_LOGIN in held and os_login.upper() != "TRUE":
        return _violated(kernel, OS_LOGIN, f"The metadata key 'enable-oslogin' must not be FALSE. {_MORE}")
    return ""


def _violated(kernel: Kernel, constraint: str, message: str) -> str:
    return f"Constraint constraints/{constraint} violated for project {kernel.settings.project_number}. {message}"
