"""The lifetime of TPU nodes that nobody disturbs."""

import re

import pytest

from tests.emulator.emulator_lab import NODES, PROJECT, SPOT_NODE, ZONE, a_lab, node_body

ENV_LINE = re.compile(r"([A-Z_]+): '(.*)'")


def test_a_node_is_creating_until_its_operation_is_done():
    """CreateNode answers at once; the node is READY when the operation is."""
    lab = a_lab()
    started = lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    assert started["done"] is False
    assert re.search(r"/operations/operation-\d+-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}$", started["name"])
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "CREATING"
    lab.after(1.5)
    ended = lab.operation(started)
    assert ended["done"] is True
    assert ended["response"]["@type"].endswith("tpu.v2.Node")
    assert ended["response"]["state"] == "READY"
    assert ended["metadata"]["verb"] == "create"


PLACE = f"projects/{PROJECT}/zones/{ZONE}"


def test_a_node_shows_names_of_enums_and_strings_for_big_numbers():
    """Integer enums in the body come back as names; ids are strings."""
    lab = a_lab()
    lab.ok("POST", f"/compute/v1/{PLACE}/disks", {"name": "d"})
    disks = [{"sourceDisk": f"{PLACE}/disks/d", "mode": 1}]
    config = {"acceleratorType": "", "acceleratorConfig": {"type": 9, "topology": "2x4"}}
    node = lab.node(dataDisks=disks, **config)
    assert node["acceleratorType"] == "v5litepod-8"
    assert node["acceleratorConfig"]["type"] == "V5LITE_POD"
    assert node["dataDisks"][0]["mode"] == "READ_WRITE"
    assert isinstance(node["id"], str)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", node["createTime"])


def test_a_node_gets_the_default_account_and_all_scopes():
    """Without a service account the node runs as the default one, with the scope cloud-platform."""
    account = a_lab().node()["serviceAccount"]
    assert account["email"] == "123456789012-compute@developer.gserviceaccount.com"
    assert account["scope"] == ["https://www.googleapis.com/auth/cloud-platform"]


@pytest.mark.parametrize(("kind", "hosts"), [("v5litepod-8", 1), ("v5litepod-16", 4), ("v5litepod-64", 16)])
def test_a_slice_has_one_machine_and_one_endpoint_for_each_host(kind, hosts):
    """The hosts column of the catalogue says how many workers boot."""
    lab = a_lab()
    node = lab.node(acceleratorType=kind)
    addresses = [endpoint["ipAddress"] for endpoint in node["networkEndpoints"]]
    assert len(set(addresses)) == hosts
    assert [m.address for m in lab.cloud.machines()] == addresses
    assert [call for call, _ in lab.machines.calls] == ["boot"] * hosts


def test_workers_read_who_they_are_from_their_attributes():
    """The platform adds worker number, endpoints and tpu-env to the user's metadata."""
    lab = a_lab()
    node = lab.node(acceleratorType="v5litepod-16", metadata={"startup-script": "#! /bin/bash"})
    machines = lab.cloud.machines()
    third = machines[2]
    assert third.attributes["agent-worker-number"] == "2"
    assert third.attributes["startup-script"] == "#! /bin/bash"
    assert third.attributes["accelerator-type"] == "v5litepod-16"
    assert third.attributes["instance-id"] == str(third.numeric_id)
    triples = [entry.split(":") for entry in third.attributes["worker-network-endpoints"].split(",")]
    assert triples[2] == [third.name, str(third.numeric_id), third.address]
    env = dict(ENV_LINE.findall(third.attributes["tpu-env"]))
    assert (env["WORKER_ID"], env["NODE_ID"], env["HOST_BOUNDS"]) == ("2", "n1", "2,2,1")
    assert third.id == f"tpu-{ZONE}-n1-{node['id']}-w2"


