"""Queued resources in what `tpuctl local` shows and does: over HTTP, with the real commands."""

import json
import subprocess

import pytest
from click.testing import CliRunner

from orchestrator.cli.commands.local import command
from orchestrator.clock import SystemClock
from orchestrator.emulator import control
from orchestrator.emulator.address import CONTROL, Address, start_of, write_address
from orchestrator.emulator.http.admin import admin_routes
from orchestrator.emulator.http.asgi import asgi_app
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.machines.socket_owner import unix_listening
from tests.conformance.clients_kit import QUICK
from tests.emulator.emulator_lab import PROJECT, ZONE, a_lab
from tests.emulator.http_fixture import served
from tests.emulator.queued_kit import submit


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Serve a cloud where the commands look for it; a process of its own stands where the daemon would."""
    found = a_lab(SystemClock(), latency=QUICK, stockouts=frozenset({ZONE}))
    admin_routes(found.router, found.cloud, lambda: None, {})
    app = asgi_app(lambda request: dispatch(found.router, found.cloud, request))
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path))
    process = subprocess.Popen(["sleep", "60"])
    with served(app, unix_listening(tmp_path, CONTROL)):
        started = start_of(process.pid)
        write_address(tmp_path, Address(process.pid, started, "", 0, PROJECT, "process", on_demand=True))
        yield found
    process.kill()
    process.wait()


def run(*words):
    """Run `tpuctl local ...` and return what it prints."""
    done = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_status_shows_them_and_faults_move_them(lab):
    """A line and a JSON entry each; `queued/NAME` names one where a node would be named."""
    submit(lab)
    assert f"queued resource q1  {ZONE}  WAITING_FOR_RESOURCES" in run("status")
    run("fault", "state", "queued/q1", "FAILED")
    (shown,) = json.loads(run("status", "--json"))["queued"]
    assert shown == {"name": "q1", "zone": ZONE, "state": "FAILED"}


def test_a_local_cloud_with_a_queue_is_not_idle(lab):
    """It is not stopped behind the back of somebody who waits; once nobody does, it is."""
    submit(lab)
    assert control.stop_if_idle() is False
    assert control.running() is not None
    lab.cloud.kernel.state.queued.clear()
    assert control.stop_if_idle() is True
    assert control.running() is None
