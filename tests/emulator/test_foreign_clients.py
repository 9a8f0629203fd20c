"""What clients that nobody here wrote send, and what they must get."""

import base64
import gzip
import json

import pytest

from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.secrets import secret_routes
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.state.secrets import Secrets
from tests.emulator.emulator_lab import NODES, PROJECT, VMS, ZONE, EmulatorLab, a_lab, node_body, vm_body
from tests.emulator.storage_kit import a_storage, put

O = "/storage/v1/b/data/o"  # noqa: E741 - the path of objects, as the routes write it
UPLOAD = "/upload/storage/v1/b/data/o?uploadType=resumable&name=big"
TPU = f"/projects/{PROJECT}/locations"


class RawStorageClient:
    """Speak HTTP to a storage with one bucket."""

    def __init__(self) -> None:
        self.storage, self.lab = a_storage(), a_lab()
        storage_routes(self.lab.router, self.storage)

    def send(self, verb: str, target: str, body: object = b"", **headers: str) -> Response:
        """Return the answer; names of headers are written with underscores."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return dispatch(self.lab.router, self.lab.cloud, Request.parse(verb, target, names, data))

    def ok(self, verb: str, target: str, body: object = b"", **headers: str) -> dict:
        """Return the JSON of an answer that must be a success."""
        answer = self.send(verb, target, body, **headers)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)


@pytest.fixture
def store() -> RawStorageClient:
    """Return a storage."""
    return RawStorageClient()


# Go: rclone, gcsfuse, the Go client.


def test_a_resumable_upload_without_308(store):
    """Go's HTTP library would follow a 308: its clients ask for 200 with the status in a header."""
    session = store.send("POST", UPLOAD).headers["location"].partition("localhost")[2]
    first = store.send(
        "PUT", session, b"abc", content_range="bytes 0-2/6", X_GUploader_No_308="yes"
    )  # fmt: skip
    assert (first.status, first.headers["x-http-status-code-override"]) == (200, "308")
    assert first.headers["range"] == "bytes=0-2"
    assert store.ok("PUT", session, b"def", content_range="bytes 3-5/6")["size"] == "6"
    session = store.send("POST", UPLOAD).headers["location"].partition("localhost")[2]
    assert store.send("PUT", session, b"abc", content_range="bytes 0-2/6").status == 308


def test_null_is_no_body(store):
    """Go writes null where there is nothing to say."""
    put(store.storage, "one", b"x")
    assert store.ok("POST", f"{O}/one/rewriteTo/b/data/o/two", b"null")["done"] is True


# What gcloud, gcsfs and others ask of Cloud Storage.


def test_a_pattern_chooses_objects(store):
    """A matchGlob that is ignored lists, and lets a client delete, everything."""
    for name in ("a/1.txt", "a/2.bin", "a/b/3.txt", "c.txt"):
        put(store.storage, name)

    def found(glob: str) -> list[str]:
        body = Request.parse("GET", O, {}, b"")
        answer = dispatch(
            store.lab.router, store.lab.cloud,
            Request(body.method, body.path, {"matchGlob": glob}, {}),
        )  # fmt: skip
        return [item["name"] for item in json.loads(answer.body).get("items", [])]

    assert found("a/*.txt") == ["a/1.txt"]
    assert found("**.txt") == ["a/1.txt", "a/b/3.txt", "c.txt"]
    assert found("**/3.txt") == ["a/b/3.txt"]
    assert found("a/[1-2].{txt,bin}") == ["a/1.txt", "a/2.bin"]
    assert found("?.txt") == ["c.txt"]


def test_booleans_are_read_in_any_case(store):
    """Google's Python client writes True."""
    put(store.storage, "a/")
    for word in ("true", "True"):
        shown = store.ok("GET", f"{O}?delimiter=/&includeTrailingDelimiter={word}")
        assert [item["name"] for item in shown["items"]] == ["a/"]
    assert store.ok("GET", f"{O}?softDeleted=True") == {"kind": "storage#objects"}
    assert store.send("GET", f"{O}?softDeleted=maybe").status == 400


