"""Python on a machine: its own, or the one that `job.python` asks for; what a setup installs comes back."""

import os
from importlib import metadata

import pytest

from orchestrator.emulator.machines.machine_image import interpreter_for
from orchestrator.emulator.machines.machine_python import interpreters, version_of

pytestmark = pytest.mark.e2e
HERE = interpreters(os.environ)
OURS = version_of(interpreter_for("tpu", HERE))
OTHER = next((one for one in ("3.12", "3.13", "3.11", "3.10") if one != OURS and one in HERE), "")
LOOK = """\
import importlib.util as u, sys
names = ("iniconfig", "click", "pydantic", "google", "orchestrator")
print("PYTHON %d.%d" % sys.version_info[:2], *(name for name in names if u.find_spec(name)), flush=True)
"""


def test_a_setup_installs_on_its_machine_alone_and_the_next_machine_finds_it_installed(lab):
    """`pip install` in the setup; the job sees that package and none of tpuctl's, on each of two machines."""
    (lab.work / "look.py").write_text(LOOK)
    version = metadata.version("iniconfig")
    lab.write(
        setup="pip install iniconfig", command="python3 look.py; echo step 1 loss 1; exec sleep 600",
        checkpoint={"format": "marker", "dir": "local"},
    )  # fmt: skip
    lab.tpuctl("up")
    watch = lab.start("watch")
    lab.wait_for("the first look", lambda: f"PYTHON {OURS} iniconfig\n" in lab.logs(1))
    assert "Successfully installed iniconfig" in lab.logs(1)
    lab.wait_for("its packages are in the bucket", lambda: lab.objects("caches/environment/"))
    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    lab.wait_for("the second look", lambda: f"PYTHON {OURS} iniconfig\n" in lab.logs(2))
    assert "Python packages of an earlier machine are back" in lab.logs(2)
    assert "Requirement already satisfied: iniconfig" in lab.logs(2)
    assert "Successfully installed" not in lab.logs(2)
    assert metadata.version("iniconfig") == version
    watch.send_signal(2)
    lab.end(watch, expect=None)


@pytest.mark.skipif(not OTHER, reason="this computer has one Python only")
def test_job_python_is_that_of_setup_and_job_and_an_absent_one_stops_up(lab):
    """Another Python of this computer; one that it lacks is refused before anything is made."""
    (lab.work / "look.py").write_text(LOOK)
    lab.write(
        python=OTHER, setup="pip install iniconfig", command="python3 look.py; exec sleep 600",
        checkpoint={"format": "marker", "dir": "local"},
    )  # fmt: skip
    refused = lab.tpuctl("up", "--set", "job.python=3.99", expect=2)
    assert "job.python is 3.99" in refused.err
    assert OTHER in refused.err
    assert lab.bucket() == ""
    lab.tpuctl("up")
    lab.wait_for("the look", lambda: f"PYTHON {OTHER} iniconfig\n" in lab.logs(1))
