"""Clients of Cloud Storage and of the metadata server on a machine, with no endpoint named."""

import os
import subprocess
import sys

BUCKET = sys.argv[1]


def curl():
    url = "http://metadata.google.internal/computeMetadata/v1/project/project-id"
    command = ["curl", "-sf", "-H", "Metadata-Flavor: Google", url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == "local-project"


def google_auth():
    import google.auth
    import google.auth.transport.requests

    found, project = google.auth.default()
    found.refresh(google.auth.transport.requests.Request())
    return bool(found.token) and project == "local-project"


def pyarrow():
    from pyarrow import fs

    there = fs.GcsFileSystem()
    with there.open_output_stream(f"{BUCKET}/arrow") as file:
        file.write(b"a" * 5000)
    return len(there.open_input_stream(f"{BUCKET}/arrow").read()) == 5000


def obstore():
    import obstore
    import obstore.store

    store, big = obstore.store.GCSStore(BUCKET), os.urandom(12 << 20)
    obstore.put(store, "rust/big", big, use_multipart=True, chunk_size=5 << 20)
    obstore.copy(store, "rust/big", "rust/copy")
    obstore.delete(store, "rust/big")
    names = [one["path"] for page in obstore.list(store, "rust/") for one in page]
    return names == ["rust/copy"] and bytes(obstore.get(store, "rust/copy").bytes()) == big


def gcsfs():
    import gcsfs

    files = gcsfs.GCSFileSystem()
    files.pipe(f"{BUCKET}/fs/a", b"text")
    return files.cat(f"{BUCKET}/fs/a") == b"text" and files.ls(f"{BUCKET}/fs") == [f"{BUCKET}/fs/a"]


def tensorstore():
    import tensorstore

    spec = {"driver": "zarr", "kvstore": f"gs://{BUCKET}/zarr/"}
    array = tensorstore.open(spec, create=True, dtype=tensorstore.int32, shape=[4]).result()
    array[...] = 7
    return int(array[1].read().result()) == 7


def google_cloud_storage():
    from google.cloud import storage

    blob = storage.Client().bucket(BUCKET).blob("official")
    blob.upload_from_string(b"text")
    return blob.download_as_bytes() == b"text"


def orbax():
    import jax.numpy
    import orbax.checkpoint

    with orbax.checkpoint.CheckpointManager(f"gs://{BUCKET}/orbax") as manager:
        manager.save(1, args=orbax.checkpoint.args.StandardSave({"a": jax.numpy.ones(3)}))
        manager.wait_until_finished()
        return manager.latest_step() == 1


def multiprocessing_manager():
    import multiprocessing

    with multiprocessing.Manager() as manager:
        return list(manager.list([1])) == [1]


if __name__ == "__main__":
    for case in (
        curl, google_auth, pyarrow, obstore, gcsfs, tensorstore, google_cloud_storage, orbax,
        multiprocessing_manager,
    ):  # fmt: skip
        try:
            print("ok" if case() else "FAIL", case.__name__, flush=True)
        except ImportError as error:
            print("skip", case.__name__, error, flush=True)
        except Exception as error:
            print("FAIL", case.__name__, repr(error)[:300], flush=True)
