"""job.data through the public commands: to the bucket once, by content, whoever kills what."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.source.job_data import first_bucket
from orchestrator.app.source.local_data import missing, scan, send
from orchestrator.contract.bucket.object_names import DATA, RECORD
from orchestrator.errors import UsageError
from tests.cli.cli_kit import document, environment, here, tpuctl
from tests.cli.test_checkpoints import FILE, bucket
from tests.kit.waiting import until

__all__ = ["bucket"]
CONTENTS = {"train.bin": b"first" * 100, "deep/b.bin": b"second", "twin.bin": b"second"}


def digest(data):
    """Return the name of some bytes in the bucket."""
    return DATA + hashlib.sha256(data).hexdigest()


def local_cloud():
    """Return the variables by which a process finds this test's local cloud."""
    return {"TPUCTL_CLOUD": "local", **{k: v for k, v in os.environ.items() if k == "TPUCTL_LOCAL_DIR"}}


@pytest.fixture
def sets(tmp_path):
    """Make data with two files of one content; return what a scan finds, now and again."""
    for name, data in CONTENTS.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return lambda: scan({"data": "./data"}, tmp_path, tmp_path / "sums.json")


def held(store):
    """Return the names of data in the bucket."""
    return {one.name for one in store.list(DATA)}


def test_each_content_goes_up_once_and_a_change_alone(bucket, sets, tmp_path):
    """Unchanged data is not sent; of one changed file, that one is."""
    reported = []
    files = missing(bucket, sets())
    assert len(files) == 2
    send(bucket, files, reported.append)
    assert held(bucket) == {digest(data) for data in CONTENTS.values()}
    assert len(reported) == 2
    assert missing(bucket, sets()) == []

    (tmp_path / "data" / "train.bin").write_bytes(b"new")
    assert [file.relative for file in missing(bucket, sets())] == ["train.bin"]


def test_wrong_bytes_under_a_right_name_are_sent_again(bucket, sets):
    """A kill between an upload and the look at the file may leave it; a name alone proves nothing."""
    bucket.write(digest(CONTENTS["train.bin"]), b"torn")
    files = missing(bucket, sets())
    assert "train.bin" in {file.relative for file in files}
    send(bucket, files, lambda _: None)
    assert bucket.read(digest(CONTENTS["train.bin"])).data == CONTENTS["train.bin"]
    assert missing(bucket, sets()) == []


def test_up_killed_while_data_goes_up_is_repeated(bucket, tmp_path):
    """SIGKILL at five moments; then all is there, each content once, on the machine too."""
    (tmp_path / ".tpuctlignore").write_text("/cloud\n")
    (tmp_path / "data").mkdir()
    contents = [bytes([n]) * 300_000 for n in range(40)]
    for number, data in enumerate(contents):
        (tmp_path / "data" / f"f{number}").write_bytes(data)
    (tmp_path / "tpuctl.yaml").write_text(FILE.replace('"true"', '"sleep 600", data: {data: ./data}'))
    wanted = {digest(data) for data in contents}
    for number in range(5):
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "up"],
            cwd=tmp_path, env=environment(**local_cloud()), stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def sent(process=process, least=8 * number):
            return len(held(bucket) & wanted) >= least or process.poll() is not None

        until(sent, f"{8 * number} files in the bucket", 60, 0.01)
        process.kill()
        process.wait()
    done = tpuctl("up", cwd=tmp_path, **local_cloud())
    assert done.returncode == 0, done.stderr
    assert held(bucket) == wanted
    for data in contents:
        assert bucket.read(digest(data)).data == data
    root = next(Path(os.environ["TPUCTL_LOCAL_DIR"]).rglob("opt/tpuctl/data/data"))
    assert {path.read_bytes() for path in root.iterdir()} == set(contents)
    assert tpuctl("down", "--yes", cwd=tmp_path, **local_cloud()).returncode == 0


