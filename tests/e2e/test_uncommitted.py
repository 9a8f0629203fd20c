"""A model that no format recognises is never lost: the job's saves go to the bucket before its TPU goes."""

import json

import pytest

pytestmark = pytest.mark.e2e
OWN_SCRIPT = """\
# What a new user writes first: two files, straight into the folder that tpuctl names, under fixed names.
import os, time, zipfile
out = os.environ["TPUCTL_CHECKPOINT_DIR"]
os.makedirs(out, exist_ok=True)
def save(name, text):
    with zipfile.ZipFile(os.path.join(out, name), "w") as file:
        file.writestr("weights.npy", text)
epoch = 0
while not os.path.exists(os.environ["E2E_FAST"]):
    save("latest.npz", f"epoch {epoch}")
    print("epoch", epoch, flush=True)
    epoch += 1
    time.sleep(0.2)
save("final.npz", "trained")
"""


def test_a_model_in_files_that_no_format_knows_is_stored_and_never_called_done(lab):
    """Status 0 without a commit: said while it runs, in the bucket before the TPU goes, exit 5, and fetched."""
    (lab.work / "train.py").write_text(OWN_SCRIPT)
    lab.write(env={"E2E_FAST": str(lab.folder / "fast")}, checkpoint={"format": "marker"})
    lab.tpuctl("up")
    watch = lab.start("watch")

    said = "latest.npz is in the checkpoint folder, but in no checkpoint (format marker wants"
    lab.wait_for("a word while it runs", lambda: said in lab.said(watch))
    assert said in " ".join(lab.tpuctl("explain").out.split())
    assert lab.status()["uncommitted_message"].startswith(said)
    lab.hurry()
    ended = lab.end(watch, expect=5)

    assert "done:" not in ended.err
    assert "final.npz" in ended.err
    assert "COMPLETE" in ended.err, "what the format had wanted"
    assert "tpuctl checkpoints fetch --uncommitted" in ended.err
    assert [m for m in lab.machines() if m["running"]] == [], "its machine goes as with a job that is done"
    manifest = json.loads(lab.read("unclaimed/g1/w0.manifest.json"))
    assert {one["name"] for one in manifest["files"]} == {"checkpoints/final.npz", "checkpoints/latest.npz"}
    assert len(lab.logs(1).split("start from the beginning")) == 2, "it has run once"
    assert lab.status()["outcome"] == "uncommitted"

    refused = lab.tpuctl("checkpoints", "fetch", expect=1)
    assert "tpuctl checkpoints fetch --uncommitted" in refused.err
    lab.tpuctl("checkpoints", "fetch", "--uncommitted", "--output", "model")
    assert b"trained" in (lab.work / "model" / "checkpoints" / "final.npz").read_bytes()
    assert "uncommitted" in lab.tpuctl("checkpoints").out
    again = lab.tpuctl("up", expect=5)
    assert "Creating " not in again.err, "nothing has changed, so nothing is trained again"
    remaining = lab.tpuctl("down", "--yes", "--delete-data")
    assert "uncommitted" in remaining.err, "what is deleted beside the checkpoints is named"
