"""The official Python client against the local Cloud Storage, over HTTP."""

import os
import threading

import pytest
import requests

from orchestrator.emulator.state.storage.blobs import FolderBlobs, MemoryBlobs
from tests.emulator.http_fixture import serve
from tests.emulator.storage_kit import a_storage, put, routed

MIB = 1 << 20


@pytest.fixture(params=["memory", "folder"])
def storage(request, tmp_path):
    """Return a storage over each backend."""
    return a_storage(MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path / "store"))


@pytest.fixture
def client(storage, monkeypatch):
    """Return the official client of a server for the storage."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.storage import Client

    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    with serve(routed(storage)) as url:
        yield Client("p", AnonymousCredentials(), client_options={"api_endpoint": url})


@pytest.fixture
def bucket(client):
    """Return the client's handle of the bucket."""
    return client.bucket("data")


def test_a_bucket_is_created_read_changed_and_deleted(client):
    """With the fields that tpuctl sets: location, labels, lifecycle, soft delete, access."""
    new = client.bucket("fresh")
    new.labels = {"tpuctl-deployment": "x"}
    new.iam_configuration.uniform_bucket_level_access_enabled = True
    new.iam_configuration.public_access_prevention = "enforced"
    new.soft_delete_policy.retention_duration_seconds = 0
    new.add_lifecycle_delete_rule(age=3)
    new.versioning_enabled = False
    client.create_bucket(new, location="europe-west4")

    read = client.get_bucket("fresh")
    assert read.location == "EUROPE-WEST4"
    assert read.location_type == "region"
    assert read.labels == {"tpuctl-deployment": "x"}
    assert read.iam_configuration.uniform_bucket_level_access_enabled
    assert read.iam_configuration.public_access_prevention == "enforced"
    assert read.soft_delete_policy.retention_duration_seconds == 0
    assert [dict(rule) for rule in read.lifecycle_rules] == [
        {"action": {"type": "Delete"}, "condition": {"age": 3}}
    ]
    assert (read.metageneration, read.storage_class) == (1, "STANDARD")

    read.labels = {"other": "y"}
    read.patch()
    assert client.get_bucket("fresh").labels == {"other": "y"}
    assert {b.name for b in client.list_buckets()} == {"data", "fresh"}
    read.delete()
    assert client.lookup_bucket("fresh") is None


def test_bucket_refusals_arrive_as_the_clients_own_errors(client, storage):
    """Conflict for taken names and full buckets, Forbidden for somebody else's."""
    from google.api_core import exceptions

    put(storage, "a")
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket("data")
    with pytest.raises(exceptions.Conflict, match="not available"):
        client.create_bucket("somebody-elses")
    with pytest.raises(exceptions.Forbidden):
        client.get_bucket("somebody-elses")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        client.bucket("data").delete()


def test_a_policy_is_read_modified_and_written_once(bucket):
    """A second writer that holds the old etag is refused."""
    from google.api_core.exceptions import PreconditionFailed

    mine, yours = (bucket.get_iam_policy(requested_policy_version=3) for _ in range(2))
    mine.bindings.append({"role": "roles/storage.objectAdmin", "members": {"serviceAccount:a@b"}})
    bucket.set_iam_policy(mine)
    with pytest.raises(PreconditionFailed):
        bucket.set_iam_policy(yours)
    (binding,) = bucket.get_iam_policy(requested_policy_version=3).bindings
    assert set(binding["members"]) == {"serviceAccount:a@b"}


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, 9 * MIB])
def test_an_upload_comes_back_whole(bucket, size):
    """Empty, small (multipart) and above 8 MiB (resumable), with checksums compared by the client."""
    data = os.urandom(size)
    blob = bucket.blob("dir/a ü%")
    blob.metadata = {"step": "7"}
    blob.upload_from_string(data, content_type="text/plain", if_generation_match=0)
    assert blob.size == size
    read = bucket.get_blob("dir/a ü%")
    assert (read.metadata, read.content_type) == ({"step": "7"}, "text/plain")
    assert (read.generation, read.metageneration) == (blob.generation, 1)
    assert (read.crc32c, read.md5_hash) == (blob.crc32c, blob.md5_hash)
    assert read.download_as_bytes(checksum="crc32c") == data
    assert bucket.blob("dir/a ü%").download_as_bytes(checksum="md5") == data


def test_a_resumable_upload_in_many_chunks(bucket):
    """Chunks of 256 KiB, and a stream of unknown size through open("wb")."""
    data = os.urandom(MIB + 7)
    blob = bucket.blob("chunks", chunk_size=256 * 1024)
    with blob.open("wb") as file:
        for start in range(0, len(data), 100_000):
            file.write(data[start : start + 100_000])
    with bucket.blob("chunks").open("rb", chunk_size=300_000) as file:
        assert file.read(10) == data[:10]
        file.seek(MIB)
        assert file.read() == data[MIB:]
    with bucket.blob("nothing").open("wb"):
        pass
    with bucket.blob("nothing").open("rb") as file:
        assert file.read() == b""


