"""The SSH server of a machine is whoever has the machine: it may say more than it was given room for."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import paramiko
import pytest
from paramiko import common
from paramiko.message import Message

from orchestrator.domain.remote import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh.connect.connection import Connection
from orchestrator.ssh.connect.ssh_settings import SshSettings
from orchestrator.ssh.keys import ensure_key
from orchestrator.ssh.run import run_one
from orchestrator.ssh.transfer.upload import push_one

FLOOD = 24 << 20
"""Bytes that the server sends beyond all windows; a real one would go on."""
Server = Callable[[Callable[[socket.socket, paramiko.PKey], None]], Host]


class OpenServer(paramiko.ServerInterface):
    """Let everybody in and take every command."""

    def __init__(self):
        self.asked = threading.Event()

    def check_auth_publickey(self, username, key):
        """Take any key."""
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username):
        """Ask for a key."""
        return "publickey"

    def check_channel_request(self, kind, chanid):
        """Open any channel."""
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        """Take any command, and run none."""
        self.asked.set()
        return True


@pytest.fixture
def hostile() -> Iterator[Server]:
    """Listen with a server that treats each connection as it likes."""
    listener, key = socket.create_server(("127.0.0.1", 0)), paramiko.RSAKey.generate(2048)

    def start(treat: Callable[[socket.socket, paramiko.PKey], None]) -> Host:
        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=treat, args=(client, key), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        pin = f"{key.get_name()} {key.get_base64()}"
        return Host("demo-tpu-g1", "127.0.0.1", (pin,), listener.getsockname()[1])

    yield start
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def settings(tmp_path) -> SshSettings:
    """Log in with a key of a deployment."""
    return SshSettings(user="tpuctl", key=ensure_key(tmp_path / "state").path, stall=10.0)


def flooding(*kind: int) -> Callable[[socket.socket, paramiko.PKey], None]:
    """Return what answers a command with one stream of data, whatever the window, and then ends it well."""

    def treat(client: socket.socket, key: paramiko.PKey) -> None:
        transport, login = paramiko.Transport(client), OpenServer()
        transport.add_server_key(key)
        try:
            transport.start_server(server=login)
            channel = transport.accept(20)
            login.asked.wait(20)
            for _ in range(FLOOD // 30_000):
                message = Message()
                message.add_byte(common.cMSG_CHANNEL_EXTENDED_DATA if kind else common.cMSG_CHANNEL_DATA)
                message.add_int(channel.remote_chanid)
                for number in kind:
                    message.add_int(number)
                message.add_string(b"x" * 30_000)
                transport._send_user_message(message)
            channel.send_exit_status(1)
            channel.close()
        except (OSError, EOFError, AttributeError, paramiko.SSHException):
            return

    return treat


def test_what_comes_beyond_the_window_cuts_the_machine_off(hostile, settings):
    """A push reads errors at its end only; what is sent meanwhile would fill this computer's memory."""
    result = push_one(Connection(hostile(flooding(1)), settings, 60.0), b"code", "0" * 64, "/opt/tpuctl")
    assert "the machine sends more than the agreed window" in result.error


def test_a_packet_has_a_size_that_packets_have(hostile, settings):
    """Before any login, by whoever answers at the address: the first four bytes say up to 4 GiB."""

    def treat(client: socket.socket, _key: paramiko.PKey) -> None:
        client.sendall(b"SSH-2.0-x\r\n" + struct.pack(">IB", 0x7FFFFFF4, 4) + b"\x14\0\0")
        try:
            for _ in range(FLOOD >> 20):
                client.sendall(b"x" * (1 << 20))
            client.settimeout(20)
            while client.recv(1 << 16):
                pass
        except OSError:
            return

    with pytest.raises(RemoteError, match="announces a packet of 2147483632 bytes"):
        run_one(Connection(hostile(treat), settings, 15.0), "true")
