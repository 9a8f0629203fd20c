"""What a local cloud is started with survives its restart."""

import json
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.emulator.address import Address, read_address, start_of, write_address
from orchestrator.emulator.control import environment, ssh_programs
from orchestrator.emulator.machines.environment import machine_environment
from orchestrator.emulator.machines.machine_settings import MachineSettings
from orchestrator.emulator.start_options import free_ports, load_options, save_options
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.emulator.state.values.machine import Machine


def test_a_given_notice_replaces_that_of_the_profile_and_is_stored(tmp_path):
    """The notice is the profile's unless one is given; the given one is there after a restart."""
    options = load_options(tmp_path)
    assert options.cloud_settings().latency == PROFILES["scaled"]
    save_options(tmp_path, replace(options, notice=8.0))
    assert load_options(tmp_path).cloud_settings().latency == replace(PROFILES["scaled"], notice=8.0)


def test_the_project_is_a_new_one_until_an_option_lifts_that(tmp_path):
    """What `--quota` names goes before it; `--no-fresh-project` is stored for the next start."""
    assert load_options(tmp_path).cloud_settings().fresh_project
    save_options(tmp_path, replace(load_options(tmp_path), fresh_project=False))
    assert not load_options(tmp_path).cloud_settings().fresh_project


def test_folder_of_virtual_environments_reaches_the_machines(monkeypatch, tmp_path):
    """A replaced machine sees TPUCTL_VENV_CACHE and need not install again, but no setting of ours."""
    monkeypatch.setenv("TPUCTL_VENV_CACHE", "/somewhere")
    monkeypatch.setenv("TPUCTL_TPU__SPOT", "false")
    machine = Machine("m", 1, "m", "vm", "z", "p", 1, "127.0.0.9", "e2-small", "s@p", (), preemptible=True)
    settings = MachineSettings(tmp_path, "c", "http://127.0.0.1:1", 22, 80)
    paths = dict.fromkeys(("files", "binaries", "temporary", "authorities"), tmp_path)
    observed = machine_environment(machine, settings, **paths)
    assert observed["TPUCTL_VENV_CACHE"] == "/somewhere"
    assert "TPUCTL_TPU__SPOT" not in observed


def test_no_outgoing_connection_takes_a_port_between_the_choice_and_the_start():
    """The system gives others to them; what is in use is passed over."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 12_000:
        pytest.skip("this computer gives almost all ports to outgoing connections")
    ports = free_ports(300)
    assert len(set(ports)) == 300
    assert all(10_000 <= port < first for port in ports)


def test_two_clouds_give_their_machines_other_ids(tmp_path):
    """Gcloud keeps host keys by them, and takes another machine with the id of an old one for an attack."""
    seeds = {load_options(tmp_path / name).cloud_settings().seed for name in ("a", "b", "c")}
    assert len(seeds) == 3
    known = replace(load_options(tmp_path), seed=7)
    assert known.cloud_settings().seed == 7


def test_two_clouds_do_not_share_a_range_of_addresses(tmp_path):
    """Their machines would meet at port 22: a range where somebody listens is passed over."""
    usual = load_options(tmp_path).address_base
    with socket.socket() as machine:
        machine.bind((usual.replace(".0.0", ".0.9"), 0))
        machine.listen()
        assert load_options(tmp_path).address_base != usual
    assert load_options(tmp_path).address_base == usual


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_ssh_finds_machines_where_no_program_may_listen_on_port_22(tmp_path):
    """The programs for PATH know the port of this cloud's machines, and of no others."""
    programs = ssh_programs(tmp_path, "127.99.0.0", 23456)

    def port(*words: str) -> str:
        shown = subprocess.run([programs / "ssh", "-G", *words], capture_output=True, text=True, check=True)
        return next(line.split()[1] for line in shown.stdout.splitlines() if line.startswith("port "))

    assert [port("127.99.0.2"), port("127.98.0.2"), port("-p", "22", "127.99.0.2")] == ["23456", "22", "22"]
    assert (programs / "scp").exists()


def test_the_shell_is_led_to_the_local_cloud_alone(tmp_path, monkeypatch):
    """Every endpoint is the local cloud's; gcloud's way to any other host is a proxy that refuses."""
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path))
    options = replace(load_options(tmp_path), proxy_port=4711)
    save_options(tmp_path, options)
    observed = environment(Address(1, 1, "http://127.0.0.1:8", options.ssh_port, "p", "process"))
    overrides = {k: v for k, v in observed.items() if "ENDPOINT" in k}
    assert len(overrides) > 15
    assert all(value.startswith("http://127.0.0.1:8") for value in overrides.values())
    assert (observed["CLOUDSDK_PROXY_TYPE"], observed["CLOUDSDK_PROXY_PORT"]) == ("http", "4711")


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


def test_files_of_an_earlier_local_cloud_call_its_machines_hosts(tmp_path):
    """A cloud that runs is found by another version, and starts again with the machines that it had."""
    (tmp_path / "options.json").write_text('{"cloud_id": "1", "hosts": "namespace"}')
    options = load_options(tmp_path)
    assert options.machines == "namespace"
    save_options(tmp_path, replace(options, machines="process"))
    assert json.loads((tmp_path / "options.json").read_text())["hosts"] == "process"
    here = Address(os.getpid(), start_of(os.getpid()), "http://127.0.0.1:1", 22, "p", "process")
    write_address(tmp_path, here)
    assert json.loads((tmp_path / "daemon.json").read_text())["hosts"] == "process"
    assert read_address(tmp_path) == here
