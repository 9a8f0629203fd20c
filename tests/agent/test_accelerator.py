"""Before a start: who holds the TPU is named, and libtpu's lock file goes when nobody holds it."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.machine.accelerator import PROCESSES, obstacles

HOLD = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def dev(tmp_path) -> Path:
    """Return a folder of devices as on a v5e and a v6e machine."""
    (tmp_path / "dev/vfio").mkdir(parents=True)
    for name in ("accel0", "vfio/0", "vfio/vfio", "null"):
        (tmp_path / "dev" / name).touch()
    return tmp_path / "dev"


@pytest.mark.parametrize("device", ["accel0", "vfio/0"])
def test_a_foreign_process_is_named_and_its_lock_not_touched(dev, tmp_path, device):
    """Process id, command, and what to do; the lock file may be its own."""
    lock = tmp_path / "lock"
    lock.touch()
    words = [sys.executable, "-c", HOLD, str(dev / device)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"open\n"
        (reported,) = obstacles(dev, PROCESSES, lock)
        assert f"in use by process {holder.pid} ({sys.executable}" in reported
        assert reported.endswith(f"tpuctl exec -- sudo kill {holder.pid}")
        assert lock.exists()
        holder.stdin.close()
    assert "is removed" in obstacles(dev, PROCESSES, lock)[0]


@pytest.mark.parametrize("other", ["null", "vfio/vfio"])
def test_what_is_no_chip_is_nobodys_business(dev, tmp_path, other):
    """Every process has /dev/null open, and vfio's own file is shared."""
    with (dev / other).open():
        assert obstacles(dev, PROCESSES, tmp_path / "lock") == []


def test_a_lock_file_goes_when_its_process_has_gone(dev, tmp_path):
    """flock(2) ends with the process; a file that is still locked stays."""
    lock = tmp_path / "lock"
    lock.touch()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert obstacles(dev, PROCESSES, lock) == []
        assert lock.exists()
    assert obstacles(dev, PROCESSES, lock) == [f"{lock} was left by a process that is gone, and is removed"]
    assert not lock.exists()
    assert obstacles(dev, PROCESSES, lock) == []


def test_on_a_machine_without_a_tpu_nothing_is_touched(tmp_path):
    """A local machine shares /tmp with the computer."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "lock").touch()
    assert obstacles(tmp_path / "dev", PROCESSES, tmp_path / "lock") == []
    assert (tmp_path / "lock").exists()
