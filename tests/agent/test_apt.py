"""`apt-get` of setup and job: a lock on the lists of packages is waited for, on a machine that has apt."""

import fcntl
import os
import subprocess
import sys

import pytest

from orchestrator.agent.layout import Layout
from orchestrator.agent.machine import apt
from orchestrator.contract.machine_errors import AgentError
from orchestrator.scripts.agent_zipapp import build


@pytest.fixture
def machine(tmp_path) -> dict[str, str]:
    """Return the environment of a machine with an apt-get that prints its arguments, after the agent's in PATH."""
    root, system, lists = (tmp_path / name for name in ("opt", "system", "li sts"))
    for folder in (system, lists):
        folder.mkdir()
    Layout(root).make()
    for name, text in (("apt-get", 'echo "REAL $*"; exit 7'), ("apt-config", f"echo \"$2='{lists}/'\"")):
        (system / name).write_text(f"#!/bin/sh\n{text}\n")
        (system / name).chmod(0o755)
    build(root / "agent.pyz")
    (lists / "lock").touch()
    environ = {"PATH": f"{root}/bin:{system}:/usr/bin:/bin", "HOME": str(tmp_path), "TPUCTL_ROOT": str(root)}
    apt.install_commands(root / "bin", root / "agent.pyz", {"PATH": str(system)})
    return environ


def test_the_apt_wrapper_waits_for_the_lists_and_then_becomes_the_real_program(machine, tmp_path):
    """Words and exit status are the real one's."""
    with (tmp_path / "li sts/lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        words = ["sh", "-c", "exec apt-get install 'a b'"]
        process = subprocess.Popen(
            words, env=machine, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stderr.readline().startswith(f"apt-get: waiting for {tmp_path}/li sts/lock")
        assert process.poll() is None
    out, err = process.communicate(timeout=90)
    assert (out, err, process.returncode) == ("REAL install a b\n", "", 7)


def test_a_free_lock_costs_no_word(machine):
    """As if nobody stood before it."""
    done = subprocess.run(["apt-get", "update"], env=machine, text=True, capture_output=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("REAL update\n", "", 7)


def test_after_ten_minutes_apt_itself_says_who_holds_the_lock(machine, tmp_path, monkeypatch):
    """A stale holder must not hold up a job for ever."""
    now, started = [0.0], []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words[1]) or sys.exit(0))
    monkeypatch.setattr(apt, "_taken", lambda lock: lock == tmp_path / "li sts/lock")

    def wait(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(SystemExit):
        apt.main(["apt-get", "update"], machine, Layout(tmp_path / "opt"), wait, lambda: now[0])
    assert (started, now) == ([["apt-get", "update"]], [apt.LOCK_TIMEOUT])


def test_a_machine_without_apt_gets_no_such_command(machine, tmp_path):
    """`apt` is not there, so `command -v apt` must not find one."""
    assert {path.name for path in (tmp_path / "opt/bin").iterdir()} == {"apt-get"}
    with pytest.raises(AgentError, match="apt is not on this machine"):
        apt.main(["apt"], {"PATH": str(tmp_path / "system")}, Layout(tmp_path / "opt"), print, lambda: 0.0)
