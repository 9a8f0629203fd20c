"""Projects of organisations: without a default network, and with policies that refuse machines."""

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.domain.observation import Absent, OperationResult, Present, Unknown
from orchestrator.domain.ports import NetworkInterface, NewNode
from orchestrator.emulator.state import constraints
from orchestrator.errors import TpuctlError
from orchestrator.google.error_mapping import to_error
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.project_reader import ProjectReader
from orchestrator.google.refusal import HTTP_NAMES, GoogleRefusal
from tests.google.adapter_lab import ZONE, AdapterLab, a_lab, a_node, a_vm, vms_of

CUSTOM = ("lab/west@europe-west4",)
LAB = NetworkInterface("lab", "west")
OWNER_ID = "123456789012"


def of_answer(status: int, error: Mapping[str, Any], url: str) -> GoogleRefusal:
    """Convert the `error` object of an HTTP answer to a request for *url*."""
    details = tuple(error.get("details") or ())
    infos = [d.get("reason") for d in details if str(d.get("@type", "")).endswith(".ErrorInfo")]
    words = [*infos[:1], *(e.get("reason") for e in error.get("errors") or ())]
    return GoogleRefusal(
        name=error.get("status") or HTTP_NAMES.get(status, ""),
        reasons=tuple(str(word) for word in words if word),
        message=str(error.get("message") or ""),
        details=details,
        url=url,
    )


def refusal_of_vm(lab: AdapterLab, **changes: object) -> TpuctlError:
    """Return why the VM is refused."""
    with pytest.raises(TpuctlError) as caught:
        vms_of(lab).create(a_vm(**changes))
    return caught.value


def refusal_of_tpu(lab: AdapterLab, new: NewNode) -> TpuctlError | OperationResult | None:
    """Return why the TPU is refused, by the call or in its operation; None: it was made."""
    nodes = TpuNodes(lab.clients)
    try:
        started = nodes.create(new)
    except TpuctlError as error:
        return error
    lab.local.tick()
    result = nodes.poll(started)
    return result if result.retry else None


@pytest.mark.parametrize("networks", [(), CUSTOM], ids=["none", "another"])
def test_the_error_without_a_default_network_names_the_setting_for_another(networks):
    """VM and TPU are refused with one code, and the hint names `network`."""
    lab = a_lab(networks=networks)
    for error in (refusal_of_vm(lab), refusal_of_tpu(lab, a_node())):
        assert error is not None
        assert error.code == "TPU-122"
        assert "network" in error.hint
        assert "tpuctl.yaml" in error.hint


def test_a_network_of_custom_mode_wants_its_subnetwork():
    """The network alone is refused by Compute Engine, and by the TPU API, which takes the network's name for it."""
    lab = a_lab(networks=CUSTOM)
    alone = NetworkInterface("lab")
    for error in (refusal_of_vm(lab, interface=alone), refusal_of_tpu(lab, a_node(interface=alone))):
        assert error is not None
        assert (error.code, "subnetwork" in error.hint) == ("TPU-122", True)


def test_machines_come_up_on_the_network_of_the_file():
    """The cloud shows network, subnetwork and tags as they were asked for."""
    lab = a_lab(networks=CUSTOM)
    interface = NetworkInterface("lab", "west", ("ssh",))
    vms_of(lab).create(a_vm(interface=interface))
    assert refusal_of_tpu(lab, a_node(interface=interface)) is None
    vm = lab.clients.instances.get(project="local-project", zone=ZONE, instance="demo-vm")
    (shown,) = vm.network_interfaces
    assert shown.network.endswith("/global/networks/lab")
    assert shown.subnetwork.endswith("/regions/europe-west4/subnetworks/west")
    assert list(vm.tags.items) == ["ssh"]
    node = lab.clients.tpu.get_node(name=f"projects/local-project/locations/{ZONE}/nodes/demo-tpu-g3")
    assert (node.network_config.network, node.network_config.subnetwork) == ("lab", "west")
    assert list(node.tags) == ["ssh"]


