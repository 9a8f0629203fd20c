"""A tunnel outlives its machine, also while the next one boots."""

import base64
import json
import os
import socket
from types import SimpleNamespace

import pytest

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.machines import tunnel as tunnels
from orchestrator.clock import VirtualClock
from orchestrator.contract.service_state import ServicePhase, ServiceState
from orchestrator.domain.remote import Host, RunResult
from orchestrator.errors import HostKeyError, RemoteError, UsageError
from orchestrator.ssh.connect.pinned_keys import pinned

BODY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + os.urandom(32)).decode()
KEY = f"ssh-ed25519 {BODY}"


class LostConnection:
    """Stand for a connection that is made by the host's published key, and is lost at the next check."""

    alive = False

    def __init__(self, host, *_):
        self.host = host

    def __enter__(self):
        pinned(self.host, None)
        return self

    def __exit__(self, *_):
        """Leave nothing."""


def keep_open(monkeypatch, hosts):
    """Hold a tunnel to *hosts*, one after the other; return those that were reached until the end."""
    reached, waiting = [], list(hosts)
    monkeypatch.setattr(tunnels, "_host", lambda *_: waiting.pop(0))
    monkeypatch.setattr(tunnels, "_over", lambda *_: None if waiting else UsageError("it is over"))
    monkeypatch.setattr(tunnels, "_reach", lambda *words, **_: reached.append(words[2].name) or (None, ""))
    ssh = SimpleNamespace(connect=LostConnection)
    session = SimpleNamespace(clock=VirtualClock(), ssh=ssh, reporter=Reporter())
    service = tunnels.Service("notebook", "tpu", 8888)
    tunnel = SimpleNamespace(lead=lambda _: None)
    tunnels.keep_open(session, service, tunnel, lambda *_: None)
    return reached


def test_a_machine_that_boots_is_waited_for_until_it_publishes_its_key(monkeypatch):
    """It is there, and nobody knows it yet."""
    hosts = [Host("g1", "127.0.0.2", (KEY,)), Host("g2", "127.0.0.3", ()), Host("g2", "127.0.0.3", (KEY,))]
    assert keep_open(monkeypatch, hosts) == ["g1", "g2"]


def test_a_wrong_key_ends_the_tunnel(monkeypatch):
    """What is published and no key is not waited away."""
    with pytest.raises(HostKeyError):
        keep_open(monkeypatch, [Host("g1", "127.0.0.2", (KEY,)), Host("g2", "127.0.0.3", ("no key",))])


def test_an_unknown_machine_is_no_first_contact(monkeypatch):
    """The command says so at once, and what to do."""
    with pytest.raises(HostKeyError, match="has not published one"):
        keep_open(monkeypatch, [Host("g1", "127.0.0.2", ())])


@pytest.mark.parametrize("address", ["127.0.0.1", "127.150.0.9"])
def test_a_port_is_found_on_either_loopback_address_of_a_local_machine(address, monkeypatch):
    """A server of the user's own listens on 127.0.0.1, not on the machine's own address."""
    said = []

    def dial(host, port, _):
        try:
            return socket.create_connection((host, port), 5)
        except OSError as error:
            raise RemoteError("nothing there") from error

    monkeypatch.setattr(tunnels, "run_over", lambda *_: RunResult(0, "127.150.0.9"))
    session = SimpleNamespace(reporter=SimpleNamespace(say=said.append))
    with socket.create_server((address, 0)) as server:
        service = tunnels.Service("port", "tpu", server.getsockname()[1])
        host, connection = Host("g1-w0", "127.150.0.9", ()), SimpleNamespace(dial=dial)
        target, _ = tunnels._reach(session, service, host, connection, fresh=True)
        assert (target.address, said) == (address, [])
    target, _ = tunnels._reach(session, service, host, connection, fresh=True)
    assert (target.address, len(said)) == ("127.150.0.9", 1)


WHOLE = {"address": "127.0.0.2", "port": 6006, "state": "running", "token": "t"}


@pytest.mark.parametrize(
    "reported",
    ["", "null", "5", "[]", "{", "[" * 100_000, "{}", json.dumps(WHOLE) + " " * 20_000]
    + [json.dumps({**WHOLE, key: value}) for key in WHOLE for value in (None, [1], {"a": 1}, True, 1e999)]
    + [json.dumps({**WHOLE, "port": port}) for port in (-1, 65536, 10**400, 1.5, "80")],
)
def test_what_is_no_state_of_a_service_is_waited_for(monkeypatch, reported):
    """A machine that prints anything else does not end the tunnel with a bug of ours."""
    monkeypatch.setattr(tunnels, "run_over", lambda *_: RunResult(0, reported))
    with pytest.raises(RemoteError, match="its state cannot be read") as raised:
        tunnels._state(None, tunnels.Service("tensorboard", "tpu", 6006, sidecar=True))
    assert len(raised.value.message) < 500


def test_a_state_is_text_on_one_line_and_an_address():
    """Before a service runs it has no port; a name is no address."""
    found = tunnels.state_of(
        json.dumps({**WHOLE, "port": 0, "state": "failed\nnext: run x", "address": "a.b"})
    )
    assert (found.service, found.address, found.port) == (
        ServiceState(ServicePhase.FAILED, "failed next: run x"), "127.0.0.1", 0,
    )  # fmt: skip
