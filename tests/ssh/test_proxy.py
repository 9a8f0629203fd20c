"""What carries the connection of OpenSSH: a machine that says nothing is none, and no byte is lost at the end."""

import os
import socket
import threading
from contextlib import closing

import pytest

from orchestrator.domain.remote import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh.proxy import ServerLine, hung_up


@pytest.fixture
def server():
    """Give a listening socket on this computer."""
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        yield one


def line_to(server, settings):
    """Return a line to what listens there."""
    return ServerLine(
        Host("demo-tpu-g1-w0", *server.getsockname()[:1], (), server.getsockname()[1]), settings, None
    )


def test_all_that_a_machine_says_comes_through(server, settings):
    """Also what it says last, after it has stopped listening."""
    line, last = line_to(server, settings), os.urandom(3_000_000)
    received, spoken = bytearray(), bytearray()

    def machine():
        there, _ = server.accept()
        with closing(there):
            there.sendall(b"SSH-2.0-x\r\n")
            while len(spoken) < 5:
                spoken.extend(there.recv(5))
            there.shutdown(socket.SHUT_RD)
            there.sendall(last)

    def client():
        while data := os.read(out_here, 65536):
            received.extend(data)

    in_there, in_here = os.pipe()
    out_here, out_there = os.pipe()
    threads = [threading.Thread(target=work, daemon=True) for work in (machine, client)]
    for thread in threads:
        thread.start()
    line.open()
    os.write(in_here, b"hello")
    line.carry(in_there, out_there)
    line.close()
    os.close(out_there)
    for thread in threads:
        thread.join(60)
    assert (bytes(spoken), bytes(received)) == (b"hello", b"SSH-2.0-x\r\n" + last)


def test_the_proxy_ends_when_the_client_is_gone(server, settings):
    """A machine that was taken away never ends the connection, and nothing may stay behind."""
    line = line_to(server, settings)
    thread = threading.Thread(target=lambda: server.accept()[0].send(b"SSH-2.0-x\r\n"), daemon=True)
    thread.start()
    line.open()
    in_there, in_here = os.pipe()
    assert not hung_up(in_there)
    os.close(in_here)
    assert hung_up(in_there)
    line.carry(in_there, os.open(os.devnull, os.O_WRONLY))
    line.close()


def test_a_machine_that_hangs_up_at_once_is_tried_again(server, settings):
    """It boots, or has too many clients; OpenSSH would give up, so nothing is passed on to it."""

    def machine():
        server.accept()[0].close()

    threading.Thread(target=machine, daemon=True).start()
    with pytest.raises(RemoteError, match=r"demo-tpu-g1-w0.*at once"):
        line_to(server, settings).open()


def test_a_machine_that_does_not_answer_is_named_in_the_error(server, settings):
    """The name helps more than the address."""
    line = line_to(server, settings)
    server.close()
    with pytest.raises(RemoteError, match=r"demo-tpu-g1-w0.*refused"):
        line.open()