def test_doctor_asks_for_the_network_of_the_file():
    """A subnetwork that is not there is Absent; a rule counts when it is of that network and of its tags."""
    lab = a_lab(networks=CUSTOM)
    assert ProjectReader(lab.clients, LAB).private_access("europe-west4") == Present(True)
    assert isinstance(ProjectReader(lab.clients, LAB).private_access("us-central1"), Absent)
    assert isinstance(ProjectReader(lab.clients).private_access("europe-west4"), Absent)
    assert ProjectReader(lab.clients, LAB).ssh_allowed() == Present(False)
    rule = {"name": "ssh", "network": "global/networks/lab", "sourceRanges": ["0.0.0.0/0"],
            "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}], "targetTags": ["ssh"]}  # fmt: skip
    lab.local.network.insert_firewall(rule)
    assert ProjectReader(lab.clients, LAB).ssh_allowed() == Present(False), (
        "the rule is for machines with its tag"
    )
    assert ProjectReader(lab.clients, NetworkInterface("lab", "west", ("ssh",))).ssh_allowed() == Present(
        True
    )
    assert ProjectReader(lab.clients).ssh_allowed() == Present(False), "the rule is of another network"


OBEYED = {
    constraints.EXTERNAL_IP: {"external_ip": False},
    constraints.SHIELDED_VM: {"secure_boot": True},
    constraints.OS_LOGIN: {"metadata": {"enable-oslogin": "TRUE"}},
}
SETTINGS = {
    constraints.EXTERNAL_IP: "external_ip: false",
    constraints.SHIELDED_VM: "secure_boot: true",
    constraints.OS_LOGIN: "os_login: true",
    constraints.TRUSTED_IMAGES: "vm.image",
}


@pytest.mark.parametrize("constraint", sorted(OBEYED))
def test_a_policy_is_named_with_the_setting_that_avoids_it_and_the_setting_does(constraint):
    """A VM and a TPU that break it are refused with one code; with the setting both are made."""
    lab = a_lab(constraints=frozenset({constraint}))
    broken = {"metadata": {"enable-oslogin": "FALSE"}}
    for error in (refusal_of_vm(lab, **broken), refusal_of_tpu(lab, a_node(**broken))):
        assert error is not None
        assert error.code == "TPU-204"
        assert f"constraints/{constraint}" in error.message
        assert SETTINGS[constraint] in error.hint
    vms_of(lab).create(a_vm(**OBEYED[constraint]))
    assert refusal_of_tpu(lab, a_node(name="again", **OBEYED[constraint])) is None


def test_images_of_strange_projects_are_refused_with_the_setting_that_names_another():
    """The constraint is about the VM's image; a TPU has none of ours."""
    lab = a_lab(constraints=frozenset({constraints.TRUSTED_IMAGES}))
    error = refusal_of_vm(lab)
    assert (error.code, "vm.image" in error.hint) == ("TPU-204", True)
    assert refusal_of_tpu(lab, a_node()) is None


def test_a_constraint_that_we_do_not_know_is_shown_with_the_command_that_describes_it():
    """No guess: the administrators of the organisation know it."""
    text = "Constraint constraints/compute.somethingNew violated for project 1."
    url = "https://compute.googleapis.com/compute/v1/projects/my-project/zones/z/instances"
    found = of_answer(412, {"message": text, "errors": [{"reason": "conditionNotMet"}]}, url)
    error = to_error(found, "create")
    assert error.code == "TPU-204"
    assert "gcloud org-policies describe compute.somethingNew --effective --project my-project" in error.hint


def test_a_stale_fingerprint_is_no_policy():
    """The same status and reason without a constraint stays what it was."""
    found = of_answer(
        412, {"message": "Supplied fingerprint is stale", "errors": [{"reason": "conditionNotMet"}]}, ""
    )
    assert to_error(found, "create").code == "TPU-412"


def test_a_call_charged_to_googles_own_project_names_ours():
    """User credentials without a quota project are charged to gcloud's: nobody can enable an API there."""
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED",
              "metadata": {"consumer": "projects/764086051850", "service": "tpu.googleapis.com"}}  # fmt: skip
    url = "https://tpu.googleapis.com/v2/projects/my-project/locations/z/nodes"
    answer = {"status": "PERMISSION_DENIED", "message": "x", "details": [detail]}
    error = to_error(of_answer(403, answer, url), "list")
    assert error.code == "TPU-205"
    assert error.hint == "run: gcloud auth application-default set-quota-project my-project"
    detail["metadata"] = {"consumer": f"projects/{OWNER_ID}", "service": "tpu.googleapis.com"}
    error = to_error(of_answer(403, answer, url), "list")
    assert (error.code, OWNER_ID in error.hint) == ("TPU-203", True)


def test_what_the_login_may_not_read_is_shown_as_unknown():
    """`doctor` shows it as unknown, not as wrong."""
    lab = a_lab(denied_permissions=frozenset({"compute.firewalls.list"}))
    observed = ProjectReader(lab.clients).ssh_allowed()
    assert isinstance(observed, Unknown)
    assert observed.denied
