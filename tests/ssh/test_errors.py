"""No error of paramiko, of a socket or of a broken stream gets through: each becomes ours, with a code."""

import fabric
import paramiko
import pytest

from orchestrator.errors import HostKeyError, RemoteError, TpuctlError
from orchestrator.ssh.connect.connection import Connection

ROOTS = (paramiko.SSHException, OSError, EOFError)
BELOW = {"paramiko", "fabric", "builtins", "socket", "ssl", "io", "_io"}
"""What a connection is built on: other libraries define subclasses of OSError too."""


def subclasses(kind):
    """Return a class and all below it."""
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def library_errors(file):
    """Return an error of every class that a connection may meet; *file* is a key that a machine may show."""
    key = paramiko.Ed25519Key.from_private_key_file(str(file))
    kinds = {sub for root in ROOTS for sub in subclasses(root) if sub.__module__.split(".")[0] in BELOW}
    assert {paramiko.ChannelException, ConnectionAbortedError} < kinds
    errors = []
    for kind in sorted(kinds, key=str):
        error = kind.__new__(kind, "x")
        # What the texts of some of them are made of.
        error.__dict__.update(
            code=1, text="x", command="x", error="x", result=(), explanation="x", allowed_types=["x"],
            hostname="x", key=key, expected_key=key,
        )  # fmt: skip
        errors.append(error)
    return errors


def fail(error):
    """Raise *error*."""
    raise error


def met(step):
    """Return what *step* raises."""
    with pytest.raises(TpuctlError) as caught:
        step()
    return caught.value


def test_no_error_of_a_login_gets_through(machine, settings, monkeypatch):
    """Another host key than the pinned one is told apart; all else is a failure of SSH."""
    for error in library_errors(settings.key):
        monkeypatch.setattr(fabric.Connection, "open", lambda _, error=error: fail(error))
        found = met(Connection(machine.host, settings, None).open)
        expected = HostKeyError if isinstance(error, paramiko.BadHostKeyException) else RemoteError
        assert type(found) is expected, error
        assert found.code in ("TPU-500", "TPU-510")
        assert found.message.partition(": ")[2], error


@pytest.mark.parametrize(
    "step",
    [
        lambda connection: connection.execute("true"),
        lambda connection: connection.dial("127.0.0.1", 80, ("127.0.0.1", 1)),
    ],
    ids=["execute", "dial"],
)
def test_no_error_after_the_login_gets_through(step, machine, settings, monkeypatch):
    """Whatever a channel that is asked for raises, the connection names the machine and the next command."""
    with Connection(machine.host, settings, None) as connection:
        for error in library_errors(settings.key):
            with monkeypatch.context() as patch:
                patch.setattr(paramiko.Transport, "open_channel", lambda *_, error=error, **__: fail(error))
                found = met(lambda: step(connection))
            assert (type(found), found.code) == (RemoteError, "TPU-500"), error
            assert machine.host.name in found.message
            assert found.hint
