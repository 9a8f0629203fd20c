"""
The local cloud is started by one command; the others wait for that one, but not for ever.
"""

import socket

import pytest
from filelock import FileLock

from orchestrator.errors import LocalCloudError
from orchestrator.local import control, options
from orchestrator.local.places import local_folder


def test_a_command_that_stands_still_while_it_starts_the_local_cloud_holds_up_no_other(monkeypatch, tmp_path):
    """It keeps the lock, so nobody else starts a second one; they say so and end."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    monkeypatch.setattr(control, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(control, "_start", lambda *_, **__: pytest.fail("a second one was started"))
    local_folder().mkdir(parents=True)
    with FileLock(local_folder() / "start.lock"):
        with pytest.raises(LocalCloudError) as caught:
            control.ensure_running()
    assert caught.value.unchanged == "nothing was started"


@pytest.fixture
def taken(monkeypatch, tmp_path):
    """Give a port that was taken between choice and start; the first choice has it."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        port, chosen = somebody.getsockname()[1], options.free_ports
        choices = [chosen, lambda count: [*chosen(count - 1), port]]

        def choose(count):
            return (choices.pop() if choices[1:] else chosen)(count)

        monkeypatch.setattr(options, "free_ports", choose)
        yield port
        control.stop()


@pytest.mark.e2e
def test_a_new_cloud_takes_other_ports_where_one_was_just_taken(taken):
    """Nobody knows its ports yet, so nobody has to hear of it."""
    first = options.load_options(local_folder())
    assert taken in {getattr(first, name) for name in options.PORTS}
    address, started = control.ensure_running(first)
    assert started
    assert control.running() == address
    assert taken not in {getattr(options.load_options(local_folder()), name) for name in options.PORTS}


@pytest.mark.e2e
def test_a_known_cloud_keeps_its_ports(taken):
    """Machines and shells know them: the error names what is taken, and nothing is changed."""
    first = options.load_options(local_folder())
    options.save_options(local_folder(), first)
    with pytest.raises(LocalCloudError, match=str(taken)):
        control.ensure_running(first)
    assert options.load_options(local_folder()) == first
