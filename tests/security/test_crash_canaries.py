"""
No secret is left anywhere by a command that is killed, or that meets a bug, nor by what comes after it.

Here a sample of the points is tried; `python -m tests.security.crash_canaries` tries all of them.
"""

import gzip
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from orchestrator.emulator.state.storage.stored import Preconditions
from tests.security.canary_cloud import CanaryCloud
from tests.security.crash_canaries import SCENARIOS, canary_lab, secrets
from tests.security.secret_kit import spellings

ROOT = Path(__file__).parents[2]
SAMPLE = ("secret set", "up, no capacity", "watch, preempted", "push", "down")


def test_the_sample_is_of_scenarios_that_there_are():
    """A renamed scenario would be left out."""
    assert set(SAMPLE) <= {scenario.name for scenario in SCENARIOS}


def test_a_sample_of_the_points_leaves_no_secret():
    """Forks are made by a process without threads, so the sample runs in one of its own."""
    words = [sys.executable, "-m", "tests.security.crash_canaries", "--every", "999", "--reads", "4"]
    done = subprocess.run([*words, *SAMPLE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(re.findall(r"^  (.+): ([\d,]+)$", done.stdout, re.MULTILINE))
    assert said["Secrets"] == "20"
    assert int(said["Killed"]) + int(said["Met a bug"]) == len(SAMPLE)
    assert int(said["Killed"]) >= 2
    assert int(said["Notices told"]) >= 10


@pytest.fixture
def places(tmp_path):
    """Give a cloud with a deployment, and by name what puts bytes into each kind of artefact."""
    with canary_lab(tmp_path, "127.0.0.1:9", "127.0.0.1:9", file=(("notify", {}),)) as (cloud, user):
        assert user.run("up").code == 0
        (bucket,) = cloud.buckets()

        def put(name, data):
            cloud.storage.objects.insert(bucket, name, data, {}, Preconditions())

        (node,) = cloud.model.kernel.state.nodes.values()
        (retained,) = user.state.glob("*/*/demo/journal.jsonl")
        yield (
            cloud,
            {
                "a file": retained.write_bytes,
                "an object": lambda data: put("logs/x", data),
                "a bundle": lambda data: put("bundles/x.tar.gz", packed(data)),
                "an object's fields": lambda data: put(f"logs/{data.decode()}", b""),
                "a label": lambda data: node.body["labels"].update(x=data.decode()),
                "a request": cloud.answer_to,
                "an output": cloud.said.append,
            },
        )


def packed(data):
    """Return an archive with one file of these bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return gzip.compress(out.getvalue())


def test_the_search_finds_every_spelling_in_every_place(places):
    """And nothing before something is there."""
    cloud, put = places
    assert cloud.found() == []
    for number, (where, into) in enumerate(put.items()):
        name = f"CANARY_{number}"
        for form in spellings(secrets()[name]):
            into(form)
            found = cloud.found()
            assert [secret for _, secret in found].count(name) >= 1, (where, form)
            if where == "an object's fields":  # objects of the forms before it are still there
                assert (f"fields of gs://logs/{form.decode()}", name) in found, form


def test_the_private_key_counts_as_a_secret(places):
    """It is made by `up`, so nobody knows it before."""
    cloud, put = places
    (key,) = cloud.folder.rglob("id_ed25519")
    put["an object"](key.read_bytes())
    assert any(name.startswith("key ") for _, name in cloud.found())


def test_what_is_sent_is_recorded_except_what_goes_to_secret_manager(places):
    """So the search sees each request of each command."""
    cloud, _ = places
    assert isinstance(cloud, CanaryCloud)
    sent = b"\n".join(cloud.sent)
    assert sent.count(b"startup-script") >= 2
    assert b"secret://CANARY_0" in sent
    assert b":addVersion" not in sent