def test_a_range_is_read(bucket, storage):
    """The client's end is included."""
    put(storage, "a", b"0123456789")
    assert bucket.blob("a").download_as_bytes(start=2, end=4) == b"234"


def test_preconditions_are_the_clients_own_errors(bucket):
    """PreconditionFailed for a lost race, and the data of the winner stays."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    blob = bucket.blob("lock")
    blob.upload_from_string(b"me", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("lock").upload_from_string(b"you", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("lock").delete(if_generation_match=blob.generation + 1)
    blob.metadata = {"k": "v"}
    blob.patch(if_metageneration_match=1)
    with pytest.raises(PreconditionFailed):
        blob.patch(if_metageneration_match=1)
    assert bucket.blob("lock").download_as_bytes() == b"me"
    blob.delete(if_generation_match=blob.generation)
    assert not blob.exists()
    with pytest.raises(NotFound):
        blob.reload()


def test_only_one_of_many_creators_wins(bucket):
    """Eight threads create the same object at the same moment."""
    from google.api_core.exceptions import PreconditionFailed

    gate = threading.Barrier(8)
    won = []

    def create(number):
        gate.wait()
        try:
            bucket.blob("lease").upload_from_string(str(number), if_generation_match=0)
            won.append(number)
        except PreconditionFailed:
            pass

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in won] == [bucket.blob("lease").download_as_bytes()]


def test_compose_rewrite_and_copy(bucket):
    """A composed object has a component count and no MD5, and is read with its crc32c."""
    for name in "ab":
        bucket.blob(name).upload_from_string(name * 3)
    made = bucket.blob("ab")
    made.compose([bucket.blob("a"), bucket.blob("b")], if_generation_match=0)
    assert (made.component_count, made.md5_hash) == (2, None)
    assert made.download_as_bytes(checksum="crc32c") == b"aaabbb"
    token, rewritten, total = bucket.blob("copy").rewrite(made)
    assert (token, rewritten, total) == (None, 6, 6)
    bucket.copy_blob(made, bucket, "copy2", if_generation_match=0)
    assert bucket.blob("copy2").download_as_bytes() == b"aaabbb"
    renamed = bucket.rename_blob(bucket.blob("copy2"), "copy3")
    assert renamed.download_as_bytes() == b"aaabbb"
    assert not bucket.blob("copy2").exists()


def test_more_than_a_thousand_objects_are_listed_and_deleted_in_batches(client, bucket, storage):
    """Pages of a thousand, folders by delimiter, batches of up to a hundred."""
    for number in range(1203):
        put(storage, f"{number % 3}/{number:04}")
    assert len(list(client.list_blobs("data"))) == 1203
    assert len([page for page in client.list_blobs("data").pages if list(page)]) == 2
    folders = client.list_blobs("data", delimiter="/")
    assert list(folders) == []
    assert folders.prefixes == {"0/", "1/", "2/"}
    first = list(client.list_blobs("data", prefix="1/", max_results=100))
    with client.batch():
        for blob in first:
            blob.delete()
    assert len(list(client.list_blobs("data", prefix="1/"))) == 301


def test_a_batch_reports_what_is_missing(client, bucket, storage):
    """One missing object fails alone: the others are gone."""
    from google.api_core.exceptions import NotFound

    put(storage, "a")
    put(storage, "c")

    def delete_all():
        with client.batch():
            for name in "abc":
                bucket.blob(name).delete()

    with pytest.raises(NotFound):
        delete_all()
    assert list(client.list_blobs("data")) == []


def test_the_emulator_variable_is_enough(client, storage, monkeypatch):
    """STORAGE_EMULATOR_HOST alone leads API, uploads and downloads here, without credentials."""
    from google.cloud.storage import Client

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", client._connection.API_BASE_URL)
    blob = Client("p").bucket("data").blob("a")
    blob.upload_from_string(b"x" * (9 * MIB))
    assert len(blob.download_as_bytes()) == 9 * MIB


def test_a_large_object(bucket, tmp_path):
    """Up by chunks and down to a file, with the checksum compared."""
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(40 * MIB + 1))
    bucket.blob("big", chunk_size=8 * MIB).upload_from_filename(source)
    bucket.blob("big").download_to_filename(back)
    assert source.read_bytes() == back.read_bytes()


def test_an_upload_cut_in_the_middle_goes_on(bucket, storage, monkeypatch):
    """A chunk whose answer is lost is asked after and not stored twice."""
    real, cut = requests.Session.request, []

    def lossy(session, method, url, **values):
        answer = real(session, method, url, **values)
        if method.upper() == "PUT" and len(cut) < 1:
            cut.append(url)
            raise requests.exceptions.ConnectionError
        return answer

    monkeypatch.setattr(requests.Session, "request", lossy)
    data = os.urandom(9 * MIB)
    bucket.blob("a", chunk_size=MIB).upload_from_string(data, if_generation_match=0)
    assert cut
    assert storage.objects.read(storage.objects.get("data", "a")) == data
