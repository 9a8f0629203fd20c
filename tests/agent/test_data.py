"""The job's data on a machine: whole before the job starts, checked, kept, and shown where the code expects it."""

import hashlib
import json
import os
import shutil
import threading
import time
from collections import Counter

import pytest

from orchestrator.agent.attempt.data import PARALLEL
from orchestrator.contract.bucket.object_names import BUNDLES, DATA, DATA_LIST
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.state.storage.objects import Source
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.agent.agent_lab import BUCKET, TIMEOUT, TRAIN, AgentLab

LOOK = (
    "cat data/train.bin > seen && cat $TPUCTL_DATA_DIR/data/deep/b.bin >> seen && "
    "mkdir -p $TPUCTL_CHECKPOINT_DIR/1 && cp seen $TPUCTL_CHECKPOINT_DIR/1/seen && "
    "touch $TPUCTL_CHECKPOINT_DIR/1/COMPLETE"
)
HELD = {"train.bin": b"first ", "deep/b.bin": b"second"}


def put_data(lab: AgentLab, files=None, more=(), code=None, name="data") -> str:
    """Store files by their sha256 and a bundle that names them; return the bundle."""
    files = HELD if files is None else files
    held = []
    for place, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        lab.put(DATA + digest, data)
        held.append({"name": place, "size": len(data), "sha256": digest})
    sets = [{"name": name, "source": "", "files": held}, *more] if files else [*more]
    listed = json.dumps({"schema": 1, "sets": sets}).encode()
    return lab.put_bundle({"train.py": TRAIN.read_bytes(), DATA_LIST: listed, **(code or {})})


def is_of_data(request: Request) -> bool:
    """Return whether this is a download of data."""
    return request.method == "GET" and request.query.get("alt") == "media" and "data" in request.path


def count(lab: AgentLab) -> "Counter[str]":
    """Count downloads of data by name."""
    asked: Counter[str] = Counter()

    def look(request):
        if is_of_data(request):
            asked[request.path.rpartition("%2F")[2].rpartition("/")[2]] += 1

    lab.fault = look
    return asked


def observed(lab: AgentLab) -> bytes:
    """Return what the job of LOOK saved."""
    return lab.read(next(name for name in lab.names("checkpoints/") if name.endswith("/seen")))


def test_the_job_starts_with_all_data_in_its_place(lab: AgentLab) -> None:
    """In the source folder under the name of the set, and below TPUCTL_DATA_DIR; what the code has stays."""
    bundle = put_data(lab, code={"data/prepare.py": b"pass"})
    machine = lab.machine(BUNDLE=bundle, COMMAND=LOOK + " && test -f data/prepare.py").run_to_end()
    assert observed(lab) == b"first second"
    assert machine.heartbeat()["phase"] == "done"
    times = machine.heartbeat()["timings"]
    assert times["fetched"] <= times["data_began"] <= times["data_done"] <= times["spawned"]


def test_a_task_has_the_data_of_its_job(lab: AgentLab) -> None:
    """All tasks of a job of a fleet have the same, which lies below the job's prefix in the bucket."""
    bundle = put_data(lab)
    for name in [f"{BUNDLES}{bundle}.tar.gz", *lab.names(DATA)]:
        lab.put(f"jobs/s/{name}", lab.read(name))
    for name in lab.names(DATA):
        lab.put(name, b"of somebody else")
    task = {"PREFIX": "jobs/s/tasks/3/", "JOB_PREFIX": "jobs/s/", "TASK": "3"}
    machine = lab.machine("m/tasks/s", BUNDLE=bundle, COMMAND=LOOK, **task)
    assert machine.start(machine.command("task")).wait() == 0
    (name,) = [one for one in lab.names("jobs/s/tasks/3/checkpoints/") if one.endswith("/seen")]
    assert lab.read(name) == b"first second"


def test_setup_has_the_data_too(lab: AgentLab) -> None:
    """It may tokenize it."""
    bundle = put_data(lab)
    machine = lab.machine(BUNDLE=bundle, SETUP="test -s data/train.bin", COMMAND=LOOK).run_to_end()
    assert machine.heartbeat()["phase"] == "done"


