"""Commands end with an exit code or an error; nothing that was lost counts as success."""

import itertools
import os
import pty
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from orchestrator.errors import RemoteError
from orchestrator.ssh import run
from orchestrator.ssh.remote import Ssh
from tests.kit.waiting import until


def test_a_command_returns_its_code_its_output_and_its_errors(any_machine, ssh):
    """Input, both output streams and the code pass unharmed."""
    (result,) = ssh.run([any_machine.host], "cat; echo oops >&2; exit 7", 20, stdin="안녕\n")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "안녕\n", "oops\n")


def test_large_streams_do_not_block_each_other(machine, ssh):
    """Three megabytes in, out and on the error stream at the same time."""
    text = "x" * 3_000_000
    (result,) = ssh.run([machine.host], "head -c 3000000 /dev/zero | tr '\\0' e >&2; cat", 60, stdin=text)
    assert (len(result.stdout), len(result.stderr)) == (3_000_000, 3_000_000)


def test_a_machine_that_prints_without_end_is_cut_off(openssh, ssh, settings, monkeypatch):
    """Else it would fill the memory of the computer that watches it, and end the watch; lines are bounded too."""
    monkeypatch.setattr(run, "MAX_OUTPUT", 1 << 20)
    monkeypatch.setattr(run, "MAX_LINE", 1 << 16)
    with pytest.raises(RemoteError, match="printed more than 1 MiB"):
        ssh.run([openssh.host], "head -c 9000000 /dev/zero", 60)
    (result,) = ssh.run([openssh.host], "head -c 5000000 /dev/zero >&2; exit 3", 60)
    assert (result.exit_code, len(result.stderr) < 2 << 20) == (3, True)
    lines = list(run.follow(Ssh(settings).connect(openssh.host), "head -c 3000000 /dev/zero"))
    assert (max(len(line) for line in lines) < 1 << 20, sum(map(len, lines))) == (True, 3_000_000)


def test_a_command_that_takes_too_long_is_cut_at_its_deadline(any_machine, ssh):
    """The deadline is ours, whatever the machine does."""
    start = time.monotonic()
    with pytest.raises(RemoteError, match=r"longer than 1 s"):
        ssh.run([any_machine.host], "sleep 300", 1)
    assert time.monotonic() - start < 60


def test_a_command_ended_by_a_signal_is_an_error(machine, ssh):
    """No exit code came, so nothing is known about its work."""
    with pytest.raises(RemoteError, match="demo-tpu-g1"):
        ssh.run([machine.host], "kill -9 $$", 20)


def test_a_killed_command_is_not_called_a_lost_link(openssh, ssh):
    """The machine still answers, so its answer says what ended the command, and what came before that."""
    (answer,) = ssh.ask([openssh.host], "echo so far; kill -9 $$", 20)
    assert (answer.exit_code, answer.stdout) == (None, "so far\n")
    assert "a signal ended it" in answer.error.message


@pytest.mark.parametrize("action", ["close", "reset", "hole"])
def test_one_lost_link_leaves_the_others_their_answers(
    action, any_machine, servers, tmp_path, key, settings, relay
):
    """Each machine has its row: the lost one says why and what came before, the other one is whole."""
    begun = tmp_path / "begun"
    bad, host = relay(any_machine, None, action)
    other = servers.start("other", tmp_path / "other", key.public)

    def break_when_begun() -> None:
        until(begun.exists, "the command has begun", 90, 0.01)
        bad.break_now()

    threading.Thread(target=break_when_begun, daemon=True).start()
    command = f"test $TPUCTL_ROOT = {other.root} && exit 3; echo so far; touch {begun}; exec sleep 60"
    lost, whole = Ssh(replace(settings, stall=4)).ask([host, other.host], command, 90)
    assert (lost.exit_code, lost.error.code) == (None, "TPU-500")
    assert (whole.exit_code, whole.error) == (3, None)


@pytest.mark.parametrize("action", ["close", "reset", "hole"])
def test_a_link_lost_while_a_command_runs_is_an_error(action, any_machine, settings, relay):
    """A closed, a reset and a silent link all end as RemoteError, soon."""
    bad, host = relay(any_machine, None, action)
    threading.Timer(0.8, bad.break_now).start()
    start = time.monotonic()
    with pytest.raises(RemoteError):
        Ssh(replace(settings, stall=1.5)).run([host], "echo begun; sleep 300", 900)
    assert time.monotonic() - start < 60


