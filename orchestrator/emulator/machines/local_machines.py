"""Implement what both kinds of machines share: folders, pid files, finding, killing, deleting disks."""

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orchestrator.emulator.machines import process_table
from orchestrator.emulator.machines.environment import machine_environment
from orchestrator.emulator.machines.machine_image import GCLOUD
from orchestrator.emulator.machines.machine_programs import install_programs
from orchestrator.emulator.machines.machine_settings import MARKER, GuestConfig, MachineSettings
from orchestrator.emulator.machines.start_module import package_parent
from orchestrator.emulator.state.values.machine import Machine
from orchestrator.private_folders import private_folder

TRASH = ".trash"
AUTHORITIES = "authorities.pem"
MAX_OWNERS = 4096
DEVICES = "dev/disk/by-id"


class LocalMachines(ABC):
    """
    Keeps each machine in `<root>/<machine id>/`; its files alone tell what runs.

    Calls are synchronous and short: a boot is one fork, a kill takes milliseconds (at most 5 s, then
    LocalCloudError). Disks are renamed at once and deleted by a background thread.
    """

    kind = ""
    metadata_ports: tuple[int, ...] = ()  # served besides settings.metadata_port

    def __init__(self, settings: MachineSettings) -> None:
        self.settings = settings
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._removals: list[subprocess.Popen[bytes]] = []
        self._owners: dict[int, str | None] = {}

    @abstractmethod
    def _command(self, machine: Machine, config: Path) -> list[str]:
        """Return the command of the machine's first process."""

    @abstractmethod
    def _leader(self, first: int) -> int:
        """Return the pid for the power button, given the machine's first process; 0 if it has ended."""

    def boot(self, machine: Machine) -> None:
        """Start the machine with the disk that `stop` kept, if any; no effect on a running one."""
        if self.running(machine.id):
            return
        # Strays remain if a daemon died before writing the pid file, or if the first process died alone.
        self.stop(machine.id)
        config = self._prepare(machine)
        with (config.parent / "guest.log").open("ab") as log:
            # A session of its own, so that Ctrl-C in the daemon's terminal does not reach machines.
            child = subprocess.Popen(
                self._command(machine, config),
                env=self._first_environment(machine),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[machine.id] = child
        process = process_table.process_of(child.pid)
        started = process.started if process else 0
        # With the start time, to recognise a reused pid.
        self._pid_file(machine.id).touch(mode=0o600)
        self._pid_file(machine.id).write_text(f"{child.pid} {started}\n")

    def notice(self, machine_id: str) -> None:
        """Press the power button, which starts the shutdown script; no effect on a machine that is off."""
        first = self._first(machine_id)
        leader = self._leader(first) if first else 0
        if leader:
            with suppress(ProcessLookupError):
                os.kill(leader, signal.SIGTERM)

    def stop(self, machine_id: str) -> None:
        """Kill every process of the machine and keep its disk."""
        entry = self.settings.marker(machine_id)
        first = self._first(machine_id)
        leaders = [first] if first else []
        process_table.kill_all(lambda: process_table.members(entry, leaders), last=lambda: leaders)
        child = self._children.pop(machine_id, None)
        if child is not None:
            # Reap it: otherwise it stays a zombie as long as the daemon lives.
            child.wait()
        # After the kill: the pid file is how a later daemon finds a machine that still runs.
        self._pid_file(machine_id).unlink(missing_ok=True)
        self._stopped(machine_id)

    @abstractmethod
    def _stopped(self, machine_id: str) -> None:
        """Release what a running machine has outside of its folder."""

    def remove(self, machine_id: str) -> None:
        """Kill every process of the machine and destroy its disk."""
        self.stop(machine_id)
        folder = self.settings.folder(machine_id)
        trash = self.settings.root / TRASH
        # The background process may delete the trash folder at the same time.
        while folder.exists():
            trash.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                # A rename frees the name at once; deleting a large disk takes long.
                folder.rename(trash / f"{machine_id}.{os.urandom(4).hex()}")
        self._empty_trash()

    def holds(self, inode: int) -> bool:
        """Return whether another user's process on a machine holds the socket *inode*."""
        return False

    def machine_of(self, inode: int) -> str | None:
        """
        Return the machine whose processes hold the socket *inode*, None if none does.

        The result is cached: a socket stays with its creator, and inode numbers of sockets grow.
        """
        owners = self._owners  # another thread may replace the cache
        if inode in owners:
            return owners[inode]
        entry = f"{MARKER}={self.settings.cloud_id}/"
        leaders = {first: name for name in self._known() if (first := self._first(name))}
        pids = process_table.members(entry, leaders)
        pid = process_table.socket_pid(inode, pids)
        machine = None if pid is None else process_table.machine_marker(pid, entry, leaders)
        if len(self._owners) >= MAX_OWNERS:
            self._owners = {}
        self._owners[inode] = machine
        return machine

    def serial(self, machine_id: str) -> bytes:
        """Return the machine's serial output so far, b"" for an unknown machine."""
        try:
            return (self.settings.folder(machine_id) / "guest/serial.log").read_bytes()
        except FileNotFoundError:
            return b""

    def running(self, machine_id: str) -> bool:
        return bool(self._first(machine_id))

    def reattach(self) -> frozenset[str]:
        """Return the ids of machines that still run, for example after the daemon died."""
        self._empty_trash()
        return frozenset(machine_id for machine_id in self._known() if self.running(machine_id))

    def reap_all(self, *, disks: bool = False) -> None:
        """Kill every process of this local cloud; with *disks*, delete all disks and wait for that."""
        entry = f"{MARKER}={self.settings.cloud_id}/"
        leaders = [first for first in map(self._first, self._known()) if first]
        process_table.kill_all(lambda: process_table.members(entry, leaders), last=lambda: leaders)
        for machine_id in self._known():
            self.remove(machine_id) if disks else self.stop(machine_id)
        if disks:
            self.drain()

    def drain(self) -> None:
        """Wait until the disks of removed machines are deleted."""
        for program in self._removals:
            program.wait()
        self._removals.clear()

    def _prepare(self, machine: Machine) -> Path:
        """Create the machine's folders and write its guest configuration; return the latter's path."""
        folder = self.settings.folder(machine.id)
        state = folder / "guest"
        state.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        install_programs(state / "bin", gcloud=GCLOUD not in self.settings.absent)
        (state / AUTHORITIES).write_bytes(self.settings.authorities)
        config = state / "config.json"
        self._guest_config(machine, folder, state).write(config)
        return config

    @abstractmethod
    def _guest_config(self, machine: Machine, folder: Path, state: Path) -> GuestConfig:
        """Return the guest agent's configuration for *machine*."""

    def _disk_devices(self, machine: Machine, folder: Path) -> Path:
        """Return a folder with a link for each data disk, named like its device; the content outlives machines."""
        # Below the daemon's folder, because a data disk outlives its machine.
        devices, disks = folder / DEVICES, self.settings.root.parent / "data-disks"
        shutil.rmtree(devices, ignore_errors=True)
        devices.mkdir(parents=True)
        private_folder(disks)
        for number, name in enumerate(machine.disks, start=1):
            (disks / name).mkdir(exist_ok=True)
            (devices / f"google-persistent-disk-{number}").symlink_to(disks / name)
        return devices

    def _environment(self, machine: Machine, files: Path, binaries: Path, temporary: Path) -> dict[str, str]:
        return machine_environment(
            machine,
            self.settings,
            files=files,
            binaries=binaries,
            temporary=temporary,
            authorities=binaries.with_name(AUTHORITIES),
        )

    def _first_environment(self, machine: Machine) -> dict[str, str]:
        """Return the environment of the first process: what it needs to import us, and the marker."""
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "TZ") if key in os.environ}
        marker, _, value = self.settings.marker(machine.id).partition("=")
        return {**keep, "PYTHONPATH": package_parent(), marker: value}

    def _pid_file(self, machine_id: str) -> Path:
        return self.settings.folder(machine_id) / "pid"

    def _first(self, machine_id: str) -> int:
        """Return the pid of the machine's first process, 0 if it does not run."""
        try:
            pid, started = map(int, self._pid_file(machine_id).read_text().split())
        except (OSError, ValueError):
            return 0
        return pid if process_table.alive(pid, started) else 0

    def _known(self) -> Iterable[str]:
        try:
            return sorted(p.name for p in self.settings.root.iterdir() if p.is_dir() and p.name != TRASH)
        except FileNotFoundError:
            return []

    def _empty_trash(self) -> None:
        """Delete removed disks in the background, including those that a dead daemon left."""
        trash = self.settings.root / TRASH
        if trash.is_dir():
            # Not in a thread: with the thousands of files of a disk, it would slow down every request.
            program = subprocess.Popen(
                ["nice", "-n", "19", "rm", "-rf", "--", trash],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._removals = [one for one in self._removals if one.poll() is None] + [program]
