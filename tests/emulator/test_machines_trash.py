"""Disks of removed machines, while the disks of others are deleted."""

import shutil
from pathlib import Path

from orchestrator.emulator.machines.local_machines import TRASH
from orchestrator.emulator.machines.machine_settings import MachineSettings
from orchestrator.emulator.machines.process import ProcessMachines


def test_a_disk_is_removed_also_when_the_trash_goes_away_in_between(tmp_path, monkeypatch):
    """The process that empties it for another machine takes the folder along, at the worst moment here."""
    machines = ProcessMachines(MachineSettings(tmp_path, "cloud", "http://127.0.0.1:1", 22, 80))
    (tmp_path / "m-1" / "disk").mkdir(parents=True)
    rename, taken = Path.rename, []

    def late(path, target):
        if not taken:
            taken.append(target)
            shutil.rmtree(tmp_path / TRASH)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    machines.remove("m-1")
    machines.drain()
    assert taken
    assert list(tmp_path.glob("**/disk")) == []
