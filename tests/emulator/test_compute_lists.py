"""Lists, filters, pages, waits, batches and the catalogue of Compute Engine."""

import json

import pytest

from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request
from orchestrator.google.bodies import IMAGE_PROJECT, image_family
from tests.emulator.emulator_lab import PROJECT, SPOT_VM, VMS, ZONE, a_lab, vm_body

BASE = f"/compute/v1/projects/{PROJECT}"
IMAGES = f"/compute/v1/projects/{IMAGE_PROJECT}/global/images/family"


def a_zone_with_three():
    """Return a lab with two running VMs, one of them spot, and a stopped one."""
    lab = a_lab()
    lab.vm("a1", labels={"tier": "x", "cores": "2"})
    lab.vm("b1", labels={"tier": "y"}, **SPOT_VM)
    lab.vm("b2", labels={"cores": "10"})
    lab.ok("POST", f"{VMS}/b2/stop")
    lab.after(1)
    return lab


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("name=a1", ["a1"]),
        ("name!=a1", ["b1", "b2"]),
        ("labels.tier=x", ["a1"]),
        ("labels.tier:*", ["a1", "b1"]),
        ("(labels.tier=y)(status=RUNNING)", ["b1"]),
        ("name=a1 OR status=TERMINATED", ["a1", "b2"]),
        ("name eq b.*", ["b1", "b2"]),
        ("name ne b.*", ["a1"]),
        ("scheduling.preemptible=true", ["b1"]),
        ("NOT name=a1 AND status=RUNNING", ["b1"]),
        ("-name:b", ["a1"]),
        ("labels.cores>9", ["b2"]),
        ("labels.cores<=9.5", ["a1"]),
        ("name>a9", ["b1", "b2"]),
    ],
)
def test_filters_choose_as_documented(expression, names):
    """Comparisons, labels, OR, NOT, and whole-field patterns with eq and ne."""
    lab = a_zone_with_three()
    target = Request.parse("GET", VMS, {}, b"")
    answer = dispatch(lab.router, lab.cloud, Request("GET", target.path, {"filter": expression}, {}))
    assert [vm["name"] for vm in json.loads(answer.body)["items"]] == names


@pytest.mark.parametrize(
    "expression", ["name%3D%3D%3D", "name%20eq%20%22%5B%22", "status%3DX%20(name%3Da%20OR%20name%3Db)"]
)
def test_a_filter_that_cannot_be_read_is_refused(expression):
    """400 instead of a silent empty or wrong list."""
    status, answer = a_lab().call("GET", f"{VMS}?filter={expression}")
    assert (status, answer["error"]["errors"][0]["reason"]) == (400, "invalid")


def test_pages_and_order():
    """Newest first in pages of two."""
    lab = a_zone_with_three()
    first = lab.ok("GET", f"{VMS}?maxResults=2&orderBy=creationTimestamp%20desc")
    token = first["nextPageToken"]
    second = lab.ok("GET", f"{VMS}?maxResults=2&orderBy=creationTimestamp%20desc&pageToken={token}")
    names = [vm["name"] for page in (first, second) for vm in page["items"]]
    assert names == ["b2", "b1", "a1"]
    assert "nextPageToken" not in second


@pytest.mark.parametrize("order", ["name", "creationTimestamp", "creationTimestamp%20desc"])
def test_a_list_that_shrinks_between_two_pages_loses_nothing_that_stayed(order):
    """The last one shown is deleted, and one before it: the next page still begins where the first ended."""
    lab = a_lab()
    for name in "abcd":
        lab.vm(f"vm-{name}")
    page = f"{VMS}?maxResults=2&orderBy={order}"
    first = lab.ok("GET", page)
    for vm in first["items"]:
        lab.ok("DELETE", f"{VMS}/{vm['name']}")
    lab.after(60)
    rest = lab.ok("GET", f"{page}&pageToken={first['nextPageToken']}")
    assert len({vm["name"] for vm in first["items"] + rest["items"]}) == 4


def test_a_page_token_that_was_not_given_is_refused():
    """Neither an offset nor any other text is one."""
    lab = a_zone_with_three()
    for made_up in (
        "x",
        "p1",
        "cC0x",
        "W10=",
        "NQ==",
        "bnVsbA==",
    ):  # the last four: p-1, [], 5, null in base64
        status, answer = lab.call("GET", f"{VMS}?maxResults=1&pageToken={made_up}")
        assert (status, answer["error"]["errors"][0]["reason"]) == (400, "invalid"), made_up


