"""The official Compute client against the local cloud: over HTTP and in-process, the same cases."""

import uuid

import pytest
from google.api_core import exceptions

from tests.conformance.clients_kit import KINDS, compute_v1, open_clients
from tests.emulator.emulator_lab import PROJECT, ZONE

WHERE = {"project": PROJECT, "zone": ZONE}
ONE = {**WHERE, "instance": "v1"}
FAMILY = "projects/debian-cloud/global/images/family/debian-13"


@pytest.fixture(params=KINDS)
def cloud(request):
    """Open the clients, over HTTP and in-process."""
    with open_clients(request.param) as clients:
        yield clients


def spot_vm(name="v1"):
    """Return a spot VM with a run time limit."""
    image = compute_v1.AttachedDiskInitializeParams(source_image=FAMILY, disk_size_gb=20)
    return compute_v1.Instance(
        name=name,
        machine_type=f"zones/{ZONE}/machineTypes/e2-small",
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=image)],
        network_interfaces=[{"network": "global/networks/default", "access_configs": [{"name": "e"}]}],
        scheduling={
            "provisioning_model": "SPOT",
            "instance_termination_action": "STOP",
            "max_run_duration": {"seconds": 86400},
        },
        labels={"tpuctl-deployment": "d"},
        metadata={"items": [{"key": "a", "value": "1"}]},
    )


def insert(cloud, name="v1"):
    """Insert a VM and return its ended operation."""
    request = {**WHERE, "instance_resource": spot_vm(name)}
    return cloud.finish(ZONE, cloud.instances.insert_unary(request))


def test_insert_stop_start_delete(cloud):
    """The whole lifetime of a VM through unary calls and our own operations client."""
    operation = insert(cloud)
    assert (operation.status, operation.http_error_status_code) == (compute_v1.Operation.Status.DONE, 0)
    vm = cloud.instances.get(ONE)
    assert (vm.status, vm.scheduling.preemptible) == ("RUNNING", True)
    assert vm.network_interfaces[0].access_configs[0].nat_i_p.startswith("127.")
    cloud.finish(ZONE, cloud.instances.stop_unary(ONE))
    assert cloud.instances.get(ONE).status == "TERMINATED"
    cloud.finish(ZONE, cloud.instances.start_unary(ONE))
    assert cloud.instances.get(ONE).status == "RUNNING"
    cloud.finish(ZONE, cloud.instances.delete_unary(ONE))
    with pytest.raises(exceptions.NotFound):
        cloud.instances.get(ONE)
    assert list(cloud.disks.list(WHERE)) == []


def test_a_failed_operation_carries_all_three_error_fields(cloud):
    """Without the HTTP status the client's future would call it a success."""
    cloud.lab.cloud.fail_next("compute.instances.insert", ["stockout"])
    operation = insert(cloud)
    assert operation.error.errors[0].code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert (operation.http_error_status_code, operation.http_error_message) == (503, "SERVICE UNAVAILABLE")


def test_a_retried_insert_is_the_same_operation(cloud):
    """RequestId makes insert idempotent, also when the first answer was lost."""
    cloud.lab.cloud.fail_next("compute.instances.insert", ["drop-answer"])
    request = {**WHERE, "instance_resource": spot_vm(), "request_id": str(uuid.uuid4())}
    with pytest.raises(exceptions.ServiceUnavailable):
        cloud.instances.insert_unary(request)
    operation = cloud.finish(ZONE, cloud.instances.insert_unary(request))
    assert operation.operation_type == "insert"
    assert [vm.name for vm in cloud.instances.list(WHERE)] == ["v1"]
    assert cloud.lab.cloud.calls["compute.instances.insert"] == 2


def test_a_preemption_is_found_in_the_operations(cloud):
    """The filter on operationType finds the record of the user "system"."""
    insert(cloud)
    cloud.lab.cloud.preempt("v1")
    cloud.pause(0.3)
    request = {**WHERE, "filter": 'operationType="compute.instances.preempted"'}
    (record,) = cloud.operations.list(request)
    assert (record.user, record.status) == ("system", compute_v1.Operation.Status.DONE)
    assert record.target_link.endswith("/instances/v1")
    assert cloud.instances.get(ONE).status == "TERMINATED"


def test_lists_filter_and_page(cloud):
    """A label filter with pages of one, and the aggregated list over all zones."""
    for name in ("v1", "v2"):
        insert(cloud, name)
    request = {**WHERE, "filter": "labels.tpuctl-deployment=d", "max_results": 1}
    assert [vm.name for vm in cloud.instances.list(request)] == ["v1", "v2"]
    scopes = dict(cloud.instances.aggregated_list({"project": PROJECT}))
    assert [vm.name for vm in scopes[f"zones/{ZONE}"].instances] == ["v1", "v2"]


def test_metadata_needs_its_fingerprint(cloud):
    """The second writer with the same fingerprint gets PreconditionFailed."""
    insert(cloud)
    metadata = cloud.instances.get(ONE).metadata
    change = {"fingerprint": metadata.fingerprint, "items": [{"key": "a", "value": "2"}]}
    request = {**ONE, "metadata_resource": change}
    cloud.finish(ZONE, cloud.instances.set_metadata_unary(request))
    with pytest.raises(exceptions.PreconditionFailed):
        cloud.instances.set_metadata_unary(request)
    assert cloud.instances.get(ONE).metadata.items[0].value == "2"


def test_errors_of_calls_carry_their_reason(cloud):
    """exc.errors[0]["reason"] is what the error table says."""
    cloud.lab.cloud.fail_next(
        "compute.instances.insert", ["quota on call", "api disabled", "permission denied"]
    )
    reasons = []
    for _ in range(3):
        with pytest.raises(exceptions.Forbidden) as caught:
            cloud.instances.insert_unary({**WHERE, "instance_resource": spot_vm()})
        reasons.append(caught.value.errors[0]["reason"])
    assert reasons == ["quotaExceeded", "accessNotConfigured", "forbidden"]


def test_guest_attributes_serial_port_and_firewalls(cloud):
    """The calls around a VM that tpuctl needs."""
    insert(cloud)
    with pytest.raises(exceptions.NotFound, match="Guest Attribute"):
        cloud.instances.get_guest_attributes({**ONE, "query_path": "hostkeys/"})
    (machine,) = cloud.lab.cloud.machines()
    cloud.lab.cloud.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", "AAAA")
    answer = cloud.instances.get_guest_attributes({**ONE, "query_path": "hostkeys/"})
    assert answer.query_value.items[0].value == "AAAA"
    assert cloud.instances.get_serial_port_output(ONE).next_ == 0
    rule = {"name": "mine", "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}]}
    started = cloud.firewalls.insert_unary({"project": PROJECT, "firewall_resource": rule})
    request = {"project": PROJECT, "operation": started.name}
    assert cloud.global_operations.wait(request).status == compute_v1.Operation.Status.DONE
    assert "mine" in [found.name for found in cloud.firewalls.list({"project": PROJECT})]
    assert cloud.zones.get(WHERE).region.endswith("/regions/europe-west4")
