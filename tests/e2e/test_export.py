"""The exported scripts, run as they stand with the stock gcloud: to a trained model, through a preemption."""

import json
import re
import shutil
import subprocess

import pytest

from tests.e2e.process_lab import losses

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]
STEPS = 60


def test_the_scripts_alone_train_a_model_through_a_preemption(lab, tmp_path):
    """Bucket, code, VM, TPU, a kill, a new TPU by watch.sh, the end, the model; then nothing is left."""
    lab.use_example(steps=STEPS, setup="tpuctl-venv -r requirements.txt")
    yaml = lab.work / "tpuctl.yaml"
    yaml.write_text(yaml.read_text().replace("vm: none", "vm: {machine_type: e2-small}"))
    lab.tpuctl("export", "scripts")
    shown = lab.tpuctl("local", "env", "--json").out
    environment = {**lab.environment, **json.loads(shown)["variables"], "HOME": str(tmp_path / "home")}
    environment["CLOUDSDK_CONFIG"] = str(tmp_path / "config")
    (tmp_path / "home").mkdir()

    def script(name, *words, say=""):
        done = subprocess.run(
            [f"./{name}.sh", *words], cwd=lab.work / "scripts", env=environment, input=say,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def gcloud(line):
        found = subprocess.run(
            ["bash", "-c", f". ./settings.sh; gcloud storage {line}"],
            cwd=lab.work / "scripts", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return found.stdout

    def job_log():
        return gcloud('cat "gs://$BUCKET/logs/**"')

    # Each twice: every script may be run again.
    for name in ("create-bucket", "push", "create-vm", "create-tpu"):
        script(name)
    assert "already" in script("create-tpu")
    assert "already" in script("create-vm")
    # Cron copies each minute.
    lab.wait_for("a copied log", lambda: losses(job_log()), seconds=240)
    # The first copy may find steps in the log and no finished save yet, from which nothing could resume.
    lab.wait_for(
        "a copied save", lambda: "COMPLETE" in gcloud('ls "gs://$BUCKET/checkpoints/**"'), seconds=180
    )
    held = lab.hold()
    assert "READY" in script("watch")
    lab.tpuctl("local", "preempt", "e2e-scripts-tpu", "--no-notice")
    lab.let_go()
    lab.wait_for("the preemption", lambda: "READY" not in script("status"), seconds=60)
    assert "is made" in script("watch")
    lab.hurry()
    lab.wait_for("the end", lambda: "the job is done" in script("watch"), seconds=300)
    log = job_log()
    (resumed,) = re.findall(r"resumed from step (\d+)", log)
    assert 0 < int(resumed) <= held
    # What the first machine printed after the last copy of its log is lost; what counts is trained once more.
    assert set(range(int(resumed) + 1, STEPS + 1)) <= set(losses(log))
    script("fetch", "../model")
    complete = {int(path.parent.name.rpartition("-")[2]) for path in (lab.work / "model").rglob("COMPLETE")}
    assert max(complete) == STEPS
    assert "there is none" in script("delete", "--data", say="e2e-scripts\n")
    assert "gone" in script("delete", "--data", say="e2e-scripts\n"), (
        "a second time, after a first that was killed"
    )
    lists = (
        "compute tpus tpu-vm list --zone europe-west4-b",
        "compute instances list",
        "storage buckets list",
    )
    remaining = subprocess.run(
        ["bash", "-c", "; ".join(f"gcloud {one}" for one in lists)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "scripts" not in remaining.stdout
