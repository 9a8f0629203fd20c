"""Whose a connection is: asked of the kernel, and at little cost for those that are refused."""

import contextlib
import os
import socket
import struct

import pytest

from orchestrator.emulator.machines import socket_owner
from orchestrator.emulator.machines.process import ProcessMachines
from orchestrator.emulator.machines.socket_owner import SocketOwner, listening, socket_owner_of
from tests.emulator.machines_lab import lab
from tests.kit.waiting import until
from tests.security.other_user import ROOT, as_nobody

NOBODY = 65534


def test_a_closed_socket_is_not_taken_for_roots():
    """The kernel lists a closed socket under user 0."""
    with listening("127.0.0.1", 0) as listener:
        client = socket.create_connection(listener.getsockname())
        connection, peer = listener.accept()
        ends = peer, connection.getsockname()
        assert socket_owner_of(*ends).uid == os.geteuid()
        client.close()
        until(lambda: socket_owner_of(*ends) is None, "the end of the connection", 90)
        assert socket_owner._asked(*ends) is None or socket_owner._asked(*ends).uid == 0
        connection.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_two_ways_to_ask_the_kernel_agree(address, monkeypatch):
    """Where sock_diag is not to be had, the table of all connections says the same."""
    with listening("127.0.0.1", 0) as listener:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
            client.connect((address, listener.getsockname()[1]))
            connection, peer = listener.accept()
            ends = peer, connection.getsockname()
            listed = socket_owner._listed(*ends)
            assert listed == socket_owner._asked(*ends) == socket_owner_of(*ends)
            assert listed.inode == os.fstat(client.fileno()).st_ino
            monkeypatch.setattr(socket_owner, "_asked", lambda *_: None)
            assert socket_owner_of(*ends) == listed
            connection.close()


def broken_off(address, count):
    """Make connections that are reset before anybody accepts them."""
    for _ in range(count):
        with socket.create_connection(address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_connections_that_are_reset_at_once_cost_no_look(monkeypatch):
    """A look at the table of all takes longer than a connection: whoever made many held up everybody."""
    looks = []
    monkeypatch.setattr(
        socket_owner, "socket_owner_of", lambda *ends: looks.append(ends) or SocketOwner(os.geteuid(), 1)
    )
    with listening("127.0.0.1", 0) as listener:
        broken_off(listener.getsockname(), socket_owner.REFUSALS - 1)
        with socket.create_connection(listener.getsockname()) as client:
            connection, peer = listener.accept()
            assert peer == client.getsockname()
            connection.close()
    assert len(looks) == 1


@pytest.mark.parametrize("whose", ["nobody's", "another user's"])
def test_a_loop_has_its_turn_between_connections_that_are_refused(monkeypatch, whose):
    """So who may come in waits for some of them, and not for all."""
    looks = []
    owner = None if whose == "nobody's" else SocketOwner(NOBODY, 7)
    monkeypatch.setattr(socket_owner, "socket_owner_of", lambda *ends: looks.append(ends) or owner)
    with listening("127.0.0.1", 0) as listener, contextlib.ExitStack() as clients:
        for _ in range(3 * socket_owner.REFUSALS):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        for turn in (1, 2, 3):
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert len(looks) == turn * socket_owner.REFUSALS


def test_the_table_is_not_read_for_a_connection_that_the_kernel_does_not_know(monkeypatch):
    """Where the kernel has answered once, its no is one; where it never has, the table is what there is."""
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as client:
        assert socket_owner_of(client.getsockname(), listener.getsockname()).uid == os.geteuid()
    tables = []
    monkeypatch.setattr(socket_owner, "_listed", lambda *ends: tables.append(ends))
    ends = ("127.0.0.1", 9), ("127.0.0.1", 10)
    assert socket_owner_of(*ends) is None
    assert not tables
    monkeypatch.setattr(socket_owner, "_answered", [])
    assert socket_owner_of(*ends) is None
    assert tables


def test_who_listens_is_not_taken_for_who_holds_a_connection():
    """The kernel names the listener where it knows no such connection."""
    with listening("127.0.0.1", 0) as listener:
        here = listener.getsockname()
        assert socket_owner_of(here, ("127.0.0.1", 9)) is None
        assert socket_owner_of(here, socket_owner.ANY_PEER).inode == os.fstat(listener.fileno()).st_ino
        assert socket_owner._listed(here, socket_owner.ANY_PEER) == socket_owner_of(
            here, socket_owner.ANY_PEER
        )


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_the_ssh_server_of_a_machine_says_no_word_to_another_user(tmp_path):
    """A server that takes connections before any login is reached by whatever fault its protocol has."""
    with lab(ProcessMachines, tmp_path) as it:
        it.boot()
        where = it.machine.address, it.machines.settings.ssh_port
        assert as_nobody(*where, b"SSH-2.0-mallory\r\n") == b""
        with socket.create_connection(where, timeout=20) as client:
            assert client.recv(8) == b"SSH-2.0-"
        assert it.output("echo in") == "in"
