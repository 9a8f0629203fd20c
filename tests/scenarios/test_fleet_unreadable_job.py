"""A job of a fleet that cannot be read, or that Slurm refuses: all others go on, and it is named."""

import pytest

from orchestrator.emulator.state.storage.stored import Preconditions
from tests.scenarios.test_fleet import FleetOwner, ended

ORDER = ".tpuctl/orders/{}.json"


@pytest.fixture
def owner(cloud):
    """Give the computer of a fleet with two jobs, of which Slurm has forgotten all."""
    owner = FleetOwner(cloud)
    owner.up("--yes")
    for name in ("bad", "good"):
        assert owner.submit(name, tasks=1).code == 0
    (controller,) = cloud.machines.fleet.controllers.values()
    controller.lose_state()
    return owner


@pytest.mark.parametrize("spoiled", [b"\xff not json", b'{"schema": 1, "order": {}}'])
def test_a_job_that_cannot_be_read_is_named_and_the_others_are_done(cloud, owner, spoiled):
    """Once, with what to do; what it has done counts as idle, and that is said too."""
    cloud.put_object(ORDER.format("bad"), spoiled)
    said = owner.run("watch", interrupt=1200, timeout=7200)
    assert (ended(cloud, "good"), ended(cloud, "bad")) == (["0.done"], [])
    assert said.err.count("the job bad cannot be read") == 1
    assert f"delete {ORDER.format('bad')}" in said.err
    shown = owner.fleet("queue", "--json")
    assert ([job["name"] for job in shown["jobs"]], list(shown["unread"])) == (["good"], ["bad"])
    assert "the job bad cannot be read" in owner.run("queue").out
    assert "counted as idle: bad" in owner.run("fleet", "cost").out
    assert "the job bad cannot be read" in owner.run("up", "--yes").err


def test_a_spoiled_job_is_submitted_again_as_its_error_says(cloud, owner):
    """Its name is free once the object is gone."""
    cloud.put_object(ORDER.format("bad"), b"{}")
    refused = owner.submit("bad", tasks=1)
    assert (refused.code, "the job bad cannot be read" in refused.err) == (1, True), refused.err
    cloud.storage.objects.delete(cloud.buckets()[0], ORDER.format("bad"), None, Preconditions())
    assert owner.submit("bad", tasks=1).code == 0
    owner.run("watch", interrupt=1200, timeout=7200)
    assert ended(cloud, "bad") == ["0.done"]


def test_a_job_that_slurm_refuses_is_named_and_the_others_are_queued(cloud, owner):
    """The user who submits it gets the warning too."""
    (controller,) = cloud.machines.fleet.controllers.values()
    controller.refused = {"bad"}
    said = owner.run("watch", interrupt=1200, timeout=7200)
    assert (ended(cloud, "good"), ended(cloud, "bad")) == (["0.done"], [])
    assert said.err.count("sbatch: error: bad") == 1
    refused = owner.submit("bad", tasks=1)
    assert (refused.code, "sbatch: error: bad" in refused.err) == (1, True)