def test_a_machine_keeps_its_data(lab: AgentLab) -> None:
    """A new incarnation on the same disk, and new code with one changed file, fetch what is missing only."""
    asked = count(lab)
    lab.machine(BUNDLE=put_data(lab), COMMAND=LOOK).run_to_end()
    assert sum(asked.values()) == 2
    changed = {**HELD, "train.bin": b"other "}
    (lab.folder / "m0" / "state" / "stop").unlink()
    lab.machine(BUNDLE=put_data(lab, changed), COMMAND=LOOK, INCARNATION=2).run_to_end()
    assert sum(asked.values()) == 3
    data = lab.folder / "m0" / "data" / "data"
    assert (data / "train.bin").read_bytes() == b"other "

    (data / "deep" / "b.bin").write_bytes(b"SECOND")
    (data / "of-the-job").touch()
    only = {"deep/b.bin": HELD["deep/b.bin"]}
    bundle = put_data(lab, only)
    (lab.folder / "m0" / "state" / "stop").unlink()
    lab.machine(BUNDLE=bundle, COMMAND="cat data/deep/b.bin >&2; exit 0", INCARNATION=3).start().wait()
    assert (data / "deep" / "b.bin").read_bytes() == b"second"
    assert sum(asked.values()) == 4
    assert (data / "of-the-job").exists()
    assert not (data / "train.bin").exists()


def test_data_that_is_not_what_it_was_fails_the_attempt(lab: AgentLab) -> None:
    """The job never sees it; the reason is reported, and the deployment ends as failed."""
    bundle = put_data(lab)
    lab.put(DATA + hashlib.sha256(HELD["train.bin"]).hexdigest(), b"evil12")
    machine = lab.machine(BUNDLE=bundle, COMMAND="touch $TPUCTL_ROOT/ran", FAILURES=2)
    machine.start().wait()
    assert machine.heartbeat()["phase"] == "failed"
    assert "is not what its checksum says" in machine.heartbeat()["message"]
    assert not (machine.root / "ran").exists()


def test_data_larger_than_the_disk_fails_at_once(lab: AgentLab) -> None:
    """A TPU that waits for it for ever costs money."""
    more = [
        {"name": "huge", "source": "", "files": [{"name": "x", "size": 1 << 60, "sha256": "0" * 64}]},
    ]
    machine = lab.machine(BUNDLE=put_data(lab, more=more), COMMAND="true", FAILURES=1)
    machine.start().wait()
    assert "the disk has room for" in machine.heartbeat()["message"]


def test_a_notice_during_the_data_is_obeyed_at_once_and_what_came_stays(lab: AgentLab) -> None:
    """A download that hangs holds nobody up."""
    hang = threading.Event()
    last = hashlib.sha256(HELD["deep/b.bin"]).hexdigest()

    def wait(request):
        if request.query.get("alt") == "media" and last in request.path:
            hang.wait(60)

    lab.fault = wait
    machine = lab.machine(BUNDLE=put_data(lab), COMMAND=LOOK).start()
    first = machine.root / "data" / "data" / "train.bin"
    machine.until(first.exists, "the first file")
    began = time.monotonic()
    lab.metadata.preempted.set()
    assert machine.wait() == 0
    assert time.monotonic() - began < 20
    hang.set()
    assert first.read_bytes() == b"first "


def test_killed_at_any_moment_it_goes_on(lab: AgentLab) -> None:
    """Ten kills while 60 files come: no half file has a final name, what came is not asked for again."""
    files = {f"f{n:02}": bytes([n]) * 50_000 for n in range(60)}
    asked = count(lab)
    look = lab.fault
    settled: dict[str, int] = {}
    machine = lab.machine(BUNDLE=put_data(lab, files), COMMAND="exit 0", FAILURES=100)
    for number in range(10):
        last, reached, killed = sum(asked.values()) + 1 + number, threading.Event(), threading.Event()

        def hold(request, last=last, reached=reached, killed=killed):
            look(request)
            # This download and those after it do not end; the ones before are written meanwhile.
            if is_of_data(request) and sum(asked.values()) >= last:
                reached.set()
                killed.wait(60)

        lab.fault = hold
        machine.start()
        assert reached.wait(TIMEOUT)
        machine.kill_all()
        lab.fault = look
        killed.set()
        for path in (machine.root / "data" / "data").glob("f*"):
            assert path.read_bytes() == files[path.name]
            digest = hashlib.sha256(files[path.name]).hexdigest()
            settled.setdefault(digest, asked[digest])
    machine.run_to_end()
    here = {p.name: p.read_bytes() for p in (machine.root / "data" / "data").glob("f*")}
    assert here == files
    assert settled
    assert {digest: asked[digest] for digest in settled} == settled
    assert sum(asked.values()) <= len(files) + 10 * PARALLEL


