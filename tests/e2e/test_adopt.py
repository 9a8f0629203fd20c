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


def test_a_tpu_made_by_gcloud_is_adopted_trains_and_is_given_back(stage, tmp_path):
    """Its job resumes on the successor; a second one is given back with its label and without a job."""
    stage.use_example(steps=150)
    shown = stage.tpuctl("local", "env", "--json").out
    environment = {**stage.environment, **json.loads(shown)["variables"], "HOME": str(tmp_path / "home")}
    environment["CLOUDSDK_CONFIG"] = str(tmp_path / "config")
    (tmp_path / "home").mkdir()

    def tpu(verb, name, *words):
        done = subprocess.run(
            ["gcloud", "compute", "tpus", "tpu-vm", verb, name, *HERE, *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    tpu("create", "first", *SHAPE)
    stage.tpuctl("adopt", "first", "--yes")
    stage.wait_for("step 7", lambda: stage.at(7))
    watch = stage.start("watch")
    stage.tpuctl("local", "preempt", "first")
    stage.wait_for("incarnation 2", lambda: stage.at(8, incarnation=2))
    assert "resume from step" in stage.logs(2)
    stage.hurry()
    stage.end(watch)
    stage.tpuctl("down", "--yes", "--delete-data")

    (stage.folder / "fast").unlink()
    stage.tpuctl("local", "start")
    tpu("create", "second", *SHAPE)
    stage.tpuctl("adopt", "second", "--yes")
    stage.wait_for("the job", stage.jobs)
    assert "is yours again" in stage.tpuctl("down", "--yes").err
    assert stage.jobs() == {}
    assert tpu("describe", "second", "--format", "value(labels)").strip() == "owner=me"
    tpu("delete", "second")
