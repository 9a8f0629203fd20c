"""
Data disks on machines of the kind `process`: a folder for each, which outlives the machine.
"""

from pathlib import Path

import pytest

from orchestrator.local.hosts.process import ProcessHosts
from orchestrator.local.hosts.settings import GuestConfig, HostSettings
from tests.local.hosts_lab import machine


@pytest.fixture
def hosts(tmp_path):
    """
    Return hosts that boot nothing in this test.
    """
    return ProcessHosts(HostSettings(tmp_path / "machines", "c", "http://127.0.0.1:1", 22, 80))


def devices(hosts, one) -> Path:
    """
    Prepare a machine and return where it finds its devices.
    """
    return Path(GuestConfig.read(hosts._prepare(one)).environment["TPUCTL_DISK_DIR"])


def test_what_one_machine_has_written_the_next_one_reads(hosts):
    """
    Devices are numbered in the order of the disks, from 1, and a removed machine takes nothing along.
    """
    first = machine(disks=("z-text-1", "z-scratch-2"))
    found = devices(hosts, first)
    assert sorted(path.name for path in found.iterdir()) == [
        "google-persistent-disk-1",
        "google-persistent-disk-2",
    ]
    (found / "google-persistent-disk-2/saved").write_text("x")
    hosts.remove(first.id)
    hosts.drain()
    after = devices(hosts, machine(disks=("z-scratch-2",)))
    assert (after / "google-persistent-disk-1/saved").read_text() == "x"


def test_a_machine_without_disks_has_no_devices(hosts):
    """
    Its folder is there, and empty.
    """
    assert list(devices(hosts, machine()).iterdir()) == []
