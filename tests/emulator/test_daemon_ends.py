"""A machine of the local cloud believes its daemon and nobody else, and does not outlive it."""

import asyncio
import os
import subprocess
import sys

import pytest

from orchestrator.emulator.address import own, owner_ended
from orchestrator.emulator.machines import guest_metadata
from orchestrator.emulator.machines.guest_metadata import (
    ForeignServerError,
    MetadataClient,
    connected,
    the_end,
)
from orchestrator.emulator.machines.process_table import members, table
from orchestrator.emulator.machines.socket_owner import held_for_us, listening
from tests.kit.addresses import free_address
from tests.kit.waiting import until

SQUATTER = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], 0)) if sys.argv[2] == "root" else None
os.setgroups([]); os.setgid(65534); os.setuid(65534)
listener = listener or socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
while sys.argv[3] == "answer":
    client, _ = listener.accept()
    text = b'{"ssh-keys": "root:ssh-ed25519 AAAA mallory"}'
    client.sendall(b"HTTP/1.1 200 OK\\r\\nETag: 1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(text) + text)
    client.settimeout(2)
    try:
        print(client.recv(65536), flush=True)
    except OSError:
        print(b"", flush=True)
    if sys.argv[4] == "leave":
        client.close()
sys.stdin.read()
"""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def squat():
    """Let another user serve at a free port; return the address, the port and the process."""
    started = []

    def serve(bound_by="nobody", then="answer", leave="stay"):
        address = free_address()
        words = [sys.executable, "-c", SQUATTER, address, bound_by, then, leave]
        one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        started.append(one)
        return address, int(one.stdout.readline()), one

    yield serve
    for one in started:
        one.kill()
        one.communicate()


@root_only
@pytest.mark.parametrize("leave", ["stay", "leave"])
def test_another_users_server_gets_nothing_and_is_not_believed(squat, leave):
    """Its answer would say who may log in; it may send it unasked, and be gone before anybody looks."""
    address, port, server = squat(leave=leave)
    with pytest.raises(OSError, match=r"another user|ended|no answer"):
        asyncio.run(
            MetadataClient(address, port).call("GET", "instance/attributes/?recursive=true", timeout=1)
        )
    assert server.stdout.readline() == "b''\n"


@root_only
def test_another_user_who_lets_machines_wait_is_detected_too(squat):
    """He need not accept a connection to keep a machine from seeing that its daemon is dead."""
    address, port, _ = squat(then="wait")
    with pytest.raises(ForeignServerError, match=f"{address}:{port}"):
        asyncio.run(asyncio.wait_for(connected(address, port), 10))
    assert "another user" in asyncio.run(asyncio.wait_for(the_end(address, port), 10))


@root_only
def test_who_accepts_counts_and_not_who_opened_the_port(squat):
    """A port that root has opened for another user is not root's."""
    address, port, server = squat(bound_by="root")
    with pytest.raises(OSError, match="another user"):
        asyncio.run(MetadataClient(address, port).call("GET", "instance/attributes/", timeout=10))
    assert server.stdout.readline() == "b''\n"


def test_a_daemon_that_is_slow_is_not_dead(monkeypatch):
    """It listens, and takes its time; then it answers."""
    looks: asyncio.Queue[bool | None] = asyncio.Queue()

    def look(connection):
        found = held_for_us(connection)
        looks.put_nowait(found)
        return found

    async def wait():
        with listening(free_address(), 0) as listener:
            end = asyncio.create_task(the_end(*listener.getsockname()))
            for _ in range(3):
                assert await asyncio.wait_for(looks.get(), 10) is None
            assert not end.done()
            listener.setblocking(False)
            held, _ = listener.accept()
            while not await asyncio.wait_for(looks.get(), 10):
                continue
            assert not end.done()
        held.close()
        assert "no server answers" in await asyncio.wait_for(end, 10)

    monkeypatch.setattr(guest_metadata, "held_for_us", look)
    asyncio.run(wait())


def test_a_machine_ends_with_its_daemon(booted):
    """Whole, with what hides: nobody would end it, and its programs ask ports that anybody may take."""
    booted.output("setsid nohup env -i sleep 301 >/dev/null 2>&1 & setsid sleep 302 >/dev/null 2>&1 &")
    marker = booted.machines.settings.marker(booted.machine.id)
    alive = members(marker)
    assert len(alive) >= 4
    loop = booted.server._loop
    asyncio.run_coroutine_threadsafe(booted.server.close(), loop).result(10)
    until(lambda: not alive & table().keys(), "the end of the machine's processes", 30)
    assert not members(marker)
    assert not booted.machines.running(booted.machine.id)
    assert "the machine ends with its daemon" in booted.serial()


def test_a_local_cloud_without_its_folder_ends_as_one_without_its_owner(tmp_path):
    """A rehearsal removes the folder at its end, and a command may just have started the cloud there again."""
    folder = tmp_path / "cloud"
    assert owner_ended(folder)
    folder.mkdir(mode=0o700)
    assert not owner_ended(folder)
    own(folder)
    assert not owner_ended(folder)
