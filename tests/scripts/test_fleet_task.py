"""The script of a fleet's tasks, run by bash as Slurm runs it on a node."""

import json
import subprocess
from pathlib import Path

from orchestrator.scripts.render import task_script
from tests.scripts.render_kit import a_job_spec, a_target

PROGRAM = """\
import json, os, sys
json.dump(dict(os.environ), open(os.path.join(os.path.dirname(sys.argv[0]), "seen.json"), "w"))
"""


def variables_of_task(machine: Path, number: int) -> dict[str, str]:
    """Return the variables with which the agent is started on a node for one task."""
    script = machine / "slurm" / "spool" / "job7" / "slurm_script"
    for folder in (script.parent, machine / "log"):
        folder.mkdir(parents=True)
    script.write_text(task_script(a_job_spec(), a_target(), "sweep", [{"lr": "1"}, {"lr": "2"}]))
    (machine / "machine.env").write_text("WORKER_ID=0\nTPUCTL_WORKERS=1\n")
    (machine / "job.env").write_text(
        "TPUCTL_NODE='fleet-002-tpu-g3'\nZONE='us-central1-c'\nTPUCTL_SETUP='x'\n"
    )
    (machine / "agent.pyz").write_text(PROGRAM)
    subprocess.run(
        ["bash", str(script)], check=True, env={"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": str(number)}
    )
    observed: dict[str, str] = json.loads((machine / "seen.json").read_text())
    return observed


def test_a_task_knows_the_tpu_and_the_zone_that_it_runs_in(tmp_path: Path) -> None:
    """They are the machine's; all else is the job's, whatever the machine's own job has."""
    observed = variables_of_task(tmp_path, 1)
    assert (observed["TPUCTL_NODE"], observed["ZONE"]) == ("fleet-002-tpu-g3", "us-central1-c")
    assert (observed["TASK"], observed["lr"]) == ("1", "2")
    assert observed["TPUCTL_SETUP"] != "x"