def test_a_silent_machine_is_given_up_within_the_connect_time(settings, relay, machine):
    """A port that accepts and says nothing does not hold us."""
    _, host = relay(machine, 0, "hole")
    start = time.monotonic()
    with pytest.raises(RemoteError, match=r"no answer|longer than"):
        Ssh(replace(settings, connect=1.0)).run([host], "true", 600)
    assert time.monotonic() - start < 60


def test_a_link_reset_before_the_login_is_tried_once_more(settings, relay, machine):
    """One new connection, not more."""
    bad, host = relay(machine, 100, "reset")
    with pytest.raises(RemoteError):
        Ssh(settings).run([host], "true", 20)
    assert bad.connections == 2


def test_an_unknown_login_key_is_refused_in_words(any_machine, settings, tmp_path):
    """The machine may be booting still, so it may be tried again."""
    from orchestrator.ssh.keys import ensure_key

    foreign = replace(settings, key=ensure_key(tmp_path / "other").path)
    with pytest.raises(RemoteError, match="refused the SSH key") as caught:
        Ssh(foreign).run([any_machine.host], "true", 20)
    assert caught.value.retry.value == "transient"


def test_all_lost_machines_are_named(machine, ssh):
    """One error, every machine in it."""
    hosts = [machine.host, replace(machine.host, name="w1", port=1), replace(machine.host, name="w2", port=1)]
    with pytest.raises(RemoteError, match=r"w1 .*w2 "):
        ssh.run(hosts, "true", 20)


def test_no_machine_is_no_work(ssh):
    """An empty list is answered with an empty list."""
    assert ssh.run([], "true", 5) == []


def test_lines_are_followed_as_they_come(any_machine, ssh):
    """The first lines arrive while the command still runs; leaving early ends the link."""
    lines = ssh.follow(any_machine.host, "echo a; printf 'é\\nc\\n'; sleep 300")
    start = time.monotonic()
    assert list(itertools.islice(lines, 3)) == ["a", "é", "c"]
    lines.close()
    assert time.monotonic() - start < 60


def test_a_followed_command_that_fails_raises_with_its_last_words(machine, ssh):
    """A missing log is not an empty log."""
    with pytest.raises(RemoteError, match="No such file"):
        list(ssh.follow(machine.host, "cat /does/not/exist"))


def test_following_ends_with_an_error_when_the_link_goes_silent(any_machine, settings, relay):
    """A quiet log is fine for longer than the stall time; a dead link is not."""
    bad, host = relay(any_machine, None, "hole")
    lines = Ssh(replace(settings, stall=2.0)).follow(host, "echo a; sleep 3; echo b; sleep 300")
    assert [next(lines), next(lines)] == ["a", "b"]
    bad.break_now()
    start = time.monotonic()
    with pytest.raises(RemoteError, match="no answer"):
        next(lines)
    assert time.monotonic() - start < 60


SHELL = """
import sys
from pathlib import Path
from orchestrator.domain.remote import Host
from orchestrator.ssh.remote import Ssh, SshSettings
user, key, name, address, pin, port, command = sys.argv[1:]
ssh = Ssh(SshSettings(user, Path(key)))
sys.exit(ssh.shell(Host(name, address, (pin,), int(port)), command or None))
"""


def _shell_arguments(settings, host, command):
    values = [
        settings.user,
        str(settings.key),
        host.name,
        host.address,
        host.host_keys[0],
        str(host.port),
        command,
    ]
    return [sys.executable, "-c", SHELL, *values]


def test_a_shell_without_a_terminal_is_a_pipe_with_an_exit_code(any_machine, settings):
    """Bytes go through unchanged, errors apart, the code is the command's."""
    arguments = _shell_arguments(settings, any_machine.host, "cat; echo bad >&2; exit 5")
    done = subprocess.run(arguments, input=b"\x00\xffraw\r\n", capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, b"\x00\xffraw\r\n", b"bad\n")


def test_a_shell_on_a_terminal_has_its_type_and_size(openssh, settings):
    """The remote side sees a terminal of our size, Ctrl-C goes to it, and the local terminal is restored."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    before = termios.tcgetattr(follower)
    command = (
        "stty size; echo $TERM; trap 'echo got-int; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    )
    child = subprocess.Popen(
        _shell_arguments(settings, openssh.host, command),
        stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    observed = b""
    while b"ready" not in observed:
        observed += os.read(leader, 1000)
    os.write(leader, b"\x03")
    assert child.wait(60) == 3
    while b"got-int" not in observed:
        observed += os.read(leader, 1000)
    assert b"31 97" in observed
    assert b"xterm-256color" in observed
    assert termios.tcgetattr(follower) == before
    os.close(leader)
    os.close(follower)
