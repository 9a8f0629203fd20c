"""Machines without privileges: a session, a folder and a loopback address each."""

import shutil
import sys
from pathlib import Path

from orchestrator.emulator.machines.apt_standin import SETTINGS, install_apt
from orchestrator.emulator.machines.base import MachineHosts
from orchestrator.emulator.machines.machine_image import CRON
from orchestrator.emulator.machines.settings import GuestConfig
from orchestrator.emulator.machines.short_names import forget_short_name, short_name
from orchestrator.emulator.state.machines import Machine


class ProcessHosts(MachineHosts):
    """
    Run each machine below a supervisor that adopts all its processes.

    The machine shares users, network and file system with the computer. `disk_bytes` is not enforced.
    """

    kind = "process"

    def _command(self, machine: Machine, config: Path) -> list[str]:
        return [sys.executable, "-m", "orchestrator.emulator.machines.supervisor", str(config)]

    def _leader(self, first: int) -> int:
        return first

    def _guest_config(self, machine: Machine, folder: Path, state: Path) -> GuestConfig:
        temporary = folder / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        for path in (temporary, folder / "home/root", folder / "opt", folder / "etc/cron.d"):
            path.mkdir(parents=True, exist_ok=True)
        install_apt(state / "bin", folder)
        short = short_name(self.settings.cloud_id, machine.id, temporary)
        environment = self._environment(machine, folder, state / "bin", short)
        environment["TPUCTL_APT_DIR"] = str(folder / SETTINGS)
        environment["TPUCTL_CRON_MINUTE"] = str(self.settings.cron_minute_seconds)
        environment["TPUCTL_DISK_DIR"] = str(self._disk_devices(machine, folder))
        environment["TPUCTL_HAS_CRON"] = "no" if CRON in self.settings.absent else "yes"
        return GuestConfig.build("process", machine, self.settings, state, environment)

    def _stopped(self, machine_id: str) -> None:
        forget_short_name(self.settings.cloud_id, machine_id)
