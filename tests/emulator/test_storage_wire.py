"""The bytes on the wire, for clients other than Google's own."""

import http.client
import json
from urllib.parse import urlsplit

import pytest
import requests

from orchestrator.emulator.http.batch import parts
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.http.storage_json import route
from tests.emulator.http_fixture import serve
from tests.emulator.storage_kit import ANY, a_storage, put, routed

OBJECT = "/storage/v1/b/data/o/dir%2Fa"


@pytest.fixture
def storage():
    """Return a storage with one object."""
    made = a_storage()
    put(made, "dir/a", b"0123456789", contentType="text/plain")
    return made


@pytest.fixture
def ask(storage):
    """Return a call that answers one request without a network."""
    router = routed(storage)

    def call(method, target, headers=None, body=b""):
        return route(router, Request.parse(method, target, headers or {}, body))

    return call


@pytest.fixture
def url(storage):
    """Serve the storage over HTTP."""
    with serve(routed(storage)) as base:
        yield base


@pytest.mark.parametrize("path", [f"{OBJECT}?alt=media", f"/download{OBJECT}", "/data/dir/a"])
def test_media_is_served_on_three_paths_with_the_headers_clients_check(ask, storage, path):
    """The JSON path, the download path and the path of the XML API."""
    held = storage.objects.get("data", "dir/a")
    answer = ask("GET", path)
    assert (answer.status, answer.body) == (200, b"0123456789")
    assert answer.headers["x-goog-generation"] == str(held.generation)
    assert answer.headers["x-goog-metageneration"] == "1"
    assert answer.headers["x-goog-hash"] == f"crc32c={held.crc32c},md5={held.md5}"
    assert answer.headers["x-goog-stored-content-length"] == "10"
    assert answer.headers["x-goog-stored-content-encoding"] == "identity"
    assert answer.headers["content-type"] == "text/plain"


