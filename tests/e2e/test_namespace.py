"""Machines in namespaces: startup scripts run unmodified as root, under the real sshd and the real cron."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.emulator.machines.namespace import available
from tests.e2e.process_lab import kill

pytestmark = [pytest.mark.e2e, pytest.mark.namespace, pytest.mark.slow_cron]


def holders(entry: bytes) -> list[int]:
    """Return the processes of the computer with this entry in their environment: cron passes no mark on."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and entry in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_job_in_namespaces_survives_cron_and_the_loss_of_its_machine(lab, tmp_path):
    """Agent and job are killed together: only the real cron brings them back. Then the machine is killed."""
    reason = available(tmp_path)
    if reason:
        pytest.skip(reason)
    lab.name = f"ns{os.getpid()}"
    lab.use_example(fast="/opt/tpuctl/fast")
    lab.tpuctl("local", "start", "--machines", "namespace")
    lab.tpuctl("up")
    lab.wait_for("step 6", lambda: lab.at(6, committed=5))
    shown = lab.tpuctl(
        "exec", "--", "cat /etc/cron.d/tpuctl; stat -c %U:%a /etc/cron.d/tpuctl /opt/tpuctl/run-job"
    ).out
    line = (
        "* * * * * root flock -n -E 75 /opt/tpuctl/job.lock /opt/tpuctl/run-job >>/opt/tpuctl/log/agent.log"
    )
    assert line in shown
    assert "root:644" in shown
    assert "root:700" in shown

    mine = f"TPUCTL_DEPLOYMENT={lab.name}".encode()
    before = holders(mine)
    assert len(before) >= 2
    for pid in before:
        # What an agent starts for a moment may be gone already.
        with suppress(FileNotFoundError, ProcessLookupError):
            assert Path(f"/proc/{pid}").stat().st_uid == 0
            kill(pid)
    (heartbeat,) = lab.wait_for("cron", lambda: lab.at(6, attempt=2), 240)
    assert heartbeat["resumed_from"] >= 5

    watch = lab.start("watch")
    lab.tpuctl("local", "preempt", f"{lab.name}-tpu-g1", "--no-notice")
    lab.wait_for("incarnation 2", lambda: lab.at(1, incarnation=2))
    # The machine has a /tmp of its own, so the sign to hurry goes where it can see it.
    lab.tpuctl("exec", "--", "touch /opt/tpuctl/fast")
    lab.end(watch)
    lab.wait_for("their end", lambda: holders(mine) == [])
    lab.tpuctl("down", "--yes", "--delete-data")