def test_the_bucket_for_data_is_made_under_a_lease_and_with_its_intent(bucket, tmp_path):
    """Data may take hours to send: another computer finds who does it, and a kill leaves a bucket that is known."""
    (tmp_path / "tpuctl.yaml").write_text(FILE.replace("name: mine", "name: first"))
    session = Session(Choice(None, (), "local"), Reporter())
    with session.holding_lease("up"):
        first_bucket(session)
        assert session.lease.token is not None
    lines = (session.folder / "journal.jsonl").read_text().splitlines()
    assert [(one["part"], one.get("kind")) for one in map(json.loads, lines)] == [
        ("intent", "bucket"),
        ("result", None),
    ]
    assert session.cloud.store.read(RECORD) is not None


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_file_that_changes_leaves_nothing_under_its_old_name(bucket, sets, tmp_path, monkeypatch, when):
    """Machines would refuse it for ever."""
    files = missing(bucket, sets())
    path = tmp_path / "data" / "train.bin"
    genuine = type(bucket).upload

    def upload(store, name, source):
        if source == path:
            path.write_bytes(b"changed meanwhile")
        return genuine(store, name, source)

    if when == "before":
        path.write_bytes(b"changed before")
    else:
        monkeypatch.setattr(type(bucket), "upload", upload)
    with pytest.raises(UsageError, match=r"train\.bin"):
        send(bucket, files, lambda _: None)
    assert digest(CONTENTS["train.bin"]) not in held(bucket)


def test_the_plan_tells_of_data_and_of_what_is_excluded(sets, capsys, tmp_path, monkeypatch):
    """Size, cost of keeping it, and each ignored file that job.data does not bring."""
    sets()
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gitignore").write_text("*.bin\n*.log\n")
    (tmp_path / "big.log").write_bytes(b"x" * 5000)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "tpuctl.yaml").write_text(
        "name: mine\ntpu: {type: v5litepod-4, zones: [europe-west4-b]}\n"
        'job: {command: "true", data: {data: ./data, c4: gs://other/c4}}\n'
    )
    code, out, _ = here(capsys, "plan", "--offline")
    assert code == 0
    flat = " ".join(out.split())
    assert "Data: data: 512 B in 3 files from ./data, 0.00 USD a month in the bucket" in flat
    assert "Data: c4: from gs://other/c4" in flat
    assert "Excluded: 1 file by patterns: big.log 5 kB (.gitignore line 2)." in flat
    assert "Code: 3 files" in flat
    assert "train.py 9 B" in flat
    found = document(here(capsys, "plan", "--offline", "--json")[1])
    assert found["data"][1] == {
        "name": "data",
        "source": "./data",
        "bytes": 512,
        "files_count": 3,
        "usd_month": 0.0,
    }
    assert [one["path"] for one in found["excluded"]] == ["big.log"]
    assert found["sent"]["files_count"] == 3


@pytest.mark.parametrize("source", ["gs://no-such-bucket/c4", "gs://OWN/empty"])
def test_a_source_with_nothing_in_it_is_refused_before_a_machine_is_asked_for(
    bucket, capsys, tmp_path, source
):
    """A slip costs no TPU that waits for its data."""
    name = bucket._name
    (tmp_path / ".tpuctlignore").write_text("/cloud\n")
    place = source.replace("OWN", name)
    (tmp_path / "tpuctl.yaml").write_text(FILE.replace('"true"', f'"true", data: {{c4: "{place}"}}'))
    code, _, err = here(capsys, "up")
    assert (code, "TPU-144" in err, place in " ".join(err.split())) == (2, True, True)
    assert "Creating TPU" not in err
    found = document(here(capsys, "doctor", "--json")[1])
    assert {c["rule"]: c["level"] for c in found["findings"]}["data"] == "stop"

    bucket.write("others/c4/a", b"a")
    (tmp_path / "tpuctl.yaml").write_text(
        FILE.replace('"true"', f'"sleep 600", data: {{c4: "gs://{name}/others/c4"}}')
    )
    code, _, err = here(capsys, "up")
    assert code == 0, err
    root = next(Path(os.environ["TPUCTL_LOCAL_DIR"]).rglob("opt/tpuctl/data/c4"))
    assert (root / "a").read_bytes() == b"a"
    assert here(capsys, "down", "--yes")[0] == 0
