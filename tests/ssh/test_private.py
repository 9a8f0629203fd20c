"""Machines without external address, behind another machine: the local cloud's own SSH server, and its doors."""

import asyncio
import os
import socket
import threading
from dataclasses import replace
from getpass import getuser

import asyncssh
import pytest

from orchestrator.domain.remote import Host, Iap
from orchestrator.emulator.machines.machine_settings import GuestConfig, network_of
from orchestrator.emulator.machines.ssh_server import SshServer
from orchestrator.errors import HostKeyError, NoGcloudError, RemoteError
from orchestrator.ssh.connect import jumps
from orchestrator.ssh.remote import Ssh
from tests.kit.addresses import free_address, free_port


class PrivateNetwork:
    """A network with SSH servers on one loop in a side thread; *logins* counts connections to each."""

    def __init__(self, folder, public):
        self.folder, self.public = folder, public
        self.loop = asyncio.new_event_loop()
        self.servers = {}
        self.logins = {}
        base = free_address().split(".")[:2]
        self.network = ".".join(base)
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def machine(self, name, number, *, private):
        """Start a machine, or start it again with another host key at the same place."""
        address = f"{self.network}.9.{number}"
        port = self.servers[name].port if name in self.servers else free_port(address)
        place = self.folder / name
        place.mkdir(exist_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(place / "key"))
        peers = str(network_of(address)) if private else ""
        config = GuestConfig(
            "process", name, name, address, port, 0, 60.0, str(place), str(place),
            {"PATH": os.environ["PATH"]}, peers,
        )  # fmt: skip
        if name in self.servers:
            self.run(self.servers[name].server.stop())
        server = _Counting(config, self.logins, name)
        server.accounts = {getuser(): (self.public,)}
        self.run(server.start(place / "key"))
        host = Host(name, address, (key.export_public_key().decode().strip(),), port)
        self.servers[name] = _Running(server, port)
        return host

    def close(self):
        async def end():
            for running in self.servers.values():
                await running.server.stop()

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)


class _Running:
    def __init__(self, server, port):
        self.server, self.port = server, port


class _Counting(SshServer):
    """Note whom the server lets in."""

    def __init__(self, config, logins, name):
        super().__init__(config)
        self._logins, self._name = logins, name

    def lets_in(self, peer):
        allowed = super().lets_in(peer)
        self._logins.setdefault(self._name, []).append((peer, allowed))
        return allowed


@pytest.fixture
def cloud(tmp_path, key):
    """Return an empty network."""
    made = PrivateNetwork(tmp_path, key.public)
    yield made
    made.close()


@pytest.fixture
def slice_of(cloud):
    """Return the VM and three private workers behind it."""
    vm = cloud.machine("demo-vm", 2, private=False)
    return vm, [replace(cloud.machine(f"w{i}", 10 + i, private=True), via=vm) for i in range(3)]


def test_a_private_machine_says_nothing_to_an_address_outside_its_network(cloud):
    """It hangs up before the first word, and SSH straight to it fails."""
    host = cloud.machine("w", 5, private=True)
    with socket.create_connection((host.address, host.port), 30) as foreign:
        assert foreign.recv(100) == b""
    member = (f"{cloud.network}.0.77", 0)
    with socket.create_connection((host.address, host.port), 30, source_address=member) as friend:
        assert friend.recv(4) == b"SSH-"


def test_a_machine_connects_from_its_own_address(settings, cloud):
    """What the loop on the VM opens leaves from the VM's address, so a private worker lets it in."""
    host = cloud.machine("w", 5, private=True)
    with pytest.raises(RemoteError):
        Ssh(settings).run([host], "true", 30)
    own = replace(settings, source=f"{cloud.network}.0.77")
    assert Ssh(own).run([host], "echo here", 60)[0].stdout == "here\n"


def test_all_workers_share_one_connection_to_the_machine_on_the_way(settings, cloud, slice_of):
    """It stays for the next step, and the workers see the VM's address, not ours."""
    vm, workers = slice_of
    ssh = Ssh(settings)
    assert [r.stdout for r in ssh.run(workers, "echo one", 60)] == ["one\n"] * 3
    assert [r.stdout for r in ssh.run(workers, "echo two", 60)] == ["two\n"] * 3
    assert len(cloud.logins["demo-vm"]) == 1
    assert cloud.logins["w0"] == [(vm.address, True)] * 2


def test_the_connection_on_the_way_is_closed_when_it_is_not_needed(settings, slice_of, monkeypatch):
    """A loop that has nothing to do for hours holds nothing open."""
    monkeypatch.setattr(jumps, "IDLE_SECONDS", 0.01)
    _, workers = slice_of
    Ssh(settings).run(workers[:1], "true", 60)
    closed = threading.Event()
    for _ in range(600):
        if not settings.jumps._connections:
            closed.set()
            break
        closed.wait(0.05)
    assert closed.is_set()


def test_another_machine_on_the_way_is_refused(settings, cloud, slice_of):
    """A jump does not weaken the check: each hop shows its pinned key, and nothing reaches the worker."""
    _, workers = slice_of
    cloud.machine("demo-vm", 2, private=False)
    with pytest.raises(HostKeyError, match=r"demo-vm .* presents the host key"):
        Ssh(settings).run(workers, "true", 60)
    assert "w0" not in cloud.logins


def test_another_machine_behind_the_way_is_refused(settings, cloud, slice_of):
    """The worker's own key counts, not that of the machine before it."""
    vm, workers = slice_of
    with pytest.raises(HostKeyError, match=r"w0 .* presents the host key"):
        Ssh(settings).run([replace(workers[0], host_keys=vm.host_keys)], "true", 60)


def test_a_worker_that_is_away_is_not_taken_for_the_machine_on_the_way(settings, slice_of):
    """The message names both."""
    _, workers = slice_of
    gone = replace(workers[0], port=free_port(workers[0].address))
    with pytest.raises(RemoteError, match=r"SSH to w0 .* through demo-vm: demo-vm cannot connect to it"):
        Ssh(settings).run([gone], "true", 60)


def test_a_new_connection_takes_the_place_of_a_broken_one(settings, cloud, slice_of):
    """A VM that was taken away and came back is found again."""
    _, workers = slice_of
    ssh = Ssh(settings)
    ssh.run(workers[:1], "true", 60)
    (connection,) = settings.jumps._connections.values()
    connection.close()
    assert ssh.run(workers[:1], "echo again", 60)[0].stdout == "again\n"
    assert len(cloud.logins["demo-vm"]) == 2


def test_without_gcloud_the_message_says_so(settings, cloud, monkeypatch):
    """And what to install."""
    vm = replace(cloud.machine("demo-vm", 2, private=True), iap=Iap("p-1", "z-a", "demo-vm"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoGcloudError, match="needs gcloud, which is not installed") as caught:
        Ssh(settings).run([vm], "true", 60)
    assert caught.value.code == "TPU-501"
    assert "install the Google Cloud CLI" in caught.value.hint


def test_what_gcloud_says_is_the_reason(settings, cloud, monkeypatch, tmp_path):
    """Its last error, and what to do about it."""
    vm = replace(cloud.machine("demo-vm", 2, private=True), iap=Iap("p-1", "z-a", "demo-vm"))
    tool = tmp_path / "bin" / "gcloud"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho \"ERROR: Error while connecting [4033: 'not authorized'].\" >&2\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    with pytest.raises(RemoteError, match=r"through Identity-Aware Proxy: gcloud says: .*4033") as caught:
        Ssh(settings).run([vm], "true", 60)
    assert "roles/iap.tunnelResourceAccessor" in caught.value.hint
