"""What slurm.sh does for the queue by itself, with programs of Slurm that only log their arguments."""

import fcntl
import os
import shutil
import subprocess

import pytest

from orchestrator.scripts.shipped import shipped

NODES = """\
f-001 Duplicate jobid
f-002 tpuctl-idle-g3
f-003 none
f-004 Duplicate jobid of somebody
f-005 Duplicate jobid
"""
RUNNING = """\
1000 7
1200 9
1100 8
"""


@pytest.fixture
def vm(tmp_path):
    """Give a VM of these nodes and running tasks: a function that calls a word of slurm.sh there."""
    slurm, engine = tmp_path / "slurm", f"slurm-{'a' * 64}.tar.gz"
    programs = slurm / f"tree-{'a' * 12}" / "usr" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "lib" / "here" / "slurm-wlm").mkdir(parents=True)
    (slurm / "settings").write_text(f'FLEET_ENGINE="{engine}"\n')
    (slurm / "slurm.sh").write_bytes(shipped("slurm.sh"))
    (slurm / "state").mkdir()
    (slurm / "state" / "job_state").touch()
    (tmp_path / "told").touch()
    (tmp_path / "machine.env").write_text("TPUCTL_BUCKET=ours\n")
    running = f'case "$*" in *"-t R"*) echo "{RUNNING}" | grep . ;; esac'
    notes = {
        "squeue": running,
        "sinfo": f"echo '{NODES}'",
        "scontrol": f'echo "$*" >>{tmp_path}/told',
        "sbatch": f'echo "$*" | tr " " "\\n" | grep array >>{tmp_path}/told',
        "munged": "",
        "slurmctld": "",
        "hostname": f'echo "bucket=$TPUCTL_BUCKET" >>{tmp_path}/told; exit 1',
    }
    for name, does in notes.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)

    def call(*words, check=True):
        environment = {"PATH": os.environ["PATH"], "TPUCTL_ROOT": str(tmp_path)}
        subprocess.run(["bash", slurm / "slurm.sh", *words], env=environment, check=check)
        return (tmp_path / "told").read_text().splitlines()

    call.saved = slurm / "state" / "job_state"
    return call


def test_nodes_that_slurm_has_closed_for_a_task_started_twice_are_opened_again(vm):
    """Nodes that are drained for another reason stay so: that may be ours, or somebody's."""
    assert vm("call", "tend") == [f"update nodename=f-00{n} state=undrain" for n in (1, 5)]


@pytest.mark.parametrize(("saved", "reported"), [(1199, 1), (1200, 1), (1201, 0)])
def test_a_start_that_is_not_written_down_is_changed_until_it_is(vm, saved, reported):
    """Only the newest start counts; one of the very second of the last copy may be missing there."""
    os.utime(vm.saved, (saved, saved))
    assert vm("call", "save") == ["update jobid=9 comment=begun"] * reported


def test_without_a_copy_nothing_is_changed(vm):
    """A controller that has just begun writes the first one by itself."""
    vm.saved.unlink()
    assert vm("call", "save") == []


def test_numbers_of_tasks_are_ranges_for_sbatch(vm):
    """It refuses a list of some thousand numbers."""
    numbers = ",".join(map(str, [*range(2000), 3000, 5000, 5001]))
    assert vm("submit", "many", "script", numbers) == ["--array=0-1999,3000,5000-5001"]


def test_cron_knows_the_bucket(vm):
    """Without it the queue's state was copied only for a minute after each `fleet up`."""
    assert vm("cron", check=False)[0] == "bucket=ours"


def test_the_leftovers_of_a_killed_fetch_of_packages_are_deleted(tmp_path):
    """
    They are hundreds of megabytes on the disk of the VM; those of a fetch that still runs stay.

    A folder that another fetch deletes before it is locked is made again.
    """
    slurm, programs = tmp_path / "slurm", tmp_path / "bin"
    for name in ("killed", "works"):
        (slurm / f"fetch.{name}" / "debs").mkdir(parents=True)
    programs.mkdir()
    # An empty bucket, and a package without a file in it.
    for name, does in {
        "python3": "cat >/dev/null",
        "apt-get": 'case "$*" in *--print-uris*) ;; *) touch one.deb ;; esac',
        "dpkg": 'mkdir -p "$3/usr/sbin"',
        "mktemp": f'd=$({shutil.which("mktemp")} "$@"); echo "$d"; mkdir {tmp_path}/once && rmdir "$d"; exit 0',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    held = os.open(slurm / "fetch.works", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    (slurm / "slurm.sh").write_bytes(shipped("slurm.sh"))
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "TPUCTL_ROOT": str(tmp_path), "TPUCTL_BUCKET": "ours",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", slurm / "slurm.sh", "database"], env=environment, check=True, capture_output=True, text=True
    )
    os.close(held)
    assert done.stdout.startswith("database-")
    assert [path.name for path in slurm.glob("fetch.*")] == ["fetch.works"]
