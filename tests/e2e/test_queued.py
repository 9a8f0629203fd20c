"""A deployment through the queue, as a user has it: wait, train, be preempted, be done, leave nothing."""

import json

import pytest

pytestmark = pytest.mark.e2e
QUEUED = "v5litepod-8, request: queued"


def requests(stage):
    """Return name -> state of the queued resources of both zones."""
    found = []
    for zone in ("europe-west4-b", "europe-west4-a"):
        path = f"/v2/projects/local-project/locations/{zone}/queuedResources"
        found += json.loads(stage.get(path) or b"{}").get("queuedResources", [])
    return {one["name"].rpartition("/")[2]: one["state"]["state"] for one in found}


def test_a_job_trains_on_tpus_from_the_queue(stage):
    """The first request waits for stock; a preemption leaves no dead request; `down` leaves nothing."""
    stage.use_example(steps=60, tpu=QUEUED)
    stage.tpuctl("local", "start")
    stage.tpuctl("local", "fault", "tpu.queuedResources.create", "no-capacity")
    up = stage.start("up")
    stage.wait_for(
        "a request in the queue", lambda: requests(stage) == {"e2e-tpu-g1": "WAITING_FOR_RESOURCES"}
    )
    shown = json.loads(stage.tpuctl("status", "--json", "--fresh").out)
    (state,) = [row["state"] for row in shown["resources"] if row["kind"] == "TPU"]
    assert state.startswith("WAITING_FOR_RESOURCES (in the queue since ")
    stage.tpuctl("local", "fault", "state", "queued/e2e-tpu-g1", "PROVISIONING")
    # The queue may have passed before the first observation is published: the bucket takes one record a second.
    assert any(text in stage.end(up).err for text in ("in the queue since", "is READY"))
    watch = stage.start("watch")
    stage.wait_for("a checkpoint", lambda: stage.at(6))
    stage.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    stage.wait_for("the next TPU", lambda: stage.at(1, incarnation=2))
    stage.wait_for("the end of the dead request", lambda: requests(stage) == {"e2e-tpu-g2": "ACTIVE"})
    stage.hurry()
    assert "done:" in stage.end(watch).err
    assert requests(stage) == {}
    stage.tpuctl("down", "--yes", "--delete-data")
    assert requests(stage) == {}
    assert [m for m in stage.machines() if m["running"]] == []
