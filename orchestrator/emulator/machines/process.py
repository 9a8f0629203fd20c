"""Run machines without privileges: a session, a folder and a loopback address each."""

import hashlib
import os
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

from orchestrator.emulator.machines.apt_standin import SETTINGS, install_apt
from orchestrator.emulator.machines.docker_standin import install_docker
from orchestrator.emulator.machines.local_machines import LocalMachines
from orchestrator.emulator.machines.machine_image import CRON
from orchestrator.emulator.machines.machine_settings import GuestConfig
from orchestrator.emulator.state.values.machine import Machine

# The path of a Unix socket has at most 107 bytes (unix(7)), and Python creates its own below TMPDIR. A
# machine's folder is longer, and managers and queues of multiprocessing would fail.
MAX_PATH = 60
"""Bytes of TMPDIR that leave room for the names that multiprocessing and torch append."""
SHORT = Path("/tmp")  # noqa: S108 - the folder in it has a random name and belongs to this user alone


class ProcessMachines(LocalMachines):
    """
    Runs each machine below a supervisor that adopts all of its processes.

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
        if machine.kind == "tpu":
            install_docker(state / "bin", folder)
        short = short_name(self.settings.cloud_id, machine.id, temporary)
        environment = self._environment(machine, folder, state / "bin", short)
        environment["TPUCTL_APT_DIR"] = str(folder / SETTINGS)
        environment["TPUCTL_CRON_MINUTE"] = str(self.settings.cron_minute_seconds)
        environment["TPUCTL_DISK_DIR"] = str(self._disk_devices(machine, folder))
        environment["TPUCTL_HAS_CRON"] = "no" if CRON in self.settings.absent else "yes"
        return GuestConfig.build("process", machine, self.settings, state, environment)

    def _stopped(self, machine_id: str) -> None:
        forget_short_name(self.settings.cloud_id, machine_id)


def short_name(cloud_id: str, machine_id: str, folder: Path) -> Path:
    """Return a short path to *folder*; *folder* itself if it is short or no link can be made."""
    if len(os.fsencode(folder)) <= MAX_PATH:
        return folder
    name = _name(cloud_id, machine_id)
    try:
        with suppress(FileExistsError):
            name.parent.mkdir(mode=0o700)
        if not _is_ours(name.parent):
            return folder
        name.unlink(missing_ok=True)
        name.symlink_to(folder)
    except OSError:
        return folder
    return name


def forget_short_name(cloud_id: str, machine_id: str) -> None:
    """Remove the machine's short path, and with the last one the folder of its cloud."""
    name = _name(cloud_id, machine_id)
    if _is_ours(name.parent):
        with suppress(OSError):
            name.unlink(missing_ok=True)
            name.parent.rmdir()


def _name(cloud_id: str, machine_id: str) -> Path:
    return SHORT / f"tpuctl-{cloud_id}" / hashlib.sha256(machine_id.encode()).hexdigest()[:8]


def _is_ours(folder: Path) -> bool:
    """Return whether it is a real folder that no other user can write to."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
