"""
Run machines in Linux namespaces, as root: an overlay of `/`, the real sshd and the real cron.

They isolate what a training job touches, but are no security boundary: root inside is root.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import orchestrator
from orchestrator.emulator.machines import process_table
from orchestrator.emulator.machines.docker_standin import install_docker
from orchestrator.emulator.machines.local_machines import LocalMachines
from orchestrator.emulator.machines.machine_image import GCLOUD
from orchestrator.emulator.machines.machine_python import base_interpreter
from orchestrator.emulator.machines.machine_settings import SYSTEM_PATH, GuestConfig
from orchestrator.emulator.state.values.machine import Machine

STATE = Path("/run/local-cloud")  # the guest's folder inside the machine
DISKS = Path("/run/local-cloud-disks")  # the data disks inside the machine; /dev is the computer's own
PROGRAMS = {
    "unshare": "util-linux",
    "pivot_root": "util-linux",
    "mount": "mount",
    "useradd": "passwd",
    "sshd": "openssh-server",
    "cron": "cron",
}
TRY_OVERLAY = "mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay merged"


class NamespaceMachines(LocalMachines):
    """
    Runs each machine below `unshare`, whose child is the machine's pid 1.

    An ext4 image of the size `disk_bytes` enforces that limit. Killing pid 1 leaves no process and no mount.
    """

    kind = "namespace"
    metadata_ports = (80,)

    def _command(self, machine: Machine, config: Path) -> list[str]:
        folder = self.settings.folder(machine.id)
        script = Path(__file__).with_name("namespace-init.sh")
        # Killing unshare, whose pid we know, ends the machine (--kill-child); its mounts do not propagate
        # to the computer.
        unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL"]
        arguments = [str(folder), machine.name, str(machine.disk_bytes), sys.executable]
        arguments.append("gcloud" if GCLOUD in self.settings.absent else "")
        pythons = {str(path.parent.parent) for path in self.settings.pythons.values()}
        arguments += [str(self.settings.shared or ""), *sorted({*_needed(), *pythons})]
        return [*unshare, "--propagation", "private", "/bin/bash", str(script), *arguments]

    def _leader(self, first: int) -> int:
        children = [p.pid for p in process_table.table().values() if p.parent == first]
        return children[0] if children else 0

    def _stopped(self, machine_id: str) -> None:
        pass  # its mounts disappear with its first process

    def holds(self, inode: int) -> bool:
        """Look among the processes of the machines' PID namespaces, which no other process can enter."""
        leaders = [self._leader(first) for first in map(self._first, self._known()) if first]
        spaces = {space for pid in leaders if (space := process_table.pid_namespace(pid))}
        return bool(spaces) and process_table.socket_held(inode, spaces)

    def _guest_config(self, machine: Machine, folder: Path, state: Path) -> GuestConfig:
        environment = self._environment(machine, Path("/"), STATE / "bin", Path("/tmp"))  # noqa: S108
        self._disk_devices(machine, folder)
        if machine.kind == "tpu":
            install_docker(state / "bin", Path("/"))
        environment["TPUCTL_DISK_DIR"] = str(DISKS)
        return GuestConfig.build("namespace", machine, self.settings, STATE, environment)


def available(folder: Path | None = None) -> str | None:
    """Return why machines cannot run in namespaces below *folder*, None if they can."""
    if sys.platform != "linux":
        return "namespaces need Linux"
    if os.geteuid() != 0:
        return "namespaces need root; the kind `process` does not"
    path = os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])
    missing = sorted({package for name, package in PROGRAMS.items() if shutil.which(name, path=path) is None})
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})"
    return _overlay_refused(folder)


def _overlay_refused(folder: Path | None) -> str | None:
    """Try an overlay of `/` in a temporary mount namespace; return the error or None."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for part in ("upper", "work", "merged"):
            (Path(name) / part).mkdir()
        command = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-c",
            TRY_OVERLAY,
        ]
        result = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return None
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[0]
        return f"this system refuses an overlay of / with its upper folder in {name}: {reason}"


def _needed() -> list[str]:
    """Return the folders of Python, of this package and of gcloud, which must be visible in a machine."""
    folders = {
        str(Path(sys.prefix)),
        str(Path(sys.base_prefix)),
        str(base_interpreter().parent.parent),
        str(Path(orchestrator.__path__[0]).resolve()),
    }
    gcloud = shutil.which("gcloud")
    if gcloud:
        folders.add(str(Path(gcloud).resolve().parent.parent))
    return sorted(folders)
