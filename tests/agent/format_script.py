"""
A training in miniature that saves in the format FORMAT and starts from what the framework itself would pick.

What cannot be read ends it with status 9, as it ends the frameworks.
"""

import json
import os
import re
import sys
import time
import zipfile
from pathlib import Path

from format_trees import save

KIND = os.environ["FORMAT"]
ROOT = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
LAST = int(os.environ.get("STEPS", "60"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0.02"))
EACH_COMMITTED = "EACH_COMMITTED" in os.environ
STATUS = Path(os.environ["TPUCTL_ROOT"]) / "state" / "status.json"


def begin():
    """Return the step of what the framework picks at its start."""
    resume = os.environ["TPUCTL_RESUME"]
    if KIND == "hf":
        return json.loads((Path(resume) / "trainer_state.json").read_text())["global_step"] if resume else 0
    if KIND == "fairseq" and (ROOT / "checkpoint_last.pt").exists():
        with zipfile.ZipFile(ROOT / "checkpoint_last.pt") as file:
            return int(re.findall(rb"num_updatesq.K(.)", file.read("archive/data.pkl"))[0][0])
    if KIND == "tf" and (ROOT / "checkpoint").exists():
        name = re.findall('^model_checkpoint_path: "(.*)"', (ROOT / "checkpoint").read_text())[0]
        assert (ROOT / f"{name}.index").exists()
        return int(name.split("-")[1])
    if KIND == "torch" and (ROOT / "last.json").exists():
        name = json.loads((ROOT / "last.json").read_text())["file"]
        with zipfile.ZipFile(ROOT / name) as file:
            assert file.testzip() is None
        return int(name[5:11])
    if KIND == "orbax":
        return max((int(one.name) for one in ROOT.iterdir() if one.name.isdigit()), default=0)
    if KIND == "keras" and (ROOT / "training_metadata.json").exists():
        return json.loads((ROOT / "training_metadata.json").read_text())["epoch"]
    return 0


try:
    step = begin()
except Exception as error:
    print(f"cannot be read: {error!r}", flush=True)
    sys.exit(9)
print(f"begin after {step}, resume argument {os.environ['TPUCTL_RESUME']!r}", flush=True)
if step in map(int, filter(None, os.environ.get("POISON", "").split(","))):
    sys.exit(5)
while step < LAST:
    step += 1
    time.sleep(PAUSE)  # a step of a training program takes its time
    print(f"num_updates: {step}", flush=True)
    if step % 10 == 0:
        save(ROOT, KIND, step)
        while EACH_COMMITTED and (json.loads(STATUS.read_text())["committed_step"] or 0) < step:
            time.sleep(0.02)  # this program runs on a machine: nothing of ours is there to wait with
    if step == int(os.environ.get("KILL_AT", "0")) and not (ROOT.parent / "stopped").exists():
        (ROOT.parent / "stopped").touch()
        time.sleep(600)  # until the test kills the machine: this program must not be done before
    if step == int(os.environ.get("STOP_AT", "0")) and not (ROOT.parent / "stopped").exists():
        (ROOT.parent / "stopped").touch()
        sys.exit(int(os.environ.get("STOP_CODE", "0")))