def test_tpu_env_of_a_v4_256_has_the_published_bounds():
    """HOST_BOUNDS and CHIPS_PER_HOST_BOUNDS match the published sample of a v4-256."""
    lab = a_lab()
    place = NODES.replace(ZONE, "us-central2-b")
    body = node_body(acceleratorType="v4-256", runtimeVersion="tpu-ubuntu2204-base")
    lab.ok("POST", f"{place}?nodeId=big", body)
    lab.after(2)
    env = dict(ENV_LINE.findall(lab.cloud.machines()[0].attributes["tpu-env"]))
    assert (env["TOPOLOGY"], env["HOST_BOUNDS"], env["CHIPS_PER_HOST_BOUNDS"]) == ("4x4x8", "2,2,8", "2,2,1")


def test_a_deleted_node_is_gone_with_its_machines():
    """DeleteNode shows DELETING, removes every machine and ends with Empty."""
    lab = a_lab()
    lab.node(acceleratorType="v5litepod-16")
    started = lab.ok("DELETE", f"{NODES}/n1")
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "DELETING"
    lab.after(0.5)
    assert lab.call("GET", f"{NODES}/n1")[0] == 404
    assert lab.operation(started)["response"]["@type"].endswith("Empty")
    assert lab.cloud.machines() == []
    assert [call for call, _ in lab.machines.calls].count("remove") == 4


def test_the_deletion_of_a_node_that_is_being_created_is_dropped_without_a_word():
    """Its operation ends well, and the node comes up; asked for again then, the deletion works."""
    lab = a_lab()
    creation = lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    dropped = lab.ok("DELETE", f"{NODES}/n1")
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "CREATING"
    lab.after(10)
    assert lab.operation(dropped)["done"]
    assert "error" not in lab.operation(dropped)
    assert "error" not in lab.operation(creation)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(10)
    assert lab.call("GET", f"{NODES}/n1")[0] == 404


def test_a_creation_that_goes_on_for_long_is_cancelled_by_a_deletion():
    """The creation's operation ends with code 1, and no machine ever boots."""
    lab = a_lab()
    lab.cloud.fail_next("tpu.nodes.create", ["stuck"])
    creation = lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    lab.after(601)
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(10)
    assert lab.operation(creation)["error"]["code"] == 1
    assert lab.call("GET", f"{NODES}/n1")[0] == 404
    assert lab.machines.calls == []


def test_an_on_demand_node_stops_and_starts_with_its_disk():
    """Stop kills the machine and keeps its disk; start boots it again."""
    lab = a_lab()
    lab.node()
    lab.ok("POST", f"{NODES}/n1:stop")
    lab.after(0.3)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "STOPPED"
    lab.ok("POST", f"{NODES}/n1:start")
    lab.after(1.5)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    assert [call for call, _ in lab.machines.calls] == ["boot", "notice", "stop", "boot"]


def test_update_replaces_the_masked_fields_only():
    """Labels and metadata are replaced as a whole; machines see the new metadata."""
    lab = a_lab()
    lab.node(labels={"a": "1"}, metadata={"x": "1"}, description="old")
    body = {"labels": {"b": "2"}, "metadata": {"y": "2"}, "description": "ignored"}
    lab.ok("PATCH", f"{NODES}/n1?updateMask=labels,metadata", body)
    lab.after(0.3)
    node = lab.ok("GET", f"{NODES}/n1")
    assert (node["labels"], node["metadata"], node["description"]) == ({"b": "2"}, {"y": "2"}, "old")
    attributes = lab.cloud.machines()[0].attributes
    assert attributes["y"] == "2"
    assert "x" not in attributes
    assert "worker-network-endpoints" in attributes


def test_an_update_can_turn_external_addresses_on():
    """The mask networkConfig.enableExternalIps is served."""
    lab = a_lab()
    assert "externalIp" not in lab.node()["networkEndpoints"][0]["accessConfig"]
    body = {"networkConfig": {"enableExternalIps": True}}
    lab.ok("PATCH", f"{NODES}/n1?updateMask=networkConfig.enableExternalIps", body)
    lab.after(0.3)
    assert lab.ok("GET", f"{NODES}/n1")["networkEndpoints"][0]["accessConfig"]["externalIp"]


