"""The script runner, beside what docs/facts.md 2.4 says of Google's."""

import asyncio
import os
import signal
import time

import pytest

from orchestrator.emulator.machines.namespace import NamespaceMachines, available
from orchestrator.emulator.machines.script_runner import Serial, run_script
from tests.emulator.machines_lab import lab


@pytest.fixture
def run(tmp_path):
    """Return a call that runs one startup script and gives its status and the serial port's text."""
    port = tmp_path / "serial"

    def script(text: str) -> tuple[int, str]:
        work = run_script(
            "startup-script",
            text,
            serial=Serial(port),
            environment={"PATH": os.environ["PATH"]},
            folder=tmp_path,
            temporary=tmp_path,
        )
        return asyncio.run(work), port.read_text()

    return script


def test_stdout_and_stderr_reach_the_serial_port_line_by_line(run):
    """Each line is prefixed; a script without a first line of its own is run by bash."""
    status, text = run("echo one\necho two >&2\n[[ a == a ]] && printf three")
    assert (status, text.splitlines()) == (
        0,
        [
            "startup-script: one",
            "startup-script: two",
            "startup-script: three",
            "startup-script exit status 0",
        ],
    )


def test_the_scripts_own_first_line_rules(run):
    """A script may be of any language."""
    assert "startup-script: 42" in run("#!/usr/bin/env python3\nprint(6 * 7)\n")[1]


def test_a_script_killed_by_a_signal_is_reported(run):
    """The text is the one of a failed script."""
    status, text = run("kill -9 $$")
    assert (status, text.strip()) == (-9, 'Script "startup-script" failed with error: signal: killed')


def test_a_giant_line_ends_the_copying_but_not_the_script(run, tmp_path):
    """Lines longer than 64 KiB stop the log, as on the real machine."""
    status, text = run(
        f"echo first; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last; touch {tmp_path}/done"
    )
    assert status == 0
    assert "startup-script: first" in text
    assert "last" not in text
    assert (tmp_path / "done").exists()


def test_a_background_process_of_a_script_does_not_hold_the_boot(run):
    """A background process that keeps the output open is not waited for."""
    started = time.monotonic()
    status, text = run("sleep 300 &\necho number $!")
    os.kill(int(text.partition("number ")[2].split()[0]), signal.SIGKILL)
    assert status == 0
    assert time.monotonic() - started < 100


def test_a_folder_with_blanks_in_its_name_is_as_good_as_any(tmp_path):
    """The local cloud's folder may lie in a home such as `/Users/Kim Min`."""
    home = tmp_path / "Kim Min's 구름"
    home.mkdir()
    work = run_script(
        "startup-script",
        "echo here",
        serial=Serial(home / "serial"),
        environment={"PATH": os.environ["PATH"]},
        folder=home,
        temporary=home,
    )
    assert asyncio.run(work) == 0
    assert "startup-script: here" in (home / "serial").read_text()


def test_the_script_file_is_gone_afterwards(run, tmp_path):
    """It may hold secrets."""
    run("true")
    assert [path.name for path in tmp_path.iterdir()] == ["serial"]


@pytest.mark.namespace
def test_a_listed_user_that_the_computer_knows_becomes_root_equivalent(tmp_path):
    """Keys give the rights that google-sudoers gives, whatever the name meant on the computer."""
    if reason := available(tmp_path):
        pytest.skip(reason)
    with lab(NamespaceMachines, tmp_path) as it:
        it.authorize("games", it.key)
        it.boot()
        assert str(it.run("id -u; echo $HOME", "games").stdout).split() == [
            *("0", "/home/games"),
        ]
