"""Tasks of several slices of a fleet whose nodes are in several zones, on a virtual clock."""

import json

from tests.scenarios.test_fleet import Owner

A, B = "europe-west4-b", "europe-west4-a"


def test_the_queue_says_why_a_task_of_several_slices_waits(cloud):
    """Until one zone has enough nodes."""
    owner = Owner(cloud, tpu__zones=[A, B], fleet__nodes=1)
    owner.up("--yes")
    cloud.change(stockouts=frozenset({A}))
    owner.edit(tpu__zones=[A, B], fleet__nodes=2)
    owner.up("--yes")
    job = {"command": "x", "checkpoint": {"format": "marker", "dir": "bucket"}}
    path = owner.folder / "wide.yaml"
    path.write_text(json.dumps({"name": "wide", "slices": 2, "job": job}))
    assert owner.run("submit", str(path)).code == 0
    cloud.wait(300)
    why = f"needs 2 nodes in one zone, and there are: 1 in {B}, 1 in {A}"
    assert owner.job("wide")["shortage"] == why
    assert f"wide/0 {why}" in owner.run("queue").out
