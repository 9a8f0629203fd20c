"""
What a local cloud is started with survives its restart.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.local.hosts.environment import machine_environment
from orchestrator.local.hosts.settings import HostSettings
from orchestrator.local.model.machines import Machine
from orchestrator.local.model.settings import PROFILES
from orchestrator.local.options import free_ports, load_options, save_options


def test_notice_replaces_that_of_the_profile_and_is_kept(tmp_path):
    """The notice is the profile's unless one is given; the given one is there after a restart."""
    options = load_options(tmp_path)
    assert options.cloud_settings().latency == PROFILES["scaled"]
    save_options(tmp_path, replace(options, notice=8.0))
    assert load_options(tmp_path).cloud_settings().latency == replace(PROFILES["scaled"], notice=8.0)


def test_folder_of_virtual_environments_reaches_the_machines(monkeypatch, tmp_path):
    """A replaced machine sees TPUCTL_VENV_CACHE and need not install again, but no setting of ours."""
    monkeypatch.setenv("TPUCTL_VENV_CACHE", "/somewhere")
    monkeypatch.setenv("TPUCTL_TPU__SPOT", "false")
    machine = Machine("m", 1, "m", "vm", "z", "p", 1, "127.0.0.9", "e2-small", "s@p", (), preemptible=True)
    settings = HostSettings(tmp_path, "c", "http://127.0.0.1:1", 22, 80)
    paths = dict.fromkeys(("files", "binaries", "temporary", "authorities"), tmp_path)
    seen = machine_environment(machine, settings, **paths)
    assert seen["TPUCTL_VENV_CACHE"] == "/somewhere"
    assert "TPUCTL_TPU__SPOT" not in seen


def test_no_outgoing_connection_takes_a_port_between_the_choice_and_the_start():
    """The system gives others to them; what is in use is passed over."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 12_000:
        pytest.skip("this computer gives almost all ports to outgoing connections")
    ports = free_ports(300)
    assert len(set(ports)) == 300
    assert all(10_000 <= port < first for port in ports)


def test_ports_stay_and_missing_ones_are_added(tmp_path):
    """Machines that outlive a daemon find the next one; an older local cloud gets the proxy's ports."""
    first = load_options(tmp_path)
    save_options(tmp_path, first)
    assert load_options(tmp_path) == first
    body = json.loads((tmp_path / "options.json").read_text())
    (tmp_path / "options.json").write_text(json.dumps({**body, "proxy_port": 0, "setup_proxy_port": 0}))
    later = load_options(tmp_path)
    assert later.proxy_port != later.setup_proxy_port != 0
    assert replace(later, proxy_port=first.proxy_port, setup_proxy_port=first.setup_proxy_port) == first
