"""Logging in to a machine, whichever kind it is."""

import asyncio
import io
import shutil
import socket
import subprocess

import asyncssh
import paramiko
import pytest

from orchestrator.emulator.control import standard_port_opens
from orchestrator.emulator.machines.process import ProcessMachines
from tests.kit.waiting import until


def test_paramiko_logs_in_with_the_pinned_host_key(booted):
    """The key in the guest attribute is the key the server shows."""
    settings = booted.machines.settings
    client = paramiko.SSHClient()
    name = f"[{booted.machine.address}]:{settings.ssh_port}"
    line = f"{name} ssh-ed25519 {booted.view.guest_attributes['hostkeys/ssh-ed25519']}"
    entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
    assert entry is not None
    client.get_host_keys().add(name, "ssh-ed25519", entry.key)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    key = paramiko.Ed25519Key(file_obj=io.StringIO(booted.key.export_private_key("openssh").decode()))
    client.connect(
        booted.machine.address, settings.ssh_port, "ada", pkey=key, look_for_keys=False, allow_agent=False
    )
    with client:
        _, out, err = client.exec_command("echo out; echo err >&2; exit 7", timeout=30)
        assert (out.read(), err.read(), out.channel.recv_exit_status()) == (b"out\n", b"err\n", 7)


def test_only_listed_keys_of_listed_users_may_log_in(booted):
    """Another key, another user and a password are refused."""
    foreign = asyncssh.generate_private_key("ssh-ed25519")
    for user, key in (("ada", foreign), ("bob", booted.key)):
        with pytest.raises(asyncssh.PermissionDenied):
            asyncio.run(booted.connect(user, key))
    with (
        pytest.raises(paramiko.BadAuthenticationType) as refusal,
        paramiko.Transport((booted.machine.address, booted.machines.settings.ssh_port)) as transport,
    ):
        transport.connect(username="ada", password="ada")
    assert refusal.value.allowed_types == ["publickey"]


def test_keys_follow_the_metadata(booted):
    """A user added while the machine runs can log in; one whose keys vanished cannot."""
    fresh = asyncssh.generate_private_key("ssh-ed25519")
    booted.authorize("bob", fresh)

    async def welcome(user: str, key: asyncssh.SSHKey) -> bool:
        try:
            async with await booted.connect(user, key):
                return True
        except asyncssh.PermissionDenied:
            return False

    until(lambda: asyncio.run(welcome("bob", fresh)), "the login with the new key", 90)
    assert not asyncio.run(welcome("ada", booted.key))


def test_terminals_files_and_tunnels_work(booted):
    """A terminal has the size asked for, SFTP moves files from the home folder, and a port can be reached."""

    async def visit() -> tuple[str, bytes, bytes]:
        async with await booted.connect() as connection:
            shown = await connection.run(
                "stty size; tty >/dev/null", term_type="xterm", term_size=(91, 31), timeout=60
            )
            async with connection.start_sftp_client() as files:
                async with files.open("note", "wb") as file:
                    await file.write(b"text")
                copy = await (await files.open("note", "rb")).read()
            settings = booted.machines.settings
            reader, writer = await connection.open_connection(booted.machine.address, settings.metadata_port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return str(shown.stdout).strip(), copy, line

    assert asyncio.run(visit()) == ("31 91", b"text", b"HTTP/1.1 200 OK\r\n")
    assert booted.output("cat ~/note") == "text"


@pytest.mark.skipif(shutil.which("scp") is None, reason="scp is not installed")
def test_scp_leaves_with_0(booted, tmp_path):
    """OpenSSH's scp takes a session that ends without an exit status for a failure, though the file is there."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(booted.key.export_private_key("openssh"))
    (tmp_path / "note").write_text("text")
    options = [f"-oIdentityFile={key}", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]
    command = ["scp", "-P", str(booted.machines.settings.ssh_port), *options, str(tmp_path / "note")]
    done = subprocess.run(
        [*command, f"ada@{booted.machine.address}:note"], capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, booted.output("cat ~/note")) == (0, "text"), done.stderr


def test_machines_listen_where_gcloud_looks(booted):
    """Gcloud has no setting for another port than 22."""
    if not standard_port_opens(booted.machine.address):
        pytest.skip("this user may not listen on port 22")
    until(lambda: _greets(booted.machine.address, 22), "SSH at port 22", 90)


def _greets(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=60) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def test_large_streams_arrive_whole(booted):
    """Twenty megabytes through a pipe come back with the same checksum."""
    data = bytes(range(256)) * 80_000

    async def push() -> bytes:
        async with await booted.connect() as connection:
            result = await connection.run(
                "tee >(sha256sum >&2) | wc -c", input=data, encoding=None, timeout=60
            )
            return bytes(result.stdout).strip()

    assert asyncio.run(push()) == str(len(data)).encode()


def test_a_terminal_gives_all_output_to_a_client_that_reads_late(booted):
    """What the shell wrote before it ended is not lost when it ends before the client takes it."""
    # OpenSSH lets a shell wait for a slow client; our server has taken most of this before the shell ends.
    last = 20_000 if isinstance(booted.machines, ProcessMachines) else 300

    async def visit() -> str:
        async with await booted.connect() as connection:
            shell = await connection.create_process(
                f"seq 1 {last}; echo $$ >~/shell", term_type="xterm", window=4096
            )
            gone = "until test -s ~/shell && ! kill -0 $(cat ~/shell) 2>/dev/null; do sleep 0.05; done"
            await connection.run(gone, timeout=60)
            return str((await shell.communicate())[0])

    assert asyncio.run(visit()).split() == [str(number) for number in range(1, last + 1)]
