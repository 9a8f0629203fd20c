"""Fixtures of the command line's tests."""

import pytest

from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path, tmp_path_factory):
    """Take away what the person who runs the tests has: settings, credentials, state, a terminal's width."""
    for name in ("TPUCTL_CLOUD", "TPUCTL_STATE_DIR", "GOOGLE_CLOUD_PROJECT", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(tmp_path / "cloud"))


@pytest.fixture
def cloud(tmp_path):
    """Give a cloud on a virtual clock, with nothing in it."""
    with VirtualCloud(tmp_path).open() as made:
        yield made


@pytest.fixture
def elsewhere(cloud, tmp_path, monkeypatch):
    """Return a function that gives a user with two deployments, in a folder without the file of one."""

    def with_two(**file):
        user = User(cloud, **file)
        user.up()
        User(cloud, "second", beside=user, name="other", **file).up()
        (tmp_path / "nowhere").mkdir()
        monkeypatch.chdir(tmp_path / "nowhere")
        return user

    return with_two
