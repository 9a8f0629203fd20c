"""
What a local cloud is started with survives its restart.
"""

from dataclasses import replace

from orchestrator.local.model.settings import PROFILES
from orchestrator.local.options import load_options, save_options


def test_notice_replaces_that_of_the_profile_and_is_kept(tmp_path):
    """The notice is the profile's unless one is given; the given one is there after a restart."""
    options = load_options(tmp_path)
    assert options.cloud_settings().latency == PROFILES["scaled"]
    save_options(tmp_path, replace(options, notice=8.0))
    assert load_options(tmp_path).cloud_settings().latency == replace(PROFILES["scaled"], notice=8.0)


def test_folder_of_virtual_environments_reaches_the_machines(monkeypatch, tmp_path):
    """Machines see TPUCTL_VENV_CACHE, so that a replaced one need not install again, and no other setting of ours."""
    from orchestrator.local.hosts.environment import machine_environment
    from orchestrator.local.hosts.settings import HostSettings
    from orchestrator.local.model.machines import Machine

    monkeypatch.setenv("TPUCTL_VENV_CACHE", "/somewhere")
    monkeypatch.setenv("TPUCTL_TPU__SPOT", "false")
    machine = Machine.__new__(Machine)
    for name, value in {"id": "m", "address": "127.0.0.9", "project": "p", "kind": "vm"}.items():
        object.__setattr__(machine, name, value)
    settings = HostSettings.__new__(HostSettings)
    for name, value in {"cloud_id": "c", "metadata_port": 1, "endpoint": "http://127.0.0.1:2"}.items():
        object.__setattr__(settings, name, value)
    seen = machine_environment(machine, settings, files=tmp_path, binaries=tmp_path, temporary=tmp_path)
    assert seen["TPUCTL_VENV_CACHE"] == "/somewhere"
    assert "TPUCTL_TPU__SPOT" not in seen
