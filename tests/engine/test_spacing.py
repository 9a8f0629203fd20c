"""
One object is written once a second at most: what belongs together is one write.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.core.names import JOURNAL, LEASE, RECORD
from tests.engine.engine_lab import OTHER_ZONE, ZONE, a_spec

SECOND = 1.0
MACHINES = ".tpuctl/heartbeat/"


@pytest.fixture
def written(lab, monkeypatch):
    """
    Return object -> virtual times at which it was written.
    """
    times = defaultdict(list)
    insert = lab.storage.objects.insert

    def noted(bucket, name, *rest, **more):
        times[name].append(lab.clock.now())
        return insert(bucket, name, *rest, **more)

    monkeypatch.setattr(lab.storage.objects, "insert", noted)
    return times


def too_soon(written):
    """
    Return the controller's objects that were written twice within a second, with the gaps.
    """
    found = {}
    for name, times in written.items():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if any(gap < SECOND for gap in gaps) and not name.startswith(MACHINES):
            found[name] = gaps
    return found


@pytest.mark.parametrize("request_by", ["node", "queued"])
def test_no_object_is_written_twice_in_a_second_from_nothing_to_a_job(lab, written, request_by):
    """
    Bucket, VM, TPU, code and job, each with its intent and its result.
    """
    lab.up(a_spec(tpu__request=request_by))
    assert too_soon(written) == {}
    assert written[RECORD]


def test_no_object_is_written_twice_in_a_second_while_a_lost_tpu_is_replaced(lab, written):
    """
    A deletion and a create in one pass are two intents of one write.
    """
    controller = lab.up()
    lab.wait(10)
    written.clear()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(lambda r: "demo-tpu-g2" in lab.nodes() and r.plan.empty and not r.plan.waiting)
    assert too_soon(written) == {}
    intents = [name for name in written if name.startswith(JOURNAL) and ".intent" in name]
    assert len(intents) == 2


def test_a_race_over_zones_is_one_write(lab, written):
    """
    Two TPUs are asked for at once: their intents are in the record together, before any of them.
    """
    lab.up(a_spec(tpu__zones=[ZONE, OTHER_ZONE], tpu__strategy="race"))
    assert lab.mutations()["tpu.nodes.create"] == 2
    assert too_soon(written) == {}


def test_a_quiet_look_writes_nothing(lab, written):
    """
    Only the lease is renewed, once in its time.
    """
    controller = lab.up()
    controller.one_pass()
    lab.wait(15)
    controller.one_pass()
    written.clear()
    for _ in range(8):
        lab.wait(15)
        assert controller.one_pass().plan.empty
    assert {name for name in written if not name.startswith(MACHINES)} <= {LEASE}
    assert len(written[LEASE]) <= 8


def test_what_a_pass_brought_about_is_in_the_bucket_before_a_long_pause(lab):
    """
    Results wait for the next pass only when that comes at once: other computers read the record.
    """
    controller = lab.up()
    lab.wait(10)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(lambda r: "demo-tpu-g2" in lab.nodes())
    other = lab.controller(state="elsewhere", beside=False)
    assert replace(other.history, serial=0, fence=0) == replace(controller.history, serial=0, fence=0)
    assert other.history.accepted
