"""The XML API, as Rust's object_store and Google's multipart uploads speak it."""

from xml.etree import ElementTree as ET

import pytest

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_json import route
from orchestrator.emulator.state.storage.service import Storage
from tests.emulator.storage_kit import a_storage, put, routed


class XmlClient:
    """Speak the XML API to a storage with the bucket `data`."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self._router = storage, routed(storage)

    def send(self, verb: str, target: str, body: bytes = b"", **headers: str) -> Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return route(self._router, Request.parse(verb, target, names, body))

    def found(self, answer: Response, name: str) -> list[str]:
        return [one.text or "" for one in ET.fromstring(answer.body).iter() if one.tag.endswith(name)]  # noqa: S314


@pytest.fixture
def bucket() -> XmlClient:
    """Return the bucket."""
    return XmlClient(a_storage())


def test_an_object_is_put_read_and_deleted(bucket):
    """PUT, GET, a range, HEAD, DELETE; its metadata travels in headers."""
    made = bucket.send("PUT", "/data/a%20b", b"hello", Content_Type="text/x", x_goog_meta_k="v")
    assert made.status == 200
    read = bucket.send("GET", "/data/a%20b")
    assert (read.body, read.headers["content-type"], read.headers["x-goog-meta-k"]) == (
        b"hello",
        "text/x",
        "v",
    )
    assert read.headers["etag"] == made.headers["etag"]
    assert bucket.send("GET", "/data/a%20b", Range="bytes=1-2").body == b"el"
    head = bucket.send("HEAD", "/data/a%20b")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "5")
    assert bucket.storage.objects.get("data", "a b").fields["contentType"] == "text/x"
    assert bucket.send("DELETE", "/data/a%20b").status == 204
    gone = bucket.send("GET", "/data/a%20b")
    assert (gone.status, bucket.found(gone, "Code")) == (404, ["NoSuchKey"])
    assert bucket.found(bucket.send("GET", "/none"), "Code") == ["NoSuchBucket"]


def test_conditions_in_headers_hold(bucket):
    """Whoever must be the first writes with generation 0."""
    first = bucket.send("PUT", "/data/a", b"1", x_goog_if_generation_match="0")
    refused = bucket.send("PUT", "/data/a", b"2", x_goog_if_generation_match="0")
    assert (first.status, refused.status, bucket.found(refused, "Code")) == (200, 412, ["PreconditionFailed"])
    right = first.headers["x-goog-generation"]
    assert bucket.send("PUT", "/data/a", b"3", x_goog_if_generation_match=right).status == 200
    tag = bucket.send("HEAD", "/data/a").headers["etag"]
    assert bucket.send("GET", "/data/a", If_None_Match=tag).status == 304


def test_a_list_comes_in_pages_with_folders(bucket):
    """Both forms of the list: by continuation token, and from a name on."""
    for name in ("a/1", "a/2", "b", "c & d"):
        put(bucket.storage, name)
    top = bucket.send("GET", "/data?list-type=2&delimiter=/")
    assert bucket.found(top, "Key") == ["b", "c & d"]
    assert bucket.found(top, "Prefix") == ["a/"] or "a/" in bucket.found(top, "Prefix")
    names, token = [], ""
    while True:
        page = bucket.send("GET", f"/data/?list-type=2&max-keys=1&continuation-token={token}")
        names += bucket.found(page, "Key")
        if bucket.found(page, "IsTruncated") == ["false"]:
            break
        (token,) = bucket.found(page, "NextContinuationToken")
    assert names == ["a/1", "a/2", "b", "c & d"]
    assert bucket.found(bucket.send("GET", "/data?start-after=a/2"), "Key") == ["b", "c & d"]


def test_an_upload_in_parts(bucket):
    """Parts come in any order and more than once; the list of the end decides."""
    begun = bucket.send("POST", "/data/big?uploads", Content_Type="text/x")
    (upload,) = bucket.found(begun, "UploadId")
    for part, data in ((2, b"two"), (1, b"wrong"), (1, b"one"), (3, b"left out")):
        assert bucket.send("PUT", f"/data/big?partNumber={part}&uploadId={upload}", data).status == 200
    parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>x</ETag></Part>" for n in (1, 2))
    listed = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    done = bucket.send("POST", f"/data/big?uploadId={upload}", listed)
    assert (done.status, bucket.found(done, "Key")) == (200, ["big"])
    assert bucket.send("GET", "/data/big").body == b"onetwo"
    assert len(list(bucket.storage.uploads._blobs.blobs())) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "InvalidArgument"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "InvalidArgument"),
        (b"<C><PartNumber>2</PartNumber><PartNumber>1</PartNumber></C>", "InvalidPartOrder"),
        (b"<C><Part><PartNumber>7</PartNumber></Part></C>", "InvalidPart"),
    ],
)  # fmt: skip
def test_a_list_of_parts_that_makes_no_sense_is_refused(bucket, body, code):
    """Nothing is made, and the upload can still be ended or cancelled."""
    (upload,) = bucket.found(bucket.send("POST", "/data/big?uploads"), "UploadId")
    bucket.send("PUT", f"/data/big?partNumber=1&uploadId={upload}", b"1")
    refused = bucket.send("POST", f"/data/big?uploadId={upload}", body)
    assert (refused.status, bucket.found(refused, "Code")) == (400, [code])
    assert bucket.send("DELETE", f"/data/big?uploadId={upload}").status == 204
    assert list(bucket.storage.uploads._blobs.blobs()) == []


def test_an_object_is_copied(bucket):
    """The source stands in a header."""
    put(bucket.storage, "a", b"text")
    assert bucket.send("PUT", "/data/b", x_goog_copy_source="/data/a").status == 200
    assert bucket.send("GET", "/data/b").body == b"text"