def test_output_only_fields_of_a_bucket_are_ignored(store):
    """Gcloud sends the whole resource back; metageneration stayed 1 for ever."""
    shown = store.ok("GET", "/storage/v1/b/data")
    changed = store.ok("PATCH", "/storage/v1/b/data", {**shown, "storageClass": "nearline"})
    assert (changed["metageneration"], changed["storageClass"]) == ("2", "NEARLINE")
    assert changed["etag"] != shown["etag"]
    assert store.ok("PATCH", "/storage/v1/b/data?ifMetagenerationMatch=2", {"labels": {"a": "b"}})


def test_conditions_on_etags_hold(store):
    """If-Match and If-None-Match are HTTP's own preconditions."""
    put(store.storage, "one", b"x")
    tag = store.ok("GET", f"{O}/one")["etag"]
    assert store.send("GET", f"{O}/one?alt=media", If_None_Match=tag).status == 304
    assert store.send("GET", f"{O}/one", If_Match="other").status == 412
    assert store.send("GET", f"{O}/one", If_Match=tag).status == 200


def test_stored_gzip_is_unpacked_for_who_does_not_accept_it(store):
    """A client without Accept-Encoding got compressed bytes."""
    put(store.storage, "z", gzip.compress(b"text"), contentEncoding="gzip")
    plain = store.send("GET", f"{O}/z?alt=media")
    assert (plain.body, "content-encoding" in plain.headers) == (b"text", False)
    packed = store.send("GET", f"{O}/z?alt=media", Accept_Encoding="gzip")
    assert (gzip.decompress(packed.body), packed.headers["content-encoding"]) == (b"text", "gzip")


@pytest.mark.parametrize(
    ("verb", "target", "body", "headers"),
    [
        ("PATCH", f"{O}/one", {"temporaryHold": True}, {}),
        ("PATCH", f"{O}/one", {"eventBasedHold": True}, {}),
        ("PATCH", "/storage/v1/b/data", {"retentionPolicy": {"retentionPeriod": "10"}}, {}),
        ("GET", f"{O}/one?alt=media", b"", {"x_goog_encryption_algorithm": "AES256"}),
    ],
)
def test_what_protects_data_is_refused_where_it_would_not_hold(store, verb, target, body, headers):
    """An object under a hold that is ignored is deleted all the same."""
    put(store.storage, "one", b"x")
    answer = store.send(verb, target, body, **headers)
    assert (answer.status, "does not implement" in answer.body.decode()) == (400, True)


def test_checksums_of_one_upload_must_agree(store):
    """The session's crc32c was forgotten when the last request carried another."""
    begin = store.send("POST", UPLOAD, {"crc32c": "AAAAAA=="})
    session = begin.headers["location"].partition("localhost")[2]
    right = put(store.storage, "same", b"abc").crc32c
    answer = store.send("PUT", session, b"abc", content_range="bytes 0-2/3", X_Goog_Hash=f"crc32c={right}")
    assert answer.status == 400


def test_an_upload_that_was_too_soon_is_ended_by_asking_again():
    """Its session was gone after a 429, so that a client's retry met 404 and the checkpoint was lost."""
    store = RawStorageClient()
    store.storage.objects._interval = 1.0
    ends = []
    for data in (b"one", b"two"):
        session = store.send("POST", UPLOAD).headers["location"].partition("localhost")[2]
        ends.append((session, data, store.send("PUT", session, data).status))
    assert [status for _, _, status in ends] == [200, 429]
    store.storage.clock.advance(1)
    assert store.ok("PUT", *ends[1][:2])["size"] == "3"
    assert store.send("GET", f"{O}/big?alt=media").body == b"two"


# TPU, Compute, secrets.


def test_one_object_may_stand_for_a_list():
    """SkyPilot sends nodeSpec so; the JSON parser of Google's RPC services takes it."""
    lab = a_lab()
    parent = f"projects/{PROJECT}/locations/{ZONE}"
    body = {"tpu": {"nodeSpec": {"parent": parent, "nodeId": "q1n", "node": node_body()}}, "spot": {}}
    lab.ok("POST", f"{NODES.replace('/nodes', '/queuedResources')}?queuedResourceId=q1", body)


def test_a_firewall_rule_that_was_read_can_be_inserted():
    """Terraform and Ansible send kind and selfLink; the list of rules answered 500 from then on."""
    lab = a_lab()
    rules = f"/compute/v1/projects/{PROJECT}/global/firewalls"
    shown = lab.ok("GET", rules)["items"][0]
    lab.ok("POST", rules, {**shown, "name": "copy"})
    assert "copy" in [rule["name"] for rule in lab.ok("GET", rules)["items"]]
    assert lab.ok("GET", f"{rules}/copy")["kind"] == "compute#firewall"


