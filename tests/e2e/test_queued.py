"""A deployment through the queue, as a user has it: wait, train, be preempted, be done, leave nothing."""

import json

import pytest

pytestmark = pytest.mark.e2e
QUEUED = "v5litepod-8, request: queued"


def requests(lab):
    """Return name -> state of the queued resources of both zones."""
    found = []
    for zone in ("europe-west4-b", "europe-west4-a"):
        path = f"/v2/projects/local-project/locations/{zone}/queuedResources"
        found += json.loads(lab.get(path) or b"{}").get("queuedResources", [])
    return {one["name"].rpartition("/")[2]: one["state"]["state"] for one in found}


def test_a_job_trains_on_tpus_from_the_queue(lab):
    """The first request waits for stock; a preemption leaves no dead request; `down` leaves nothing."""
    lab.use_example(steps=60, tpu=QUEUED)
    lab.tpuctl("local", "start")
    lab.tpuctl("local", "fault", "tpu.queuedResources.create", "no-capacity")
    up = lab.start("up")
    lab.wait_for("a request in the queue", lambda: requests(lab) == {"e2e-tpu-g1": "WAITING_FOR_RESOURCES"})
    shown = json.loads(lab.tpuctl("status", "--json", "--fresh").out)
    (state,) = [row["state"] for row in shown["resources"] if row["kind"] == "tpu"]
    assert state.startswith("WAITING_FOR_RESOURCES (in the queue since ")
    lab.tpuctl("local", "fault", "state", "queued/e2e-tpu-g1", "PROVISIONING")
    # The queue may have passed before the first observation is published: the bucket takes one record a second.
    assert any(text in lab.end(up).err for text in ("in the queue since", "is READY"))
    watch = lab.start("watch")
    lab.wait_for("a checkpoint", lambda: lab.at(6))
    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    lab.wait_for("the next TPU", lambda: lab.at(1, incarnation=2))
    lab.wait_for("the end of the dead request", lambda: requests(lab) == {"e2e-tpu-g2": "ACTIVE"})
    lab.hurry()
    assert "done:" in lab.end(watch).err
    assert requests(lab) == {}
    lab.tpuctl("down", "--yes", "--delete-data")
    assert requests(lab) == {}
    assert [m for m in lab.machines() if m["running"]] == []
