"""Machines lack what Google's images lack: ensurepip, pip on a VM, free locks of dpkg, cron where it is said."""

import asyncio
import os
from pathlib import Path

import pytest

from orchestrator.emulator.machines import machine_kinds
from orchestrator.emulator.machines.machine_image import described, interpreter_for
from orchestrator.emulator.machines.machine_python import base_interpreter, interpreters, version_of
from orchestrator.emulator.machines.machine_settings import MachineSettings
from orchestrator.errors import LocalCloudError

LONG = 3600.0
"""Seconds: no test waits for the end of this."""
FIND = """\
for one in /proc/[0-9]*; do
  [ "$(cat $one/comm)" = unattended-upgr ] || continue
  if grep -qz "^TPUCTL_MACHINE=$TPUCTL_MACHINE$" $one/environ; then
    basename $one
  fi
done 2>/dev/null; true
"""
"""Print the process that holds the locks of this machine."""


def test_an_environment_with_pip_cannot_be_made_without_python3_venv(booted):
    """Debian's words and status; one without pip can be made, and pip itself is there."""
    done = booted.run("python3 -m venv ~/v")
    assert done.exit_status == 1
    assert "ensurepip is not\navailable" in str(done.stdout)
    version = booted.output("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    assert f"apt install python{version}-venv" in str(done.stdout)
    assert "No module named 'ensurepip'" in str(booted.run("python3 -m ensurepip").stderr)
    assert booted.output("python3 -m venv --without-pip ~/w && ~/w/bin/python -c 'print(1)'") == "1"
    assert booted.output("pip --version").startswith("pip ")


def test_a_vm_has_no_pip_at_all(make):
    """Nor that of the computer, which would install there."""
    with make(kind="vm") as it:
        it.boot()
        done = it.run("pip install x")
        assert (done.exit_status, "apt install python3-pip" in str(done.stderr)) == (127, True)
        assert "No module named pip" in str(it.run("python3 -m pip --version").stderr)


def test_the_python_is_the_images_where_the_computer_has_it():
    """3.10 for a TPU, 3.12 for a VM, another one where that was asked for, else that of the local cloud."""
    here = {one: Path(f"/usr/bin/python{one}") for one in ("3.10", "3.11", "3.12")}
    assert version_of(interpreter_for("tpu", here)) == "3.10"
    assert version_of(interpreter_for("vm", here)) == "3.12"
    assert version_of(interpreter_for("tpu", here, "3.11")) == "3.11"
    assert interpreter_for("tpu", {}) == base_interpreter()
    assert [(one["kind"], one["python"], one["python_of_image"]) for one in described(here, "3.11")] == [
        ("tpu", "3.11", "3.10"), ("vm", "3.11", "3.12"),
    ]  # fmt: skip


def test_a_tpu_machine_runs_that_python(make):
    """What `python3` says on the machine."""
    here = interpreters(os.environ)
    with make(more_settings={"pythons": here}) as it:
        it.boot()
        asked = "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
        assert it.output(asked) == version_of(interpreter_for("tpu", here))


def test_dpkg_is_locked_on_a_new_machine_and_apt_waits_only_with_a_timeout(make):
    """apt-get fails at once, 100, naming the holder; with a timeout it goes on when the holder is gone."""
    with make(more_settings={"package_lock_seconds": LONG}) as it:
        it.boot()
        holder = it.output(FIND)
        assert holder.isdigit()
        done = it.run("apt-get install -y bash")
        assert done.exit_status == 100
        words = f"lock-frontend. It is held by process {holder} (unattended-upgr)"
        assert words in str(done.stderr)
        done = it.run("apt-get -o DPkg::Lock::Timeout=600 update")
        assert done.exit_status == 100, "no timeout makes `update` wait"
        assert "lists/lock. It is held by process" in str(done.stderr)
        reported = asyncio.run(_install_while_it_is_locked(it, holder))
        assert "Waiting for cache lock: Could not get lock" in reported
        it.machines.stop(it.machine.id)
        it.boot()
        assert it.output("apt-get install -y --no-upgrade bash")
        assert it.output(FIND) == "", "only a new machine is upgraded"


async def _install_while_it_is_locked(it, holder: str) -> str:
    """Start an install that waits for the lock, end the holder when it says so, return all that it said."""
    async with await it.connect() as connection:
        command = "apt-get -o DPkg::Lock::Timeout=600 install -y --no-upgrade bash 2>&1"
        async with connection.create_process(command) as process:
            reported = ""
            while "held by process" not in reported:
                more = await asyncio.wait_for(process.stdout.read(4096), 90)
                assert more, reported
                reported += more
            assert (await connection.run(f"kill {holder}")).exit_status == 0
            done = await process.wait(timeout=90)
            assert done.exit_status == 0
            return reported + str(done.stdout)


def test_a_machine_without_cron_has_none(make):
    """In namespaces no such process; as plain processes, which have cron inside, the machine says so."""
    with make(more_settings={"absent": frozenset({"cron"})}) as it:
        it.boot()
        assert it.output("echo $TPUCTL_HAS_CRON") in ("no", "")
        names = it.output("cat /proc/[0-9]*/comm") if it.machines.kind == "namespace" else ""
        assert "cron" not in names.split()


def test_a_package_that_the_computer_lacks_is_not_installed_there(tmp_path, make):
    """A machine that is a process of the computer says what to do; nothing of the computer is changed."""
    with make() as it:
        if it.machines.kind == "namespace":
            pytest.skip("has an apt of its own")
        it.boot()
        done = it.run("apt-get -qq install -y bash no-such-package-of-ours")
        assert done.exit_status == 100
        assert "E: Unable to locate package no-such-package-of-ours" in str(done.stderr)
        assert "apt-get install no-such-package-of-ours" in str(done.stderr)


def test_gcloud_can_be_skipped_where_the_computers_is_not_visible(tmp_path, monkeypatch):
    """A process sees the computer's system folders: with a gcloud there, the wish is refused."""
    settings = MachineSettings(tmp_path, "c", "", 1, 2, absent=frozenset({"gcloud"}))
    monkeypatch.setattr(machine_kinds, "SYSTEM_PATH", str(tmp_path / "empty"))
    assert machine_kinds.make_machines("process", settings).kind == "process"
    (tmp_path / "gcloud").write_text("#!/bin/sh\n")
    (tmp_path / "gcloud").chmod(0o755)
    monkeypatch.setattr(machine_kinds, "SYSTEM_PATH", str(tmp_path))
    with pytest.raises(LocalCloudError, match="gcloud, which cannot be left out"):
        machine_kinds.make_machines("process", settings)


def test_a_machine_in_namespaces_hides_gcloud(make):
    """Nothing of that name is on its PATH."""
    with make(more_settings={"absent": frozenset({"gcloud"})}) as it:
        if it.machines.kind == "process":
            pytest.skip("sees the computer's")
        it.boot()
        assert it.run("command -v gcloud").exit_status != 0