def test_links_lead_to_where_the_client_came_from():
    """Ansible follows them, and left the local cloud for the real service."""
    lab = a_lab()
    lab.vm()
    asked = Request.parse("GET", f"{VMS}/v1", {"Host": "127.0.0.1:5050"}, b"")
    link = json.loads(dispatch(lab.router, lab.cloud, asked).body)["selfLink"]
    assert link == f"http://127.0.0.1:5050{VMS}/v1"
    copy = vm_body("v2", machineType=f"{link.rpartition('/instances')[0]}/machineTypes/e2-small")
    lab.ok("POST", VMS, copy)


@pytest.mark.parametrize(
    "path",
    [
        "/v1{0}", "/v1{0}/{1}", "/v1{0}/{1}/acceleratorTypes", "/v1{0}/{1}/tensorflowVersions",
        "/v1{0}/{1}/nodes",
        "/v2alpha1{0}", "/v2alpha1{0}/{1}/nodes", "/v2alpha1{0}/{1}/queuedResources",
    ],
)  # fmt: skip
def test_older_and_newer_versions_of_the_tpu_api_are_there(path):
    """Gcloud asks v1 for the catalogue, and `gcloud alpha` asks v2alpha1 for everything."""
    a_lab().ok("GET", path.format(TPU, ZONE))


@pytest.mark.parametrize("runtime", ["tpu-vm-tf-2.17.0-pjrt", "v2-tpuv5-litepod"])
def test_runtime_versions_of_googles_samples_are_known(runtime):
    """The samples of Google's documentation create with these."""
    a_lab().node(runtimeVersion=runtime)


def test_the_etag_of_a_policy_is_base64(tmp_path):
    """Gcloud decodes it, and ended with "Incorrect padding"."""
    lab: EmulatorLab = a_lab()
    secret_routes(lab.router, lab.cloud, Secrets(lab.clock, 1, tmp_path / "secrets.json"))
    path = f"/v1/projects/{PROJECT}/secrets"
    lab.ok("POST", f"{path}?secretId=s1", {"replication": {"automatic": {}}})
    assert base64.b64decode(lab.ok("GET", f"{path}/s1:getIamPolicy")["etag"], validate=True)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"count": "2", "namePattern": "sky-##"}, ["sky-01", "sky-02"]),
        ({"count": 2, "perInstanceProperties": {"a": {}, "b": {"name": "c"}}}, ["a", "c"]),
    ],
)
def test_several_vms_are_inserted_by_one_call(wanted, names):
    """SkyPilot creates no VM in another way."""
    lab = a_lab()
    properties = {key: value for key, value in vm_body().items() if key != "name"} | {
        "machineType": "e2-small"
    }
    begun = lab.ok("POST", f"{VMS}/bulkInsert", {**wanted, "instanceProperties": properties})
    lab.after(2)
    assert lab.operation(begun)["status"] == "DONE"
    assert [vm["name"] for vm in lab.ok("GET", VMS)["items"]] == names
    for wrong in ({"count": "3"}, {"namePattern": "x"}, {"count": "-1"}):
        body = {"namePattern": "z#", **wrong, "perInstanceProperties": {}, "instanceProperties": properties}
        known = len(lab.cloud.machines())
        status, _ = lab.call("POST", f"{VMS}/bulkInsert", body)
        assert (status == 400) is (wrong != {"count": "3"})
        assert (len(lab.cloud.machines()) == known) is (status == 400)


def test_several_vms_fail_as_the_first_that_fails():
    """A stockout shows in the one operation."""
    lab = a_lab(stockouts=frozenset({ZONE}))
    properties = {key: value for key, value in vm_body().items() if key != "name"}
    begun = lab.ok(
        "POST", f"{VMS}/bulkInsert", {"count": "2", "namePattern": "s#", "instanceProperties": properties}
    )
    lab.after(3)
    done = lab.operation(begun)
    assert done["error"]["errors"][0]["code"].startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert lab.ok("GET", VMS).get("items", []) == []
