"""A killed `up` is repeated: the end is the same, and nothing is there twice."""

import time

import pytest

pytestmark = pytest.mark.e2e
MOMENTS = (
    ("before anything", ""),
    ("machines are asked for", "Creating TPU"),
    ("code is in the bucket", "is in the bucket"),
    ("the node is ready", "is READY"),
)


def test_up_killed_at_several_moments_ends_with_one_tpu_and_one_vm(stage):
    """Each kill hits a later moment; the last `up` finishes the work, and one more finds nothing to do."""
    stage.use_example(vm="{machine: e2-small}")
    for what, text in MOMENTS:
        up = stage.start("up")
        if text:
            stage.wait_for(what, lambda up=up, text=text: text in stage.said(up) or up.poll() is not None)
        else:
            time.sleep(0.7)  # `up` is being started, and says nothing yet that could be waited for
        up.kill()
        up.wait(30)
    stage.tpuctl("up")
    assert '"changes_count": 0' in stage.tpuctl("up", "--json").out
    kinds = sorted(m["id"].split("-")[0] for m in stage.machines())
    assert kinds == ["tpu", "vm"], stage.machines()
    stage.wait_for("the job", lambda: stage.at(2))
    assert len(stage.jobs()) == 1
    resources = {r["kind"]: r for r in stage.status()["resources"]}
    assert resources["TPU"]["state"] == "READY"
    assert resources["VM"]["state"] == "RUNNING"
