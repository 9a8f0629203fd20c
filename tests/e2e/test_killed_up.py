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


def test_up_killed_at_several_moments_ends_with_one_tpu_and_one_vm(lab):
    """Each kill hits a later moment; the last `up` finishes the work, and one more finds nothing to do."""
    lab.use_example(vm="{machine_type: e2-small}")
    for what, text in MOMENTS:
        up = lab.start("up")
        if text:
            lab.wait_for(what, lambda up=up, text=text: text in lab.said(up) or up.poll() is not None)
        else:
            time.sleep(0.7)  # `up` is being started, and says nothing yet that could be waited for
        up.kill()
        up.wait(30)
    lab.tpuctl("up")
    assert '"changes_count": 0' in lab.tpuctl("up", "--json").out
    kinds = sorted(m["id"].split("-")[0] for m in lab.machines())
    assert kinds == ["tpu", "vm"], lab.machines()
    lab.wait_for("the job", lambda: lab.at(2))
    assert len(lab.jobs()) == 1
    resources = {r["kind"]: r for r in lab.status()["resources"]}
    assert resources["tpu"]["state"] == "READY"
    assert resources["vm"]["state"] == "RUNNING"
