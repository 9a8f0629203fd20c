"""What a new VM becomes on the wire: body, limits, request id."""

import uuid

import pytest

from orchestrator.domain.ports import NetworkInterface
from orchestrator.google.bodies import instance_body, node_body
from orchestrator.google.request_ids import RequestIds
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_node, a_vm

DAY = 86400


def test_the_body_asks_for_a_closed_cheap_machine():
    """Image, disk that goes with the VM, outside address, account and guest attributes are in the body."""
    body = instance_body(a_vm())
    (disk,) = body["disks"]
    assert (disk["boot"], disk["auto_delete"], disk["initialize_params"]["disk_size_gb"]) == (True, True, 50)
    family = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-"
    assert disk["initialize_params"]["source_image"] == f"{family}amd64"
    (disk,) = instance_body(a_vm(machine_type="c4a-standard-1"))["disks"]
    assert disk["initialize_params"]["source_image"] == f"{family}arm64", "amd64 does not boot there"
    assert body["network_interfaces"][0]["access_configs"][0]["type_"] == "ONE_TO_ONE_NAT"
    assert {"key": "enable-guest-attributes", "value": "TRUE"} in body["metadata"]["items"]
    assert body["shielded_instance_config"] == {"enable_vtpm": True, "enable_integrity_monitoring": True}


def test_a_vm_without_external_address_asks_for_none():
    """No access configuration is what makes a machine private; its network stays."""
    (interface,) = instance_body(a_vm(external_ip=False))["network_interfaces"]
    assert interface == {"network": "global/networks/default", "access_configs": []}


PARENT = "projects/p/locations/europe-west4-b"
HOST = "projects/host-project"


@pytest.mark.parametrize(
    ("network", "subnetwork", "of_vm", "of_tpu"),
    [
        ("default", "", ("global/networks/default", None), {}),
        ("lab", "", ("global/networks/lab", None), {"network": "lab", "subnetwork": "lab"}),
        (
            "lab",
            "west",
            ("global/networks/lab", "regions/europe-west4/subnetworks/west"),
            {"network": "lab", "subnetwork": "west"},
        ),
        (
            f"{HOST}/global/networks/shared",
            "west",
            (f"{HOST}/global/networks/shared", f"{HOST}/regions/europe-west4/subnetworks/west"),
            {
                "network": f"{HOST}/global/networks/shared",
                "subnetwork": f"{HOST}/regions/europe-west4/subnetworks/west",
            },
        ),
    ],
)
def test_vm_and_tpu_are_asked_for_on_the_network_of_the_file(network, subnetwork, of_vm, of_tpu):
    """The TPU API takes `default` for what is left out, so beside another network both are named."""
    interface = NetworkInterface(network, subnetwork)
    (vm,) = instance_body(a_vm(interface=interface))["network_interfaces"]
    assert (vm["network"], vm.get("subnetwork")) == of_vm
    assert node_body(a_node(interface=interface), PARENT)["network_config"] == {
        "enable_external_ips": True,
        **of_tpu,
    }


def test_tags_secure_boot_and_image_of_the_file_are_asked_for():
    """Without them the bodies hold no such field."""
    interface = NetworkInterface(tags=("ssh", "lab"))
    vm = instance_body(a_vm(interface=interface, secure_boot=True, image="projects/p/global/images/family/f"))
    assert vm["tags"] == {"items": ["ssh", "lab"]}
    assert vm["shielded_instance_config"]["enable_secure_boot"]
    assert vm["disks"][0]["initialize_params"]["source_image"] == "projects/p/global/images/family/f"
    node = node_body(a_node(interface=interface, secure_boot=True), PARENT)
    assert (node["tags"], node["shielded_instance_config"]) == (["ssh", "lab"], {"enable_secure_boot": True})
    assert not {"tags", "shielded_instance_config"} & set(node_body(a_node(), PARENT))


def test_a_standard_vm_deletes_itself_at_the_end_of_its_life():
    """Google itself ends a VM that everybody has forgotten."""
    scheduling = instance_body(a_vm(ttl=2 * DAY))["scheduling"]
    assert scheduling["max_run_duration"] == {"seconds": 2 * DAY}
    assert scheduling["instance_termination_action"] == "DELETE"
    assert scheduling["automatic_restart"] is True


def test_a_spot_vm_keeps_its_disk_when_it_is_taken_away():
    """One field serves preemption and end of life; the disk decides: STOP."""
    scheduling = instance_body(a_vm(spot=True))["scheduling"]
    assert scheduling["provisioning_model"] == "SPOT"
    assert scheduling["instance_termination_action"] == "STOP"
    assert scheduling["automatic_restart"] is False
    assert scheduling["on_host_maintenance"] == "TERMINATE"


@pytest.mark.parametrize(("ttl", "seconds"), [(1, 30), (3600.9, 3600), (400 * DAY, 120 * DAY)])
def test_the_run_duration_stays_within_googles_limits(ttl, seconds):
    """Google takes a maxRunDuration between 30 seconds and 120 days only."""
    assert instance_body(a_vm(ttl=ttl))["scheduling"]["max_run_duration"] == {"seconds": seconds}


def test_request_ids_are_stable_and_never_zero():
    """Equal new VMs have equal request ids; other zone, label or body has another."""
    body = instance_body(a_vm())
    same = RequestIds().of(ZONE, instance_body(a_vm()))
    assert RequestIds().of(ZONE, body) == same
    others = {
        RequestIds().of(OTHER_ZONE, body),
        RequestIds().of(ZONE, instance_body(a_vm(labels={LABEL: "other"}))),
        RequestIds().of(ZONE, instance_body(a_vm(disk_gb=51))),
    }
    assert len(others - {same}) == 3
    assert all(uuid.UUID(found).int for found in {same, *others})
