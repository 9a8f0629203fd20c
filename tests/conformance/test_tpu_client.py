"""The official TPU client against the local cloud: over HTTP and in-process, the same cases."""

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.conformance.clients_kit import KINDS, open_clients
from tests.emulator.emulator_lab import PROJECT, ZONE

PARENT = f"projects/{PROJECT}/locations/{ZONE}"
NODE = f"{PARENT}/nodes/n1"
State = tpu_v2.Node.State


@pytest.fixture(params=KINDS)
def cloud(request):
    """Open the clients, over HTTP and in-process."""
    with open_clients(request.param) as clients:
        yield clients


def spot_node(kind="v5litepod-8", **fields):
    """Return a spot node of *kind*."""
    return tpu_v2.Node(
        accelerator_type=kind,
        runtime_version="v2-alpha-tpuv5-lite",
        scheduling_config={"spot": True},
        **fields,
    )


def created(cloud, **fields):
    """Create node n1 and return it when it is READY."""
    operation = cloud.tpu.create_node(parent=PARENT, node_id="n1", node=spot_node(**fields))
    cloud.pause(0.3)
    return operation.result(timeout=60)


def test_create_get_list_update_delete(cloud):
    """The whole lifetime of a slice through the client's own types and futures."""
    disk = f"projects/{PROJECT}/zones/{ZONE}/disks/d"
    cloud.lab.cloud.compute.disks.insert(ZONE, {"name": "d", "sizeGb": "20"})
    cloud.pause(0.3)
    node = created(
        cloud, kind="v5litepod-16", labels={"a": "1"}, data_disks=[{"source_disk": disk, "mode": 2}]
    )
    assert (node.state, node.health) == (State.READY, tpu_v2.Node.Health.HEALTHY)
    assert len(node.network_endpoints) == 4
    assert node.data_disks[0].mode == tpu_v2.AttachedDisk.DiskMode.READ_ONLY
    assert node.scheduling_config.spot
    assert [found.name for found in cloud.tpu.list_nodes(parent=PARENT)] == [NODE]
    change = tpu_v2.Node(name=NODE, labels={"b": "2"})
    update = cloud.tpu.update_node(node=change, update_mask={"paths": ["labels"]})
    cloud.pause(0.2)
    assert dict(update.result(timeout=60).labels) == {"b": "2"}
    deletion = cloud.tpu.delete_node(name=NODE)
    cloud.pause(0.2)
    deletion.result(timeout=60)
    with pytest.raises(exceptions.NotFound):
        cloud.tpu.get_node(name=NODE)


def test_a_preemption_is_observed_as_a_state(cloud):
    """The node stays as PREEMPTED; its name is taken and update is refused."""
    created(cloud)
    cloud.lab.cloud.preempt("n1", notice=False)
    assert cloud.tpu.get_node(name=NODE).state == State.PREEMPTED
    with pytest.raises(exceptions.Conflict) as taken:
        cloud.tpu.create_node(parent=PARENT, node_id="n1", node=spot_node())
    assert taken.value.response.json()["error"]["status"] == "ALREADY_EXISTS"
    with pytest.raises(exceptions.BadRequest, match="not supported while in state PREEMPTED"):
        cloud.tpu.update_node(node=tpu_v2.Node(name=NODE), update_mask={"paths": ["labels"]})


def test_stockout_raises_from_the_operation_and_quota_from_the_call(cloud):
    """ResourceExhausted by the future; TooManyRequests at once, with the quota's name."""
    cloud.lab.cloud.fail_next("tpu.nodes.create", ["stockout", "quota exceeded"])
    operation = cloud.tpu.create_node(parent=PARENT, node_id="n1", node=spot_node())
    cloud.pause(0.2)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        operation.result(timeout=60)
    with pytest.raises(exceptions.TooManyRequests, match="has been exceeded") as refused:
        cloud.tpu.create_node(parent=PARENT, node_id="n1", node=spot_node())
    (violation,) = refused.value.details[0]["violations"]
    assert violation["subject"] == "project:123456789012"


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("stockout", exceptions.ResourceExhausted),
        ("no reserved capacity", exceptions.FailedPrecondition),
        ("zone serves only reservations", exceptions.NotFound),
        ("preempted while creating", exceptions.InvalidArgument),
        ("already exists", exceptions.Conflict),
        ("node not found", exceptions.NotFound),
        ("api disabled", exceptions.Forbidden),
        ("permission denied", exceptions.Forbidden),
        ("zone hidden from project", exceptions.Forbidden),
        ("type not in zone", exceptions.BadRequest),
        ("concurrent operation", exceptions.Conflict),
        ("transient", exceptions.ServiceUnavailable),
    ],
)
def test_each_case_of_the_error_table_is_the_exception_it_names(case, error):
    """The client turns every row into the class that the table promises."""
    with open_clients("in-process") as cloud:
        cloud.lab.cloud.fail_next("tpu.nodes.create", [case])
        with pytest.raises(error):
            start_and_finish(cloud)


def start_and_finish(cloud):
    """Create a node and wait for its operation."""
    operation = cloud.tpu.create_node(parent=PARENT, node_id="n1", node=spot_node())
    cloud.pause(1)
    operation.result(timeout=60)


def test_error_info_reaches_the_exception(cloud):
    """reason, domain and metadata come from ErrorInfo."""
    cloud.lab.cloud.fail_next("tpu.nodes.get", ["api disabled"])
    with pytest.raises(exceptions.Forbidden) as caught:
        cloud.tpu.get_node(name=NODE)
    assert (caught.value.reason, caught.value.domain) == ("SERVICE_DISABLED", "googleapis.com")
    assert caught.value.metadata["service"] == "tpu.googleapis.com"


def test_the_catalogue_reads_with_the_clients_types(cloud):
    """Locations, accelerator types, runtime versions and the service agent."""
    locations = cloud.tpu.list_locations({"name": f"projects/{PROJECT}"}).locations
    assert ZONE in [location.location_id for location in locations]
    types = [kind.type_ for kind in cloud.tpu.list_accelerator_types(parent=PARENT)]
    assert "v5litepod-16" in types
    name = f"{PARENT}/runtimeVersions/v2-alpha-tpuv5-lite"
    assert cloud.tpu.get_runtime_version(name=name).version == "v2-alpha-tpuv5-lite"
    identity = cloud.tpu.generate_service_identity({"parent": PARENT}).identity
    assert identity.email.endswith("@cloud-tpu.iam.gserviceaccount.com")


def test_guest_attributes_come_for_each_worker(cloud):
    """Host keys that the machines wrote are read through the API."""
    created(cloud, kind="v5litepod-16")
    for machine in cloud.lab.cloud.machines():
        cloud.lab.cloud.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", machine.name)
    answer = cloud.tpu.get_guest_attributes({"name": NODE, "query_path": "hostkeys/"})
    values = [entry.query_value.items[0].value for entry in answer.guest_attributes]
    assert values == [machine.name for machine in cloud.lab.cloud.machines()]


def test_pages_are_followed_by_the_client(cloud):
    """A page size of one still lists all."""
    for index in range(3):
        cloud.tpu.create_node(parent=PARENT, node_id=f"n{index}", node=spot_node())
    request = {"parent": PARENT, "page_size": 1}
    assert [n.name.rsplit("/", 1)[1] for n in cloud.tpu.list_nodes(request)] == ["n0", "n1", "n2"]
