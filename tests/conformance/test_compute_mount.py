"""The adapter that puts the local cloud into a client's session, with streams and binary bodies."""

import io

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from orchestrator.emulator.client import BASE, CloudAdapter
from orchestrator.emulator.http.storage_json import storage_routes
from tests.emulator.emulator_lab import a_lab
from tests.emulator.storage_kit import a_storage


@pytest.fixture
def bucket(monkeypatch):
    """Open a bucket of the official storage client, in-process."""
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    lab = a_lab()
    storage_routes(lab.router, a_storage())
    options = {"api_endpoint": BASE}
    client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=options)
    client._http.mount(BASE, CloudAdapter(lab.router, lab.cloud))
    return client.bucket("data")


@pytest.mark.parametrize("size", [0, 1000, 9 * 1024 * 1024])
def test_binary_data_survive_both_ways(bucket, size):
    """Small (multipart) and large (resumable) uploads come back byte for byte."""
    data = bytes(range(256)) * (size // 256)
    bucket.blob("x").upload_from_file(io.BytesIO(data), size=len(data))
    assert bucket.blob("x").download_as_bytes() == data


def test_a_lost_race_is_the_clients_exception(bucket):
    """412 arrives as PreconditionFailed."""
    bucket.blob("lock").upload_from_string("a", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_string("b", if_generation_match=0)
