"""What slurm.sh does for the queue each minute, with programs of Slurm that only note what they are told."""

import os
import subprocess

import pytest

from orchestrator.scripts.render import shipped

NODES = """\
f-001 Duplicate jobid
f-002 tpuctl-idle-g3
f-003 none
f-004 Duplicate jobid of somebody
f-005 Duplicate jobid
"""


@pytest.fixture
def told(tmp_path):
    """Run `slurm.sh call tend` on a VM with these nodes; return what scontrol was told."""
    slurm, engine = tmp_path / "slurm", f"slurm-{'a' * 64}.tar.gz"
    programs = slurm / f"tree-{'a' * 12}" / "usr" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "lib" / "here" / "slurm-wlm").mkdir(parents=True)
    (slurm / "settings").write_text(f'FLEET_ENGINE="{engine}"\n')
    (slurm / "slurm.sh").write_bytes(shipped("slurm.sh"))
    (tmp_path / "nodes").write_text(NODES)
    notes = {"squeue": "true", "sinfo": f"cat {tmp_path}/nodes", "scontrol": f'echo "$*" >>{tmp_path}/told'}
    for name, does in notes.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "TPUCTL_ROOT": str(tmp_path)}
    subprocess.run(["bash", slurm / "slurm.sh", "call", "tend"], env=environment, check=True)
    return (tmp_path / "told").read_text().splitlines()


def test_nodes_that_slurm_has_closed_for_a_task_started_twice_are_opened_again(told):
    """Nodes that are drained for another reason stay so: that may be ours, or somebody's."""
    assert told == [f"update nodename=f-00{n} state=undrain" for n in (1, 5)]