def test_an_aggregated_list_warns_for_empty_zones():
    """Each zone is a key; one without VMs carries NO_RESULTS_ON_PAGE."""
    items = a_zone_with_three().ok("GET", f"{BASE}/aggregated/instances")["items"]
    assert len(items[f"zones/{ZONE}"]["instances"]) == 3
    assert items["zones/us-central1-a"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"


def test_wait_returns_when_the_operation_is_done():
    """The wait takes as long as the operation, not two minutes."""
    lab = a_lab()
    started = lab.ok("POST", VMS, vm_body())
    before = lab.clock.now()
    path = started["selfLink"].removeprefix("https://www.googleapis.com")
    assert lab.ok("POST", f"{path}/wait")["status"] == "DONE"
    assert lab.clock.now() - before == pytest.approx(1.0)


def test_wait_on_a_stuck_operation_gives_up_after_two_minutes():
    """It answers with the state as it is."""
    lab = a_lab()
    lab.cloud.fail_next("compute.instances.insert", ["stuck"])
    started = lab.ok("POST", VMS, vm_body())
    before = lab.clock.now()
    path = started["selfLink"].removeprefix("https://www.googleapis.com")
    assert lab.ok("POST", f"{path}/wait")["status"] == "RUNNING"
    assert lab.clock.now() - before == pytest.approx(120.0)


def test_a_batch_answers_each_part_in_order():
    """Parts keep their Content-ID; one that fails does not spoil the other."""
    lab = a_zone_with_three()
    parts = [f"GET {VMS}/a1?alt=json HTTP/1.1\r\n\r\n", f"GET {VMS}/nope HTTP/1.1\r\n\r\n"]
    text = "".join(
        f"--b\r\nContent-Type: application/http\r\nContent-ID: <id+{index}>\r\n\r\n{part}\r\n"
        for index, part in enumerate(parts)
    )
    head = {"Content-Type": 'multipart/mixed; boundary="b"'}
    request = Request.parse("POST", "/batch/compute/v1", head, f"{text}--b--\r\n".encode())
    answer = dispatch(lab.router, lab.cloud, request)
    body = answer.body.decode()
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=")
    assert body.index("<response-id+0>") < body.index("HTTP/1.1 200 OK") < body.index("<response-id+1>")
    assert body.index("<response-id+1>") < body.index("HTTP/1.1 404 Not Found")


def test_firewall_rules_come_and_go():
    """The default rules are there; a new one is listed until it is deleted."""
    lab = a_lab()
    rules = f"{BASE}/global/firewalls"
    assert "default-allow-ssh" in [rule["name"] for rule in lab.ok("GET", rules)["items"]]
    started = lab.ok("POST", rules, {"name": "mine", "allowed": [{"IPProtocol": "tcp"}]})
    assert lab.call("POST", rules, {"name": "mine"})[0] == 409
    lab.after(1)
    assert lab.operation(started)["status"] == "DONE"
    assert lab.ok("GET", f"{rules}/mine")["direction"] == "INGRESS"
    lab.ok("DELETE", f"{rules}/mine")
    assert lab.call("GET", f"{rules}/mine")[0] == 404


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (BASE, "name", PROJECT),
        (f"{BASE}/zones/{ZONE}", "status", "UP"),
        (f"{BASE}/regions/europe-west4", "name", "europe-west4"),
        (f"{BASE}/zones/{ZONE}/machineTypes/e2-small", "guestCpus", 2),
        (f"{BASE}/global/networks/default", "autoCreateSubnetworks", True),
        (f"{BASE}/regions/europe-west4/subnetworks/default", "name", "default"),
        ("/compute/v1/projects/debian-cloud/global/images/family/debian-13", "family", "debian-13"),
        (f"{IMAGES}/{image_family('e2-small')}", "family", "ubuntu-2404-lts-amd64"),
        (f"{IMAGES}/{image_family('c4a-standard-1')}", "family", "ubuntu-2404-lts-arm64"),
    ],
)
def test_the_catalogue_is_served(path, key, value):
    """Project, zones, regions, machine types, networks and image families can be read."""
    assert a_lab().ok("GET", path)[key] == value


def test_the_images_of_a_public_project_are_listed():
    """Libcloud looks its image up in this list; the project of the local cloud has none of its own."""
    lab = a_lab()
    public = lab.ok("GET", "/compute/v1/projects/ubuntu-os-cloud/global/images")
    assert [one["family"] for one in public["items"]] == [
        "ubuntu-2204-lts", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64"
    ]  # fmt: skip
    assert lab.ok("GET", f"{BASE}/global/images")["items"] == []


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/zones/mars-east1-a",
        f"{BASE}/regions/mars",
        f"{BASE}/zones/{ZONE}/machineTypes/nope",
        f"{BASE}/global/networks/nope",
        f"{BASE}/zones/{ZONE}/operations/nope",
        "/compute/v1/projects/nobody/global/images",
        "/compute/v1/projects/debian-cloud/global/images/family/nope",
        "/compute/v1/projects/debian-cloud/global/images/family/debian-12",  # out of support since 2026-07
    ],
)
def test_what_is_not_in_the_catalogue_is_not_found(path):
    """404 notFound."""
    status, answer = a_lab().call("GET", path)
    assert (status, answer["error"]["errors"][0]["reason"]) == (404, "notFound")
