"""
One transfer by one client, as a process: python clients.py CLIENT up|down URL BUCKET NAME FILE.

It is run by the Python of the environment that has the client, so nothing is imported before it is used.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PART = 32 << 20


def ours(way: str, url: str, bucket: str, name: str, file: Path) -> None:
    """Move it as the agent does, checksums and sync included."""
    from orchestrator.agent.cloud.metadata import Metadata
    from orchestrator.agent.cloud.storage import JobBucket

    held = JobBucket.from_environ(bucket, {"STORAGE_EMULATOR_HOST": url}, Metadata("127.0.0.1:1"))
    if way == "up":
        held.upload(name, file, file.stat().st_size)
    else:
        held.download(name, file, int((held.stat(name) or {"size": 0})["size"]))


def transfer_manager(way: str, url: str, bucket: str, name: str, file: Path) -> None:
    """Move it by google-cloud-storage, in parts, with threads: its processes would be started anew each time."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    from google.cloud.storage.transfer_manager import download_chunks_concurrently, upload_chunks_concurrently

    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": url})
    blob = client.bucket(bucket).blob(name)
    options = {"chunk_size": PART, "worker_type": "thread", "max_workers": 4}
    if way == "up":
        upload_chunks_concurrently(str(file), blob, **options)
    else:
        download_chunks_concurrently(blob, str(file), **options)


def tensorstore(way: str, url: str, bucket: str, name: str, file: Path) -> None:
    """Move it as keys of one part each, as its formats do with arrays."""
    os.environ["TENSORSTORE_GCS_HTTP_URL"] = url
    import tensorstore as ts

    store = ts.KvStore.open(f"gs://{bucket}/{name}/").result()
    if way == "up":
        with file.open("rb") as source:
            writes = [
                store.write(f"{n:06d}", part) for n, part in enumerate(iter(lambda: source.read(PART), b""))
            ]
        for one in writes:
            one.result()
        return
    reads = [store.read(key) for key in sorted(store.list().result())]
    with file.open("wb") as target:
        for one in reads:
            target.write(one.result().value)


def obstore(way: str, url: str, bucket: str, name: str, file: Path) -> None:
    """Move it by Rust's object_store: a multipart upload, ranges in threads."""
    import obstore as obs
    from obstore.store import GCSStore

    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = json.dumps({**nobody, "gcs_base_url": url, "disable_oauth": True})
    store = GCSStore(bucket, service_account_key=key, client_options={"allow_http": True})
    if way == "up":
        obs.put(store, name, file, use_multipart=True, chunk_size=PART)
        return
    size = obs.head(store, name)["size"]
    with file.open("wb") as target, ThreadPoolExecutor(4) as pool:

        def download(start: int) -> None:
            data = obs.get_range(store, name, start=start, end=min(start + PART, size))
            os.pwrite(target.fileno(), data, start)

        list(pool.map(download, range(0, size, PART)))


if __name__ == "__main__":
    client, direction, address, place, key, path = sys.argv[1:]
    globals()[client](direction, address, place, key, Path(path))
