"""The stock gcloud against the local Cloud Storage, over HTTP."""

import os
import shutil

import pytest

from orchestrator.emulator.state.storage.blobs import FolderBlobs
from tests.conformance import warm_gcloud
from tests.emulator.http_fixture import serve
from tests.emulator.storage_kit import ANY, a_storage, put, routed

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="the stock gcloud is not installed"),
]
BIG = 40 * (1 << 20)


@pytest.fixture
def storage(tmp_path):
    """Return a storage in a folder."""
    return a_storage(FolderBlobs(tmp_path / "store"))


@pytest.fixture
def gcloud(storage, tmp_path):
    """Return a call of `gcloud storage` that fails unless gcloud succeeds."""
    with serve(routed(storage)) as url:
        settings = {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "p",
            "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        }

        def run(*words, **more):
            done = warm_gcloud.run(
                ["storage", *map(str, words)], {**os.environ, **settings, **more}, tmp_path
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


@pytest.fixture
def tree(tmp_path):
    """Write a small tree of files and return it."""
    files = {"a.txt": b"hi\n", "empty": b"", "sub/b c.bin": os.urandom(70_000), "sub/deep/ü": b"x"}
    for name, data in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


def stored(storage):
    """Return every object by name."""
    return {held.name: storage.objects.read(held) for held in storage.objects.all()}


def under(path):
    """Return every file below a folder by its relative name."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_bucket_is_made_described_listed_and_removed(gcloud, storage):
    """Made with a location; `rm -r` takes the objects and then the bucket."""
    gcloud("buckets", "create", "gs://fresh", "--location=europe-west4", "--uniform-bucket-level-access")
    assert gcloud("buckets", "describe", "gs://fresh", "--format=value(location)").strip() == "EUROPE-WEST4"
    storage.objects.insert("fresh", "a/b", b"x", {}, ANY)
    assert gcloud("ls").split() == ["gs://data/", "gs://fresh/"]
    gcloud("rm", "-r", "gs://fresh")
    assert [bucket.name for bucket in storage.buckets.list("p")] == ["data"]


def test_a_folder_travels_both_ways(gcloud, storage, tree, tmp_path):
    """`cp -r` up and down keeps every name and byte, empty files too."""
    gcloud("cp", "-r", "tree", "gs://data/")
    assert stored(storage) == {f"tree/{name}": data for name, data in tree.items()}
    (tmp_path / "back").mkdir()
    gcloud("cp", "-r", "gs://data/tree", "back")
    assert under(tmp_path / "back" / "tree") == tree


def test_rsync_brings_only_what_differs(gcloud, storage, tree, tmp_path):
    """An unchanged object keeps its generation; a removed file goes when that is asked for."""
    gcloud("rsync", "-r", "tree", "gs://data/t")
    before = {held.name: held.generation for held in storage.objects.all()}
    (tmp_path / "tree" / "a.txt").write_bytes(b"changed")
    (tmp_path / "tree" / "empty").unlink()
    gcloud("rsync", "-r", "--delete-unmatched-destination-objects", "tree", "gs://data/t")
    after = {held.name: held.generation for held in storage.objects.all()}
    assert set(before) - set(after) == {"t/empty"}
    assert {name for name in after if after[name] != before[name]} == {"t/a.txt"}
    gcloud("rsync", "-r", "gs://data/t", "back")
    assert under(tmp_path / "back") == under(tmp_path / "tree")


def test_objects_are_listed_printed_and_removed(gcloud, storage):
    """Use `ls` by folder and by wildcard, `cat`, and `rm -r` of one folder."""
    for name in ("top", "d/1", "d/2", "d/e/3"):
        put(storage, name, name.encode())
    assert gcloud("ls", "gs://data/").split() == ["gs://data/top", "gs://data/d/"]
    assert gcloud("ls", "gs://data/d/*").split() == [
        "gs://data/d/1",
        "gs://data/d/2",
        "gs://data/d/e/:",
        "gs://data/d/e/3",
    ]
    assert gcloud("cat", "gs://data/d/e/3") == "d/e/3"
    gcloud("rm", "-r", "gs://data/d")
    assert set(stored(storage)) == {"top"}


@pytest.mark.parametrize("composite", [False, True])
def test_a_large_file_travels_both_ways(gcloud, storage, tmp_path, composite):
    """Up in one session or as composed parts, copied inside the cloud, down in slices."""
    (tmp_path / "big").write_bytes(os.urandom(BIG))
    way = {
        "CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_ENABLED": str(composite),
        "CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_THRESHOLD": "10M",
        "CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_COMPONENT_SIZE": "10M",
    }
    gcloud("cp", "big", "gs://data/big", **way)
    assert set(stored(storage)) == {"big"}
    assert bool(storage.objects.get("data", "big").components) is composite
    gcloud("cp", "gs://data/big", "gs://data/copy")
    gcloud("cp", "gs://data/copy", "back")
    assert (tmp_path / "big").read_bytes() == (tmp_path / "back").read_bytes()


def test_a_condition_on_the_generation_holds(gcloud, storage):
    """`--if-generation-match=0` refuses to write over what is there."""
    put(storage, "lock", b"mine")
    put(storage, "other", b"yours")
    with pytest.raises(AssertionError, match="pre-conditions you specified did not hold"):
        gcloud("cp", "gs://data/other", "gs://data/lock", "--if-generation-match=0")
    assert stored(storage) == {"lock": b"mine", "other": b"yours"}
