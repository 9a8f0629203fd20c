"""Fixtures of the command line's tests."""

import pytest


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path, tmp_path_factory):
    """Take away what the person who runs the tests has: settings, credentials, state, a terminal's width."""
    for name in ("TPUCTL_CLOUD", "TPUCTL_STATE_DIR", "GOOGLE_CLOUD_PROJECT", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))
