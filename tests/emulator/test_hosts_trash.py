"""Disks of removed machines, while the disks of others are deleted."""

import shutil
from pathlib import Path

from orchestrator.emulator.machines.host_settings import HostSettings
from orchestrator.emulator.machines.machine_hosts import TRASH
from orchestrator.emulator.machines.process import ProcessHosts


def test_a_disk_is_removed_also_when_the_trash_goes_away_in_between(tmp_path, monkeypatch):
    """The process that empties it for another machine takes the folder along, at the worst moment here."""
    hosts = ProcessHosts(HostSettings(tmp_path, "cloud", "http://127.0.0.1:1", 22, 80))
    (tmp_path / "m-1" / "disk").mkdir(parents=True)
    rename, taken = Path.rename, []

    def late(path, target):
        if not taken:
            taken.append(target)
            shutil.rmtree(tmp_path / TRASH)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    hosts.remove("m-1")
    hosts.drain()
    assert taken
    assert list(tmp_path.glob("**/disk")) == []