@pytest.mark.parametrize("source", ["gs://lab-bucket/others/c4", "gs://lab-bucket/others/c4/"])
def test_a_folder_of_a_bucket(lab: AgentLab, source: str) -> None:
    """Names below the folder stay; what only begins like it is another's, and its sums are compared."""
    for name, data in {"a": b"first ", "deep/b.bin": b"second", "deep/": b""}.items():
        lab.put(f"others/c4/{name}", data)
    lab.put("others/c4-more/x", b"other")
    more = [{"name": "data", "source": source, "files": []}]
    command = LOOK.replace("data/train.bin", "data/a")
    machine = lab.machine(BUNDLE=put_data(lab, {}, more), COMMAND=command).run_to_end()
    assert observed(lab) == b"first second"
    held = [
        str(p.relative_to(machine.root / "data")) for p in (machine.root / "data").rglob("*") if p.is_file()
    ]
    assert sorted(held) == ["data/a", "data/deep/b.bin"]


def test_a_bucket_that_is_not_there_fails_by_name(lab: AgentLab) -> None:
    """The reason names it."""
    more = [{"name": "c4", "source": "gs://no-such-bucket/c4", "files": []}]
    machine = lab.machine(BUNDLE=put_data(lab, {}, more), COMMAND="true", FAILURES=1)
    machine.start().wait()
    assert machine.heartbeat()["phase"] == "failed"
    assert "gs://no-such-bucket/c4" in machine.heartbeat()["message"]


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a//b", "."])
def test_a_list_that_leads_out_of_its_folder_is_refused(lab: AgentLab, name: str) -> None:
    """Nothing is written."""
    more = [{"name": "data", "source": "", "files": [{"name": name, "size": 1, "sha256": "0" * 64}]}]
    machine = lab.machine(BUNDLE=put_data(lab, {}, more), COMMAND="true", FAILURES=1)
    machine.start().wait()
    assert "not a path below a folder" in machine.heartbeat()["message"]
    assert not os.path.lexists(machine.root / "data" / "out")


@pytest.mark.gcloud
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="the stock gcloud is not installed")
def test_a_large_object_that_has_only_a_crc32c_comes_by_gcloud_which_compares_it(lab: AgentLab) -> None:
    """The standard library cannot compute that sum at any speed: only composed objects have no other."""
    half = os.urandom(17 << 20)
    for name in ("one", "two"):
        lab.put(f"others/{name}", half)
    sources = [Source(BUCKET, f"others/{name}") for name in ("one", "two")]
    lab.storage.objects.compose(sources, BUCKET, "c4/train.bin", {}, Preconditions())
    agents = set()

    def look(request):
        if request.query.get("alt") == "media" and "train.bin" in request.path:
            agents.add("gcloud" in request.headers.get("user-agent", ""))

    lab.fault = look
    more = [{"name": "data", "source": f"gs://{BUCKET}/c4", "files": []}]
    lab.machine(
        BUNDLE=put_data(lab, {}, more), COMMAND="sha256sum data/train.bin",
        _CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=f"{lab.url}/storage/v1/",
        _CLOUDSDK_AUTH_DISABLE_CREDENTIALS="true", _CLOUDSDK_CORE_DISABLE_USAGE_REPORTING="true",
    ).run_to_end()  # fmt: skip
    assert agents == {True}
    assert hashlib.sha256(2 * half).hexdigest() in lab.log()
