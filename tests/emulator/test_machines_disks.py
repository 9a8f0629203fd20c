"""Data disks on machines: a folder for each, which outlives the machine."""

from pathlib import Path

import pytest

from orchestrator.emulator.machines.machine_settings import GuestConfig, MachineSettings
from orchestrator.emulator.machines.process import ProcessMachines
from tests.emulator.machines_lab import machine
from tests.kit.waiting import until


@pytest.fixture
def machines(tmp_path):
    """Return machines that boot nothing in this test."""
    return ProcessMachines(MachineSettings(tmp_path / "machines", "c", "http://127.0.0.1:1", 22, 80))


def devices(machines, one) -> Path:
    """Prepare a machine and return where it finds its devices."""
    return Path(GuestConfig.read(machines._prepare(one)).environment["TPUCTL_DISK_DIR"])


def test_what_one_machine_has_written_the_next_one_reads(machines):
    """Devices are numbered in the order of the disks, from 1, and a removed machine takes nothing along."""
    first = machine(disks=("z-text-1", "z-scratch-2"))
    found = devices(machines, first)
    assert sorted(path.name for path in found.iterdir()) == [
        "google-persistent-disk-1",
        "google-persistent-disk-2",
    ]
    (found / "google-persistent-disk-2/saved").write_text("x")
    machines.remove(first.id)
    machines.drain()
    after = devices(machines, machine(disks=("z-scratch-2",)))
    assert (after / "google-persistent-disk-1/saved").read_text() == "x"


def test_a_machine_without_disks_has_no_devices(machines):
    """Its folder is there, and empty."""
    assert list(devices(machines, machine()).iterdir()) == []


def test_a_machine_finds_its_disks_where_its_startup_script_looks(make):
    """
    By the names of Google's devices, as folders.

    What is written is stored outside the machine, and a machine that boots again has the same ones.
    """
    write = 'echo text > "$TPUCTL_DISK_DIR/google-persistent-disk-2/saved"'
    script = f"#!/bin/bash\n{write}\n"
    with make(disks=("z-text-1", "z-scratch-2"), **{"startup-script": script}) as it:
        retained = it.machines.settings.root.parent / "data-disks"
        saved = retained / "z-scratch-2/saved"
        it.boot()
        until(lambda: saved.exists() and saved.read_text() == "text\n", "the first boot's file", 90)
        assert list((retained / "z-text-1").iterdir()) == []
        saved.unlink()
        it.machines.stop(it.machine.id)
        it.boot()
        until(saved.exists, "the second boot's file", 90)
