"""A port of this computer leads to one of a machine: on loopback only, whole in both directions."""

import contextlib
import socket
import socketserver
import threading

import paramiko
import pytest
from paramiko import common

from orchestrator.errors import UsageError
from orchestrator.ssh.connect.connection import Connection
from orchestrator.ssh.port_forward import HERE, ForwardTarget, Tunnel, free_port, port_here


@pytest.fixture
def tunnel():
    """Offer a tunnel that leads nowhere yet."""
    one = Tunnel(0)
    yield one
    one.close()


@pytest.fixture
def echo():
    """Offer a server that sends everything back, and says goodbye when its client has said all."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while data := self.request.recv(65536):
                self.request.sendall(data)
            self.request.sendall(b"bye")

    with socketserver.ThreadingTCPServer((HERE, 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def through(port: int, data: bytes) -> bytes:
    """Send *data*, say that it is all, and return what comes back."""
    with socket.create_connection((HERE, port), timeout=60) as client:

        def send() -> None:
            with contextlib.suppress(OSError):
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_bytes_pass_whole_in_both_directions(any_machine, settings, tunnel, echo):
    """Two megabytes on each of four connections at once; half-closed ends are passed on."""
    data = bytes(range(256)) * 8000
    with Connection(any_machine.host, settings, None) as connection:
        target = ForwardTarget(connection, HERE, echo)
        assert target.listens()
        tunnel.lead(target)
        answers: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: answers.append(through(tunnel.port, data))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answer == data + b"bye" for answer in answers] == [True] * 4


def test_a_word_about_a_closed_channel_does_not_end_the_others(any_machine, settings, echo):
    """A reader that makes room in the moment in which its channel is closed harms no other channel."""
    with Connection(any_machine.host, settings, None) as connection:
        first, second = (connection.dial(HERE, echo, (HERE, 0)) for _ in range(2))
        first.close()
        room = paramiko.Message()
        room.add_byte(bytes([common.MSG_CHANNEL_WINDOW_ADJUST]))
        room.add_int(first.remote_chanid)
        room.add_int(1)
        first.get_transport()._send_user_message(room)
        second.sendall(b"x")
        assert second.recv(10) == b"x"


def test_a_port_without_a_listener_closes_the_connection(any_machine, settings, tunnel, echo):
    """It is said, so that the owner looks what became of the service; the link stands."""
    with Connection(any_machine.host, settings, None) as connection:
        tunnel.lead(ForwardTarget(connection, HERE, free_port(0) or 1))
        assert through(tunnel.port, b"") == b""
        assert tunnel.refused.wait(60)
        assert not ForwardTarget(connection, HERE, 1).listens()
        assert ForwardTarget(connection, HERE, 1).answers("/") == 0
        tunnel.lead(ForwardTarget(connection, HERE, echo))
        assert not tunnel.refused.is_set()
        assert through(tunnel.port, b"x") == b"xbye"


def test_without_a_machine_connections_are_closed_and_the_port_stays(tunnel):
    """Browsers try again; another program cannot take the port meanwhile."""
    assert through(tunnel.port, b"") == b""
    assert tunnel._listener.getsockname()[0] == "127.0.0.1"
    assert free_port(tunnel.port) == 0
    with pytest.raises(UsageError) as caught:
        Tunnel(tunnel.port)
    assert (caught.value.code, "--port" in caught.value.hint) == ("TPU-135", True)


def test_a_machine_that_shares_this_network_keeps_its_ports(tunnel):
    """A tunnel with the service's own number would keep TensorBoard from starting there again."""
    assert port_here(None, 6006, shared=True) == 0
    assert port_here(7007, 6006, shared=True) == 7007
    with pytest.raises(UsageError) as caught:
        port_here(6006, 6006, shared=True)
    assert (caught.value.code, "--port" in caught.value.hint) == ("TPU-135", True)
    assert port_here(6006, 6006, shared=False) == 6006
    assert port_here(None, tunnel.port, shared=False) == 0
    tunnel.close()
    assert port_here(None, tunnel.port, shared=False) == tunnel.port
