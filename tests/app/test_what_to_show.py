"""What `status` shows: decided by its flags, by where it runs and by what this computer knows."""

from pathlib import Path

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.status.what_to_show import AllDeployments, OneDeployment, StatusFlags, what_to_show
from orchestrator.app.this_computer.state_folders import state_folder

HERE = Choice(None, (), "gcp")
ALL = StatusFlags(everything=True)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Run where there is no deployment file and nothing is known."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def know_one():
    """Remember a deployment, as `up` does."""
    folder = state_folder("gcp") / "project" / "mine"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")


@pytest.mark.parametrize(
    ("known", "file", "name", "flags", "shown"),
    [
        pytest.param(True, False, None, StatusFlags(), AllDeployments(), id="no-file-here"),
        pytest.param(False, False, None, StatusFlags(), OneDeployment(follow=False), id="nothing-known"),
        pytest.param(True, True, None, StatusFlags(), OneDeployment(follow=False), id="a-file-here"),
        pytest.param(True, False, "mine", StatusFlags(), OneDeployment(follow=False), id="a-name"),
        pytest.param(True, True, None, StatusFlags(follow=True), OneDeployment(follow=True), id="followed"),
        pytest.param(True, False, None, StatusFlags(follow=True), AllDeployments(), id="no-file-followed"),
        pytest.param(True, True, None, ALL, AllDeployments(), id="all"),
        pytest.param(True, True, None, StatusFlags(follow=True, everything=True), AllDeployments(), id="both"),
    ],
)  # fmt: skip
def test_flags_file_and_knowledge_decide(known, file, name, flags, shown):
    """All are meant only when nothing says which one."""
    if known:
        know_one()
    if file:
        Path("tpuctl.yaml").touch()
    assert what_to_show(HERE, name, flags) == shown
