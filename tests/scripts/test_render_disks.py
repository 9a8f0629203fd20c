"""A machine mounts the disks of the file at boot: real bash and, where it may, the real mount of a file system."""

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.domain.machines.data_disks import DataDisk
from orchestrator.scripts.render import machine_scripts
from tests.scripts.render_kit import ScriptMachine, a_job_spec, a_target, cloud

__all__ = ["cloud"]

TEXT, SCRATCH = DataDisk("text"), DataDisk("scratch", writable=True)


@pytest.fixture
def machine(tmp_path, cloud) -> ScriptMachine:
    """Offer a machine with a folder of devices."""
    made = ScriptMachine(tmp_path, cloud)
    (tmp_path / "by-id").mkdir()
    made.environment |= {"TPUCTL_DISK_DIR": str(tmp_path / "by-id"), "TPUCTL_DISK_SECONDS": "2"}
    return made


def scripts(*disks):
    """Return the scripts of a machine with *disks*."""
    return machine_scripts(a_job_spec(), a_target(disks=disks))


def device(machine: ScriptMachine, number: int, *, formatted: bool = True) -> Path:
    """Make a device: a file with a file system, as the disk has that somebody has formatted."""
    path = machine.folder / f"by-id/google-persistent-disk-{number}"
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(4 << 20)
    if formatted:
        subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    return path


def may_mount(folder: Path) -> bool:
    """Return whether a file system in a file can be mounted here, out of sight of others."""
    if not all(shutil.which(name) for name in ("mkfs.ext4", "unshare", "mountpoint")):
        return False
    image = folder / "try.img"
    image.write_bytes(bytes(4 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    tried = subprocess.run(["unshare", "-m", "mount", image, folder], capture_output=True, check=False)
    return tried.returncode == 0


def boot(machine: ScriptMachine, *disks: DataDisk, then: str = "true", times: int = 1):
    """Boot in a mount namespace of its own and run *then* in it, which looks at the mounts."""
    path = machine.folder / "startup-script"
    path.write_text(scripts(*disks).startup)
    path.chmod(0o755)
    lines = "; ".join([f"'{path}' || exit"] * times)
    return machine.run(["unshare", "-m", "bash", "-c", f"{lines}; cd '{machine.root}/disks'; {then}"])


def test_disks_are_mounted_in_their_order_and_modes(machine, tmp_path):
    """One is only read, the other is written to; a second boot mounts nothing twice; the job comes after."""
    if not may_mount(tmp_path):
        pytest.skip("nothing can be mounted here")
    device(machine, 1), device(machine, 2)
    look = "touch scratch/new && ! touch text/new 2>/dev/null && grep -c ' ext4 ' /proc/self/mounts; ls"
    done = boot(machine, TEXT, SCRATCH, then=look, times=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["scratch", "text"]
    machine.ran()


def test_a_disk_without_a_file_system_is_not_formatted(machine, tmp_path):
    """The boot fails and says what to do; not one byte of the disk has changed."""
    if not may_mount(tmp_path):
        pytest.skip("nothing can be mounted here")
    path = device(machine, 1, formatted=False)
    done = boot(machine, SCRATCH)
    assert done.returncode != 0
    assert "disk scratch cannot be mounted; tpuctl formats nothing" in machine.status()["message"]
    assert path.read_bytes() == bytes(4 << 20)


def test_a_disk_that_does_not_appear_fails_the_boot(machine):
    """After a while; the report names it, and the job does not begin without its data."""
    assert machine.boot(scripts(TEXT)).returncode == 1
    assert "disk text has not appeared as" in machine.status()["message"]
    assert not (machine.root / "state/ran-run").exists()


def test_a_folder_stands_for_a_disk_on_a_machine_of_a_local_cloud(machine):
    """It is linked where the disk would be; what the job writes there stays."""
    folder = machine.folder / "kept"
    folder.mkdir()
    (machine.folder / "by-id/google-persistent-disk-1").symlink_to(folder)
    for _ in range(2):
        assert machine.boot(scripts(TEXT)).returncode == 0
        machine.ran()
    (machine.root / "disks/text/found").write_text("x")
    assert (folder / "found").read_text() == "x"


def test_a_machine_without_disks_has_no_word_of_them():
    """Nor has the VM."""
    assert "mount" not in scripts().startup.replace("mounted", "")
