"""What `local stop` says of the deployments whose machines it stops."""

import pytest

from orchestrator.emulator import control
from orchestrator.errors import LocalCloudError
from tests.cli.cli_kit import here

TPUS = [
    {"name": "mine-tpu-g3", "machines": ["a", "b"]}, {"name": "grown", "machines": ["c"]},
    {"name": "old-tpu-g1", "machines": ["d"]},
]  # fmt: skip
MACHINES = [{"id": one, "running": one != "d"} for one in "abcd"]


@pytest.fixture
def cloud(monkeypatch):
    """Stand in for a local cloud that runs with these machines."""
    body = {"tpus": TPUS, "machines": MACHINES}
    monkeypatch.setattr(control, "running", lambda: "an address")
    monkeypatch.setattr(control, "call", lambda _: body)
    monkeypatch.setattr(control, "stop", lambda: True)
    return body


def test_a_stop_names_the_deployments_whose_machines_it_stops(cloud, capsys):
    """They train until then, and nothing is lost: who stops it has to know both."""
    code, out, err = here(capsys, "local", "stop")
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "the local cloud is stopped",
        "  the machines of grown and mine stopped too; the next command on it starts them and the job again",
    ]
    cloud["machines"] = []
    assert here(capsys, "local", "stop")[2].splitlines() == ["the local cloud is stopped"]


def test_a_local_cloud_that_does_not_answer_is_stopped_all_the_same(cloud, monkeypatch, capsys):
    """It is what its own hint says to do."""

    def silent(_):
        raise LocalCloudError("the local cloud does not answer", hint="", changed="")

    monkeypatch.setattr(control, "call", silent)
    assert here(capsys, "local", "stop")[2].splitlines() == ["the local cloud is stopped"]
