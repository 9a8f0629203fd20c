"""What the tool does when machines are taken away."""

import keep_alive
import pytest
from google.api_core import exceptions
from google.cloud import compute_v1, storage, tpu_v2

ZONE = "us-central1-a"


def make_vm(gcp, name):
    """Create a spot VM and wait until it runs."""
    vm = {
        "name": name,
        "machine_type": f"zones/{ZONE}/machineTypes/e2-small",
        "scheduling": {"provisioning_model": "SPOT", "instance_termination_action": "STOP"},
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {"source_image": "projects/debian-cloud/global/images/family/debian-13"},
            }
        ],
        "network_interfaces": [{}],
    }
    compute_v1.InstancesClient().insert(project=gcp.project, zone=ZONE, instance_resource=vm).result(
        timeout=60
    )


def test_a_preempted_vm_is_started_again(gcp):
    """And one that runs is left alone."""
    make_vm(gcp, "one")
    make_vm(gcp, "two")
    gcp.preempt("one")
    gcp.advance(60)
    assert keep_alive.start_stopped(ZONE) == ["one"]
    assert gcp.running == ["one", "two"]
    assert gcp.calls["compute.instances.start"] == 1


def test_a_lost_tpu_is_named(gcp):
    """A preempted node stays in the list, with its state."""
    node = tpu_v2.Node(
        accelerator_type="v5litepod-4",
        runtime_version="v2-alpha-tpuv5-lite",
        scheduling_config=tpu_v2.SchedulingConfig(spot=True),
    )
    client = tpu_v2.TpuClient(transport="rest")
    client.create_node(parent=f"projects/{gcp.project}/locations/{ZONE}", node_id="trainer", node=node)
    gcp.advance(60)
    assert keep_alive.lost_nodes(ZONE) == []
    gcp.preempt("trainer", notice=False)
    assert keep_alive.lost_nodes(ZONE) == ["trainer"]


def test_the_tool_stops_at_a_missing_permission(gcp):
    """What the cloud refuses is not hidden."""
    gcp.fail("compute.instances.list", "permission denied")
    with pytest.raises(exceptions.Forbidden):
        keep_alive.start_stopped(ZONE)


def test_buckets_are_there_too(gcp):
    """With generations and preconditions, as the real ones."""
    bucket = storage.Client().create_bucket("my-bucket", location="us-central1")
    bucket.blob("model/step-10").upload_from_string(b"weights", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("model/step-10").upload_from_string(b"others", if_generation_match=0)
