"""The local cloud is started by one command; the others wait for that one, but not for ever."""

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from filelock import FileLock

from orchestrator.emulator import control, start_options
from orchestrator.emulator.address import local_folder, start_of
from orchestrator.emulator.machines import socket_owner
from orchestrator.emulator.machines.machine_settings import MARKER
from orchestrator.errors import LocalCloudError
from tests.cli.cli_kit import here


def test_a_command_that_stands_still_while_it_starts_the_local_cloud_holds_up_no_other(monkeypatch, tmp_path):
    """It keeps the lock, so nobody else starts a second one; they say so and end."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    monkeypatch.setattr(control, "LOCK_TIMEOUT", 0.05)
    monkeypatch.setattr(control, "_start", lambda *_, **__: pytest.fail("a second one was started"))
    local_folder().mkdir(parents=True)
    with FileLock(local_folder() / "start.lock"):
        with pytest.raises(LocalCloudError) as caught:
            control.ensure_running()
    assert caught.value.changed == "nothing was started"


@pytest.fixture
def taken(monkeypatch, tmp_path):
    """Give a port that was taken between choice and start; the first choice has it."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        port, chosen = somebody.getsockname()[1], start_options.free_ports
        choices = [chosen, lambda count: [*chosen(count - 1), port]]

        def choose(count):
            return (choices.pop() if choices[1:] else chosen)(count)

        monkeypatch.setattr(start_options, "free_ports", choose)
        yield port
        control.stop()


@pytest.mark.e2e
def test_a_new_cloud_takes_other_ports_where_one_was_just_taken(taken):
    """Nobody knows its ports yet, so nobody has to hear of it."""
    first = start_options.load_options(local_folder())
    assert taken in {getattr(first, name) for name in start_options.PORTS}
    address, started = control.ensure_running(first)
    assert started
    assert control.running() == address
    assert taken not in {
        getattr(start_options.load_options(local_folder()), name) for name in start_options.PORTS
    }


def test_a_text_alone_moves_no_port(monkeypatch, tmp_path):
    """What the daemon left with says that a port is taken; an error that only reads like it is another one."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    other = LocalCloudError("the local cloud did not start: control.socket: address already in use")
    calls = []

    def fails(*_, **__):
        calls.append(1)
        raise other

    monkeypatch.setattr(control, "_start", fails)
    with pytest.raises(LocalCloudError) as caught:
        control.ensure_running()
    assert caught.value is other
    assert len(calls) == 1


@pytest.mark.e2e
def test_a_known_cloud_keeps_its_ports(taken):
    """Machines and shells know them: the error names what is taken, and nothing is changed."""
    first = start_options.load_options(local_folder())
    start_options.save_options(local_folder(), first)
    with pytest.raises(
        LocalCloudError, match=rf"{taken}: address already in use by process {os.getpid()}"
    ) as caught:
        control.ensure_running(first)
    assert "tpuctl local start --other-ports" in caught.value.hint
    assert start_options.load_options(local_folder()) == first


@pytest.mark.e2e
def test_a_known_cloud_takes_other_ports_when_asked_to(taken, capsys):
    """Another user may hold one for as long as he likes: nothing that the cloud keeps has to be given up."""
    first = start_options.load_options(local_folder())
    start_options.save_options(local_folder(), first)
    (local_folder() / "storage").mkdir()
    code, _, err = here(capsys, "local", "start", "--other-ports")
    assert code == 0, err
    now = start_options.load_options(local_folder())
    assert taken not in {getattr(now, name) for name in start_options.PORTS}
    assert now.cloud_id == first.cloud_id
    assert (local_folder() / "storage").is_dir()


def test_settings_that_no_machine_could_run_with_are_not_stored(monkeypatch, tmp_path):
    """Every command would fail with them, `reset` too."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    monkeypatch.setattr(
        "orchestrator.emulator.machines.machine_kinds.available", lambda _: "namespaces need root"
    )
    with pytest.raises(LocalCloudError, match="namespaces need root"):
        control.ensure_running(replace(start_options.load_options(local_folder()), machines="namespace"))
    assert not (local_folder() / "options.json").exists()
    control.reset()
    assert not local_folder().exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("known", [True, False])
def test_a_port_that_another_user_has_taken_names_him(known, monkeypatch):
    """His processes are nobody else's to see; whose the port is, the kernel says."""
    if not known:
        monkeypatch.setattr(socket_owner.pwd, "getpwuid", lambda _: {}["nobody"])
    monkeypatch.setattr(
        socket_owner.process_table, "table", dict
    )  # as a user who may not look at other users' processes
    serve = (
        "import os, socket; os.setuid(65534); a = socket.create_server(('127.0.0.1', 0))\n"
        "print(a.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as squatter:
        port = int(squatter.stdout.readline())
        with pytest.raises(
            OSError, match=r"in use by user nobody \(uid 65534\)" if known else "with uid 65534"
        ):
            socket_owner.listening("127.0.0.1", port)


def test_stop_ends_the_machines_of_a_daemon_that_is_dead(monkeypatch, tmp_path):
    """Whoever takes the dead one's ports would be asked by what runs on them."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    assert not control.stop()
    retained = replace(start_options.load_options(local_folder()), machines="process")
    start_options.save_options(local_folder(), retained)
    (local_folder() / "machines/vm").mkdir(parents=True)
    environ = {**os.environ, MARKER: f"{retained.cloud_id}/vm"}
    with subprocess.Popen(["sleep", "600"], env=environ) as machine:
        (local_folder() / "machines/vm/pid").write_text(f"{machine.pid} {start_of(machine.pid)}\n")
        assert control.stop()
        assert machine.wait(10) == -9
    assert not control.stop()
