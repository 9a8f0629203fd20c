"""Machines that refuse, change or fill up, and pushes and connections that come back late."""

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import RemoteError
from orchestrator.ssh.remote import Ssh
from tests.kit.addresses import free_address
from tests.ssh.chaos_machine import DeliveryLab
from tests.ssh.toxics import LATER

BOUND = 3.0


def test_a_refused_login_changes_nothing_and_the_next_one_delivers(lab: DeliveryLab) -> None:
    """The machine does not know our key yet."""
    machine = lab.machine()
    old = machine.tree()
    machine.refuse_logins(True)
    error, _ = machine.deliver(lab.bundle("new", 100_000), BOUND)
    assert "refused the SSH key" in error
    assert (machine.tree(), machine.starts()) == (old, [])

    machine.refuse_logins(False)

    assert machine.deliver(lab.bundle("newer", 100_000), BOUND)[0] == ""
    machine.until(lambda: not machine.starting(), "the job has begun")
    assert (len(machine.tree()), len(machine.starts())) == (2, 1)


def test_a_changed_host_key_gets_no_byte_of_ours(lab: DeliveryLab) -> None:
    """Between two deliveries another machine has taken the address."""
    machine = lab.machine()
    assert machine.deliver(lab.bundle("new", 100_000), BOUND)[0] == ""
    machine.until(lambda: not machine.starting(), "the job has begun")
    new = machine.tree()
    machine.change_host_key()

    error, _ = machine.deliver(lab.bundle("newer", 100_000), BOUND)

    assert "host key" in error
    assert (machine.tree(), len(machine.starts())) == (new, 1)


def test_a_full_disk_keeps_the_old_tree_until_there_is_room(lab: DeliveryLab, small_disk: Path) -> None:
    """The machine's own words reach the caller, and the next delivery succeeds once the disk has room."""
    machine = lab.machine(small_disk / "root")
    old = machine.tree()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_600_000))
    bundle = lab.bundle("new", 800_000)
    error, _ = machine.deliver(bundle, BOUND)
    assert "No space left on device" in error
    assert (machine.tree(), machine.leftovers(), machine.starts()) == (old, [], [])
    ballast.unlink()

    assert machine.deliver(bundle, BOUND)[0] == ""

    machine.until(lambda: not machine.starting(), "the job has begun")
    assert (len(machine.tree()), len(machine.starts())) == (2, 1)


def test_a_push_that_wakes_up_late_does_not_bring_its_older_tree_back(lab: DeliveryLab) -> None:
    """The link of the first push is lost while the machine unpacks; a second one is done before it goes on."""
    machine = lab.machine()
    machine.arm("reset_peer", LATER)
    machine.strike_at("commit", hold=True)
    error, _ = machine.deliver(lab.bundle("first", 100_000), BOUND)
    assert "the connection was lost" in error
    machine.heal()
    assert machine.deliver(lab.bundle("second", 100_000), BOUND)[0] == ""
    second = machine.tree()

    machine.let_go("commit")
    machine.let_old_connections_go()

    machine.until(lambda: not machine.leftovers(), "the first push has ended")
    assert machine.tree() == second


def test_a_machine_that_answers_no_connection_is_given_up_at_the_deadline(lab: DeliveryLab) -> None:
    """The shorter one of the two bounds counts, also while TCP still knocks."""
    machine = lab.machine()
    with socket.create_server((free_address(), 0), backlog=0) as deaf:
        address, port = deaf.getsockname()[:2]
        knocking = [socket.socket() for _ in range(4)]
        for one in knocking:
            one.setblocking(False)
            one.connect_ex((address, port))
        host = replace(machine.host, address=address, port=port)
        begun = time.monotonic()
        with pytest.raises(RemoteError, match=r"no answer|longer than"):
            Ssh(machine.settings(120)).run([host], "true", 1.0)
        for one in knocking:
            one.close()
    assert time.monotonic() - begun < 60
