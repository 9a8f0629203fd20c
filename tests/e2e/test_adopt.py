"""A TPU that the stock gcloud has made becomes the deployment's own, with real machines and real SSH."""

import json
import shutil
import subprocess

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]
HERE = ("--zone", "europe-west4-b", "--quiet")
SHAPE = (
    "--accelerator-type",
    "v5litepod-8",
    "--version",
    "v2-alpha-tpuv5-lite",
    "--spot",
    "--labels",
    "owner=me",
)


class Gcloud:
    """The stock gcloud, speaking of one kind of machine."""

    def __init__(self, lab, folder, *words):
        shown = lab.tpuctl("local", "env", "--json").out
        self._environment = {
            **lab.environment,
            **json.loads(shown)["variables"],
            "HOME": str(folder / "home"),
        }
        self._environment["CLOUDSDK_CONFIG"] = str(folder / "config")
        self._words = words
        (folder / "home").mkdir()

    def __call__(self, verb, name, *words):
        """Run it, and return what it prints."""
        done = subprocess.run(
            ["gcloud", *self._words, verb, name, *HERE, *words],
            env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_tpu_made_by_gcloud_is_adopted_trains_and_is_given_back(lab, tmp_path):
    """Its job resumes on the successor; a second one is given back with its label and without a job."""
    lab.use_example(steps=150)
    tpu = Gcloud(lab, tmp_path, "compute", "tpus", "tpu-vm")
    tpu("create", "first", *SHAPE)
    lab.tpuctl("adopt", "first", "--yes")
    lab.wait_for("step 7", lambda: lab.at(7))
    watch = lab.start("watch")
    lab.tpuctl("local", "preempt", "first")
    lab.wait_for("incarnation 2", lambda: lab.at(8, incarnation=2))
    lab.wait_for("its log", lambda: "resume from step" in lab.logs(2))
    lab.hurry()
    lab.end(watch)
    lab.tpuctl("down", "--yes", "--delete-data")

    (lab.folder / "fast").unlink()
    lab.tpuctl("local", "start")
    tpu("create", "second", *SHAPE)
    lab.tpuctl("adopt", "second", "--yes")
    lab.wait_for("the job", lab.jobs)
    assert "is given back" in lab.tpuctl("down", "--yes").err
    assert lab.jobs() == {}
    assert tpu("describe", "second", "--format", "value(labels)").strip() == "owner=me"
    tpu("delete", "second")


def test_a_vm_made_by_gcloud_runs_the_job_and_is_given_back(lab, tmp_path):
    """It is reached and prepared over real SSH; afterwards no label, key, cron job or process of ours is on it."""
    vm = "{name: theirs, machine_type: e2-medium, disk_gb: 20}"
    lab.write(tpu="v5litepod-4", vm=vm, run_on="vm", command="exec sleep 600")
    instances = Gcloud(lab, tmp_path, "compute", "instances")
    instances(
        "create", "theirs", "--machine-type", "e2-medium", "--boot-disk-size", "20GB", "--labels", "owner=me",
        "--image-family", "ubuntu-2404-lts-amd64", "--image-project", "ubuntu-os-cloud",
        "--scopes", "storage-rw", "--metadata", "enable-guest-attributes=TRUE",
    )  # fmt: skip
    lab.tpuctl("adopt", "--vm", "theirs", "--yes")
    lab.tpuctl("up")
    lab.wait_for("the job", lambda: lab.jobs(b"sleep"))
    look = ("ssh", "--vm", "--home", "--", "sh", "-c", 'ls "$TPUCTL_CRON_DIR" "$TPUCTL_ROOT"')
    assert {"tpuctl", "agent.pyz"} <= set(lab.tpuctl(*look).out.split())
    (disk,) = lab.cloud.glob("machines/vm-*")
    assert "VM theirs is given back" in lab.tpuctl("down", "--yes").err
    assert (lab.jobs(b"sleep"), lab.agents()) == ({}, [])
    assert list((disk / "etc/cron.d").iterdir()) == []
    assert [path.name.rpartition("-")[0] for path in (disk / "opt").iterdir()] == ["tpuctl.given-back"]
    shown = instances("describe", "theirs", "--format", "value(labels,metadata.items)")
    assert "owner=me" in shown
    assert "tpuctl" not in shown
    instances("delete", "theirs")
