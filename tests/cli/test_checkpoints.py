"""tpuctl checkpoints, against a real bucket of the local cloud."""

import hashlib
import json
import os
from dataclasses import replace

import pytest

from orchestrator.app.checkpoints import CheckpointListing, Row
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.cli.views.checkpoints import show
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.plan import Outcome
from tests.cli.cli_kit import document, here

FILE = """\
name: mine
project: local-project
tpu: {type: v5litepod-4, zones: [europe-west4-b]}
vm: none
job: {command: "true"}
"""


@pytest.fixture
def bucket(tmp_path, monkeypatch, capsys):
    """Give a deployment with two complete checkpoints and a torn one; return its store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    (tmp_path / "tpuctl.yaml").write_text(FILE)
    assert here(capsys, "local", "start", "--latency", "instant")[0] == 0
    session = Session(Choice(None, (), "local"), Reporter())
    session.cloud.buckets.create(session.blueprint.new_bucket())
    store = session.cloud.store
    for step in (10, 20, 30):
        data = b"w" * 4000
        store.write(file_name(step, 1, 0, "weights"), data)
        if step < 30:
            file = StoredFile("weights", len(data), hashlib.sha256(data).hexdigest())
            manifest = Manifest(step, 1, 0, 1, 1, f"step-{step}", (file,), 1.0)
            store.write(manifest_name(step, 1, 0), manifest.text().encode())
    yield store
    assert here(capsys, "local", "reset")[0] == 0


def test_the_list_names_the_one_to_resume_and_verify_finds_torn_bytes(bucket, capsys):
    """Newest first, in 80 columns; a byte that changed makes status 1 and another choice."""
    code, out, _ = here(capsys, "checkpoints")
    head, *lines = out.splitlines()
    assert code == 0
    assert head.split() == ["step", "TPU", "workers", "size", "commit", "age", "state"]
    assert [line.split()[0] for line in lines] == ["30", "20", "10"]
    assert lines[0].endswith("not used: no manifest: the upload did not end")
    assert lines[1].endswith("complete, resumes here")
    assert "4 kB" in lines[1]

    bucket.write(file_name(20, 1, 0, "weights"), b"x" * 4000)
    code, out, err = here(capsys, "checkpoints", "--verify", "--json")
    rows = document(out)["checkpoints"]
    assert code == 1
    assert [(row["step"], row["verified"], row["resumes"]) for row in rows] == [
        (30, None, False), (20, False, False), (10, True, True)
    ]  # fmt: skip
    name = "checkpoints/00000020/g1/w0/weights"
    assert rows[1]["damage"] == [f"{name} has another sha256 than its manifest says"]
    assert "2 of 2: reading step 10, 4 kB" in err
    assert "objects" not in json.dumps(rows)


def test_of_a_job_that_is_done_nothing_resumes(bucket, capsys):
    """What would be resumed from is the model then."""
    session = Session(Choice(None, (), "local"), Reporter())
    session.records.load()
    with session.holding_lease("up"):
        session.records.update(lambda record: replace(record, outcome=Outcome.DONE))
    _, out, _ = here(capsys, "checkpoints")
    assert [line.split("  ")[-1] for line in out.splitlines()[2:]] == ["complete, the model", "complete"]


def test_no_checkpoint_is_said(tmp_path, monkeypatch, capsys):
    """Before `up` there is no bucket: that is no error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    (tmp_path / "tpuctl.yaml").write_text(FILE)
    assert here(capsys, "local", "start", "--latency", "instant")[0] == 0
    code, out, err = here(capsys, "checkpoints")
    assert here(capsys, "local", "reset")[0] == 0
    assert (code, out) == (0, "")
    assert "no checkpoint yet" in err


def test_the_list_fits_eighty_columns_whatever_the_age(capsys):
    """Saves of a day ago, in the format with the longest name, one of them verified."""
    found = [
        BucketCheckpoint(step, 12, 64, 9_990_000_000, 3600.0, True, "", format="accelerate")
        for step in (1_000_000, 999_000)
    ]
    rows = tuple(Row(one, resumes=one is found[0], verified=None, damage=()) for one in found)
    show(CheckpointListing("mine", rows, (), 3600.0 + 47 * 3600 + 59 * 60), as_json=False)
    head, *lines = capsys.readouterr().out.splitlines()
    assert "47 h 59 min" in lines[0]
    assert max(map(len, (head, *lines))) <= 80
    assert all(line.index("accelerate") == head.index("format") for line in lines)


RETENTION = "are kept (job.checkpoint.keep); each save deletes older ones."
TWICE = "Several TPUs have saved step 450: it counts once."
GAPS = "Saves that come faster than the upload are skipped."


@pytest.mark.parametrize(
    ("keep", "steps", "said"),
    [
        (2, (450, 300), f"The checkpoints of the newest 2 steps {RETENTION} {GAPS}\n"),
        (3, (450, 300), ""),
        (0, (450, 300), ""),
        (3, (450, 450, 300), ""),
        (2, (450, 450, 300), f"The checkpoints of the newest 2 steps {RETENTION} {TWICE} {GAPS}\n"),
    ],
)
def test_a_list_with_gaps_says_how_many_steps_stay(keep, steps, said, capsys):
    """Who sees 450, 400 and 300 asks what has become of the others; two TPUs may have saved the same step."""
    found = [BucketCheckpoint(step, number, 1, 4000, 0.0, True, "") for number, step in enumerate(steps)]
    rows = tuple(Row(one, resumes=False, verified=None, damage=()) for one in found)
    show(CheckpointListing("mine", rows, (), 60.0, keep=keep), as_json=False)
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (1 + len(steps), said)


@pytest.mark.parametrize(
    ("steps", "done", "said"),
    [
        ((450, 400, 300), False, "The next save deletes step 300."),
        ((450, 400, 300, 200), False, "The next save deletes the 2 oldest."),
        ((450, 400, 300), True, "The job ended before a save deleted step 300."),
        ((450, 400, 400), False, ""),
    ],
)
def test_a_list_that_has_more_steps_than_stay_says_why(steps, done, said, capsys):
    """After the last save before a push nothing is deleted: the machine has to stop in time."""
    found = [BucketCheckpoint(step, number, 1, 4000, 0.0, True, "") for number, step in enumerate(steps)]
    rows = tuple(Row(one, resumes=False, verified=None, damage=()) for one in found)
    show(CheckpointListing("mine", rows, (), 60.0, keep=2, done=done), as_json=False)
    err = capsys.readouterr().err
    assert (f"{RETENTION} {said} " in err) if said else "deletes s" not in err


def test_a_date_is_not_broken_at_the_edge_of_a_terminal(capfd, monkeypatch):
    """A terminal breaks a line where it is full."""
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    why = "`tpuctl down --delete-data` deleted the data of mine on 2027-01-15"
    for more in range(12):
        show(
            CheckpointListing("mine", (), (), 60.0, deleted=why.replace("mine", "m" * (4 + more))),
            as_json=False,
        )
        err = capfd.readouterr().err
        assert any("2027-01-15" in err[at : at + 80] for at in range(0, len(err), 80)), err