@pytest.mark.parametrize(
    ("wanted", "status", "body", "shown"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges(ask, wanted, status, body, shown):
    """From-to, open ended and suffix ranges; outside is 416; an unknown unit gets everything."""
    answer = ask("GET", f"/download{OBJECT}?alt=media", {"Range": wanted})
    assert (answer.status, answer.body, answer.headers.get("content-range")) == (status, body, shown)


def test_an_error_has_the_body_of_the_json_api(ask):
    """Code, message, and a list with domain and reason."""
    answer = ask("GET", "/storage/v1/b/data/o/none")
    message = "No such object: data/none"
    detail = {"message": message, "domain": "global", "reason": "notFound"}
    assert answer.status == 404
    assert json.loads(answer.body) == {"error": {"code": 404, "message": message, "errors": [detail]}}


def test_an_object_that_has_not_changed_is_304_without_a_body(ask, storage):
    """The caller has it already."""
    generation = storage.objects.get("data", "dir/a").generation
    answer = ask("GET", f"{OBJECT}?ifGenerationNotMatch={generation}")
    assert (answer.status, answer.body) == (304, b"")


@pytest.mark.parametrize(
    "asked",
    [
        ("POST", "/storage/v1/b?project=p", {}, b"{not json"),
        ("POST", "/storage/v1/b?project=p", {}, b"[1]"),
        ("GET", f"{OBJECT}?ifGenerationMatch=soon", {}, b""),
        ("GET", "/storage/v1/b", {}, b""),
        ("POST", "/upload/storage/v1/b/data/o?uploadType=odd&name=x", {}, b""),
        ("POST", "/upload/storage/v1/b/data/o?uploadType=media", {}, b"x"),
        ("POST", "/upload/storage/v1/b/data/o?uploadType=multipart", {"content-type": "text/plain"}, b"x"),
        ("POST", f"{OBJECT}/compose", {}, b'{"sourceObjects": 7}'),
        ("POST", f"{OBJECT}/compose", {}, b'{"sourceObjects": [{"name": "dir/a", "generation": "x"}]}'),
        ("PATCH", "/storage/v1/b/data", {}, b'{"labels": [1]}'),
    ],
)
def test_a_request_that_cannot_be_read_is_400(ask, storage, asked):
    """It is refused as a whole and changes nothing."""
    before = storage.objects.all()
    assert ask(*asked).status == 400
    assert storage.objects.all() == before
    assert [bucket.name for bucket in storage.buckets.list("p")] == ["data"]


def test_a_route_is_named_after_its_api_method(storage):
    """Faults and counters are keyed by this name."""
    router = routed(storage)
    found = router.find(Request("POST", "/upload/storage/v1/b/data/o", {}, {}))
    assert found is not None
    assert found[0].__name__ == "storage.objects.insert"


@pytest.mark.parametrize("line", [b"\r\n", b"\n"])
@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_multipart_bodies_of_all_clients_are_read(line, quote):
    """Python's client ends lines with CRLF, gcloud with LF and single quotes around the boundary."""
    data = b"\r\n--b2\n\x00" + line
    head = line.join([b"--b", b"Content-Type: application/json", b"", b"{}", b"--b", b"X: y", b"", b""])
    body = head + data + line + b"--b--" + line
    found = parts(f"multipart/related; boundary={quote}b{quote}", body)
    assert found == [({"content-type": "application/json"}, b"{}"), ({"x": "y"}, data)]


def test_a_resumable_upload_of_unknown_size_is_resumed_after_a_question(url, storage):
    """308 says what is stored; the session URL points to the host that was asked."""
    start = f"{url}/upload/storage/v1/b/data/o?uploadType=resumable&name=big"
    session = requests.post(start, json={"metadata": {"k": "v"}}, timeout=60).headers["location"]
    assert session.startswith(url)
    first = requests.put(session, data=b"abcd", headers={"Content-Range": "bytes 0-3/*"}, timeout=60)
    assert (first.status_code, first.headers["range"]) == (308, "bytes=0-3")
    asked = requests.put(session, headers={"Content-Range": "bytes */*"}, timeout=60)
    assert (asked.status_code, asked.headers["range"]) == (308, "bytes=0-3")
    last = requests.put(session, data=b"ef", headers={"Content-Range": "bytes 4-5/6"}, timeout=60)
    assert last.json()["size"] == "6"
    again = requests.put(session, headers={"Content-Range": "bytes */6"}, timeout=60)
    assert again.json()["generation"] == last.json()["generation"]
    assert storage.objects.read(storage.objects.get("data", "big")) == b"abcdef"


def test_chunks_may_be_posted_too(url, storage):
    """The gcsfs library sends its chunks by POST to the session URL."""
    start = f"{url}/upload/storage/v1/b/data/o?uploadType=resumable&name=big"
    session = requests.post(start, timeout=60).headers["location"]
    first = requests.post(session, data=b"abcd", headers={"Content-Range": "bytes 0-3/*"}, timeout=60)
    assert first.status_code == 308
    requests.post(session, data=b"ef", headers={"Content-Range": "bytes 4-5/6"}, timeout=60)
    assert storage.objects.read(storage.objects.get("data", "big")) == b"abcdef"


def test_a_move_leaves_only_the_new_name(ask, storage):
    """Same bytes and fields under the new name; a failed condition moves nothing."""
    assert ask("POST", f"{OBJECT}/moveTo/o/dir%2Fb?ifSourceGenerationMatch=1").status == 412
    assert [held.name for held in storage.objects.all()] == ["dir/a"]
    assert ask("POST", f"{OBJECT}/moveTo/o/dir%2Fb?ifGenerationMatch=0").status == 200
    (held,) = storage.objects.all()
    assert (held.name, held.fields) == ("dir/b", {"contentType": "text/plain"})
    assert storage.objects.read(held) == b"0123456789"


def test_a_cancelled_session_is_499_and_then_404(url):
    """Nothing of it is left."""
    start = f"{url}/upload/storage/v1/b/data/o?uploadType=resumable&name=big"
    session = requests.post(start, timeout=60).headers["location"]
    assert requests.delete(session, timeout=60).status_code == 499
    assert requests.put(session, data=b"x", timeout=60).status_code == 404


def test_an_upload_into_a_bucket_that_has_gone_is_404(ask, storage):
    """The session alone does not bring the bucket back."""
    start = ask("POST", "/upload/storage/v1/b/data/o?uploadType=resumable&name=big", {"host": "h"})
    storage.objects.delete("data", "dir/a", None, ANY)
    storage.buckets.delete("data", True, ANY)
    assert ask("PUT", start.headers["location"].removeprefix("http://h"), {}, b"x").status == 404
    assert storage.objects.all() == []


def test_a_chunked_body_outranks_its_content_length(url, storage):
    """TensorFlow sends both headers, and waits for 100-continue."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.putrequest("POST", "/upload/storage/v1/b/data/o?uploadType=media&name=tf")
    for key, value in [("Transfer-Encoding", "chunked"), ("Content-Length", "2"), ("Expect", "100-continue")]:
        connection.putheader(key, value)
    connection.endheaders(b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
    assert connection.getresponse().status == 200
    connection.close()
    assert storage.objects.read(storage.objects.get("data", "tf")) == b"hello!"


def test_names_with_odd_characters_travel_both_ways(url):
    """A trailing slash makes a folder marker; percent signs and spaces stay what they are."""
    for name in ["folder%2F", "a%2520b", "sp%20ace%3F%23", "%C3%A9%2Fx"]:
        upload = f"{url}/upload/storage/v1/b/data/o?uploadType=media&name={name}"
        assert requests.post(upload, data=name.encode(), timeout=60).status_code == 200
        got = requests.get(f"{url}/storage/v1/b/data/o/{name}?alt=media", timeout=60)
        assert got.content == name.encode()


def test_a_folder_marker_may_be_empty(url, storage):
    """A media upload of no bytes is an object of no bytes."""
    upload = f"{url}/upload/storage/v1/b/data/o?uploadType=media&name=dir%2F"
    assert requests.post(upload, timeout=60).json()["size"] == "0"
    assert storage.objects.get("data", "dir/").size == 0


def test_a_composition_may_take_its_sources_away(ask, storage):
    """With the same call, though they were written a moment ago; what becomes the object itself stays."""
    storage.objects._interval = 60.0
    for name in "ab":
        put(storage, name, name.encode() * 3)
    asked = {"sourceObjects": [{"name": "a"}, {"name": "b"}], "deleteSourceObjects": True}
    made = ask("POST", "/storage/v1/b/data/o/ab/compose", body=json.dumps(asked).encode())
    assert made.status == 200
    again = {"sourceObjects": [{"name": "ab"}, {"name": "dir/a"}], "deleteSourceObjects": True}
    storage.objects._interval = 0.0
    assert ask("POST", "/storage/v1/b/data/o/ab/compose", body=json.dumps(again).encode()).status == 200
    assert {one.name: storage.objects.read(one) for one in storage.objects.all()} == {
        "ab": b"aaabbb0123456789"
    }
