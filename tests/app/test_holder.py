"""Whether another process of this computer still acts under its lease."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.app.this_computer.holder import (
    process_ended,
    this_process,
    wake_process,
    woken_by_others,
)
from orchestrator.app.this_computer.process_lock import only_here

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


def test_a_push_on_this_computer_wakes_the_watch_that_it_waits_for(tmp_path):
    """Else it waits for up to a poll, of 15 s, in which the user does."""
    wake, watch = threading.Event(), this_process("watch", 0.0, ("push",))

    def push():
        with only_here(tmp_path, replace(watch, command="push"), lambda: None):
            pass

    waits = threading.Thread(target=push)
    with only_here(tmp_path, watch, lambda: None), woken_by_others(wake):
        waits.start()
        assert wake.wait(10)
    waits.join(10)
    assert not waits.is_alive()


def test_only_a_process_of_this_system_is_woken():
    """The id of another boot may be any process by now, and one that does not know the signal goes on."""
    wake, mine = threading.Event(), this_process("watch", 0.0)
    with woken_by_others(wake):
        wake_process(replace(mine, boot="another"))
        assert not wake.is_set()
        wake_process(mine)
        assert wake.is_set()
    wake_process(mine)
