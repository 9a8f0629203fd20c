"""Tasks of several slices of a fleet whose nodes are in several zones, on a virtual clock."""

import json

import pytest

from orchestrator.contract.node_list import node_list
from tests.scenarios.test_fleet import FleetOwner, ended

A, B = "europe-west4-b", "europe-west4-a"


def submit(owner, slices, steps=40):
    """Submit one task of several slices."""
    job = {"source": "src", "command": "python3 train.py", "target_steps": steps,
           "checkpoint": {"format": "marker", "dir": "bucket"}}  # fmt: skip
    path = owner.folder / "wide.yaml"
    path.write_text(json.dumps({"name": "wide", "slices": slices, "job": job}))
    said = owner.run("submit", str(path))
    assert said.code == 0, said.err


def zones(cloud):
    """Return the zones of the nodes that work."""
    nodes = cloud.model.kernel.state.nodes.values()
    return sorted(node.zone for node in nodes if node.state.name == "READY")


def test_the_queue_says_why_a_task_of_several_slices_waits(cloud):
    """Until one zone has enough nodes."""
    owner = FleetOwner(cloud, tpu__zones=[A, B], fleet__nodes=1)
    owner.up("--yes")
    cloud.change(stockouts=frozenset({A}))
    owner.edit(tpu__zones=[A, B], fleet__nodes=2)
    owner.up("--yes")
    submit(owner, 2)
    cloud.wait(300)
    why = f"needs 2 nodes in one zone, and there are: 1 in {B}, 1 in {A}"
    assert owner.job("wide")["shortage"] == why
    assert f"wide/0 {why}" in owner.run("queue").out


@pytest.fixture
def owner(cloud):
    """Give the computer of a fleet of two nodes whose second one will be lost, and come back in the other zone."""
    owner = FleetOwner(cloud, tpu__zones=[A, B], fleet__nodes=2)
    owner.up("--yes")

    def lose():
        cloud.change(stockouts=frozenset({A}))
        cloud.model.preempt("demo-002-tpu-g1", notice=False)

    cloud.later(200, lose)
    return owner


@pytest.mark.parametrize("kill", [(), ("tpu.nodes.delete demo-001", "after")])
def test_nodes_that_came_back_in_two_zones_come_together_and_the_task_ends(cloud, owner, kill):
    """The other node follows to where there is room, once; also when the watch was killed while it did."""
    submit(owner, 2)
    if kill:
        assert owner.run("watch", kill=kill, timeout=7200).code is None
    owner.run("watch", interrupt=2400, timeout=7200)
    assert (ended(cloud, "wide"), zones(cloud)) == (["0.done"], [B, B])
    assert cloud.machines.fleet.book.verdict == []
    if not kill:
        made = [call.name for call in cloud.log if call.method == "tpu.nodes.create" and call.status < 400]
        assert len(made) == 4, made


def test_an_elastic_task_goes_on_with_the_remaining_nodes(cloud, owner):
    """With `min: 1` no node has to move."""
    submit(owner, {"min": 1, "max": 2}, steps=90)
    owner.run("watch", interrupt=500, timeout=7200)
    (controller,) = cloud.machines.fleet.controllers.values()
    assert node_list(controller.tasks[0].node) == ["demo-001"]
    assert owner.job("wide")["shortage"] == ""
    owner.run("watch", interrupt=1200, timeout=14_400)
    assert (ended(cloud, "wide"), zones(cloud)) == (["0.done"], sorted([A, B]))