def test_lists_come_in_pages():
    """Five nodes in pages of two are three pages that repeat and skip nothing."""
    lab = a_lab()
    for index in range(5):
        lab.ok("POST", f"{NODES}?nodeId=n{index}", node_body())
    observed, token = [], ""
    while True:
        answer = lab.ok("GET", f"{NODES}?pageSize=2&pageToken={token}")
        observed.append([node["name"].rsplit("/", 1)[1] for node in answer["nodes"]])
        token = answer.get("nextPageToken", "")
        if not token:
            break
    assert observed == [["n0", "n1"], ["n2", "n3"], ["n4"]]


def test_a_node_deleted_between_two_pages_hides_no_other():
    """The page token names where the last page ended; a made-up one is 400 INVALID_ARGUMENT."""
    lab = a_lab()
    for name in "abcd":
        lab.ok("POST", f"{NODES}?nodeId={name}", node_body())
    lab.after(30)
    token = lab.ok("GET", f"{NODES}?pageSize=2")["nextPageToken"]
    lab.ok("DELETE", f"{NODES}/a")
    lab.after(60)
    rest = lab.ok("GET", f"{NODES}?pageSize=2&pageToken={token}")["nodes"]
    assert [node["name"].rsplit("/", 1)[1] for node in rest] == ["c", "d"]
    status, answer = lab.call("GET", f"{NODES}?pageToken=cC0x")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_guest_attributes_are_read_by_worker_and_path():
    """What a machine wrote comes back for that worker under its namespace."""
    lab = a_lab()
    lab.node(acceleratorType="v5litepod-16")
    machine = lab.cloud.machines()[1]
    lab.cloud.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", "AAAA")
    body = {"queryPath": "hostkeys/", "workerIds": ["1"]}
    answer = lab.ok("POST", f"{NODES}/n1:getGuestAttributes", body)
    items = answer["guestAttributes"][0]["queryValue"]["items"]
    assert items == [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAA"}]
    for named in ({}, {"workerIds": []}, {"workerIds": [""]}):  # the last is what gcloud sends
        everyone = lab.ok("POST", f"{NODES}/n1:getGuestAttributes", {"queryPath": "hostkeys/", **named})
        assert len(everyone["guestAttributes"]) == 4


def test_a_slice_publishes_host_keys_unless_its_metadata_says_otherwise():
    """Gcloud reads them of every slice; a user can turn that off."""
    lab = a_lab()
    lab.node("usual")
    lab.node("silent", metadata={"enable-guest-attributes": "FALSE"})
    observed = [machine.attributes["enable-guest-attributes"] for machine in lab.cloud.machines()]
    assert observed == ["TRUE", "FALSE"]


def test_operations_are_listed_and_can_be_forgotten():
    """A deleted operation is not shown any more; a cancel is recorded and the work goes on."""
    lab = a_lab()
    started = lab.ok("POST", f"{NODES}?nodeId=n1", node_body(**SPOT_NODE))
    lab.ok("POST", f"/v2/{started['name']}:cancel")
    assert lab.operation(started)["metadata"]["cancelRequested"] is True
    lab.after(2)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    lab.ok("DELETE", f"/v2/{started['name']}")
    assert lab.ok("GET", NODES.replace("nodes", "operations"))["operations"] == []


def test_the_catalogue_is_served_by_zone():
    """Locations, types and runtimes come from the tables; a zone lists its own types."""
    lab = a_lab()
    base = NODES.removesuffix("/nodes")
    zones = lab.ok("GET", base.rsplit("/", 1)[0])["locations"]
    assert ZONE in [zone["locationId"] for zone in zones]
    types = [t["type"] for t in lab.ok("GET", f"{base}/acceleratorTypes")["acceleratorTypes"]]
    assert "v5litepod-8" in types
    assert "v4-8" not in types
    assert lab.ok("GET", f"{base}/acceleratorTypes/v5litepod-8")["name"].endswith("v5litepod-8")
    assert lab.ok("GET", f"{base}/runtimeVersions/v2-alpha-tpuv5-lite")["version"] == "v2-alpha-tpuv5-lite"
    identity = lab.ok("POST", f"{base}:generateServiceIdentity")
    assert identity["identity"]["email"] == "service-123456789012@cloud-tpu.iam.gserviceaccount.com"
