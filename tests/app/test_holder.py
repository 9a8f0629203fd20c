"""Whether another process of this computer still acts under its lease."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.app.this_computer.holder import process_ended, this_process

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    """Start a process whose end nobody collects before the test does."""
    with subprocess.Popen(SLEEPER) as process:
        yield process
        process.kill()


def held_by(pid: int, **changes):
    """Return a lease's holder that is that process of this system."""
    return replace(this_process("watch", 1.0), pid=pid, **changes)


def test_a_process_that_runs_has_not_ended(sleeper):
    """Neither this process nor another one."""
    assert not process_ended(held_by(os.getpid()))
    assert not process_ended(held_by(sleeper.pid))


def test_a_killed_process_has_ended_also_where_no_parent_collects_it(sleeper):
    """In a container without an init that does so, its entry stays for as long as the container runs."""
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    os.kill(sleeper.pid, 0)
    assert process_ended(held_by(sleeper.pid))
    sleeper.wait()
    assert process_ended(held_by(sleeper.pid))


def test_whether_a_process_of_another_system_has_ended_is_unknown(sleeper):
    """The same number is another process there."""
    sleeper.kill()
    sleeper.wait()
    assert not process_ended(held_by(sleeper.pid, boot="another"))
    assert not process_ended(held_by(sleeper.pid, boot=""))
