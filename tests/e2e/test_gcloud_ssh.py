"""The stock gcloud logs in to machines, in the environment that `tpuctl local env` gives and with nothing else."""

import json
import shutil
import subprocess

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.gcloud,
    pytest.mark.skipif(
        shutil.which("gcloud") is None or shutil.which("ssh") is None, reason="gcloud or ssh is not installed"
    ),
]
HERE = ("--zone", "us-central1-a", "--quiet")
IMAGE = ("--image-project", "debian-cloud", "--image-family", "debian-13")
SLICE = ("--accelerator-type", "v5litepod-16", "--version", "v2-alpha-tpuv5-lite")


def test_gcloud_reaches_every_worker_of_a_fresh_slice(lab, tmp_path):
    """The first login, files to all workers and back, and a VM: as gcloud's help writes the commands."""
    shown = lab.tpuctl("local", "env", "--json").out
    environment = {**lab.environment, **json.loads(shown)["variables"], "HOME": str(tmp_path / "home")}
    environment["CLOUDSDK_CONFIG"] = str(tmp_path / "config")
    note, copy = tmp_path / "note", tmp_path / "copy"
    (tmp_path / "home").mkdir()
    note.write_text("text\n")

    def gcloud(*words: str) -> str:
        # Not one that is imported already: it would look for keys in the home folder of the tests.
        done = subprocess.run(
            ["gcloud", *words, *HERE], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    tpu = ("compute", "tpus", "tpu-vm")
    gcloud(*tpu, "create", "t1", *SLICE)
    first = gcloud(*tpu, "ssh", "t1", "--command", "echo $TPUCTL_MACHINE")
    assert first.strip().endswith("-w0")
    gcloud(*tpu, "scp", str(note), "t1:note", "--worker", "all")
    said = gcloud(*tpu, "ssh", "t1", "--worker", "all", "--command", "cat note; echo $TPUCTL_MACHINE")
    assert sorted(line[-3:] for line in said.split()) == ["-w0", "-w1", "-w2", "-w3", *["ext"] * 4]
    gcloud(*tpu, "scp", "t1:note", str(copy), "--worker", "3")
    assert copy.read_text() == "text\n"
    gcloud("compute", "instances", "create", "v1", "--machine-type", "e2-small", *IMAGE)
    gcloud("compute", "scp", str(note), "v1:note")
    assert gcloud("compute", "ssh", "v1", "--command", "cat note") == "text\n"
