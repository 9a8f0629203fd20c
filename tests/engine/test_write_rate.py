"""One object is written once a second at most: what belongs together is one write."""

from collections import defaultdict
from itertools import pairwise

import pytest

from orchestrator.contract.bucket.object_names import JOURNAL, LEASE, LEASE_RELEASED, RECORD
from orchestrator.engine.lease.lease_release import current
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import LeaseHeldError
from tests.engine.engine_lab import OTHER_ZONE, ZONE, one_zone_spec
from tests.kit.records import changed

SECOND = 1.0
MACHINES = ".tpuctl/heartbeat/"


@pytest.fixture
def written(lab, monkeypatch):
    """Return object -> virtual times at which it was written."""
    times = defaultdict(list)
    put_blob = lab.storage.objects.put_blob

    def recorded(bucket, name, *rest, **more):
        times[name].append(lab.clock.now())
        return put_blob(bucket, name, *rest, **more)

    monkeypatch.setattr(lab.storage.objects, "put_blob", recorded)
    return times


def too_soon(written):
    """Return the controller's objects that were written twice within a second, with the gaps."""
    found = {}
    for name, times in written.items():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if any(gap < SECOND for gap in gaps) and not name.startswith(MACHINES):
            found[name] = gaps
    return found


def refusals(lab, monkeypatch):
    """Let an object change once a second from now on; return where refused changes are recorded."""
    objects, found = lab.storage.objects, []
    check = objects.check_rate

    def recorded(bucket, name):
        if name.startswith(MACHINES):
            return
        try:
            check(bucket, name)
        except Exception:
            found.append(name)
            raise

    monkeypatch.setattr(objects, "_interval", SECOND)
    monkeypatch.setattr(objects, "check_rate", recorded)
    return found


def gone(lab, controller):
    """End a command: what it knows is in the bucket, and the lease released."""
    controller.records.flush()
    controller.lease.release()
    lab.wait(10)


@pytest.mark.parametrize("request_by", ["node", "queued"])
def test_no_object_is_written_twice_in_a_second_from_nothing_to_a_job(lab, written, request_by):
    """Bucket, VM, TPU, code and job, each with its intent and its result."""
    lab.up(one_zone_spec(tpu__request=request_by))
    assert too_soon(written) == {}
    assert written[RECORD]


def test_no_object_is_written_twice_in_a_second_while_a_lost_tpu_is_replaced(lab, written):
    """A deletion and a create in one pass are two intents of one write."""
    controller = lab.up()
    lab.wait(10)
    written.clear()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(lambda r: "demo-tpu-g2" in lab.nodes() and r.plan.settled)
    assert too_soon(written) == {}
    intents = [name for name in written if name.startswith(JOURNAL) and ".intent" in name]
    assert len(intents) == 2


def test_a_race_over_zones_is_one_write(lab, written):
    """Two TPUs are asked for at once: their intents are in the record together, before any of them."""
    lab.up(one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE], tpu__strategy="race"))
    assert lab.mutations()["tpu.nodes.create"] == 2
    assert too_soon(written) == {}


def test_a_quiet_look_writes_nothing(lab, written):
    """Only the lease is renewed, once in its time."""
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
    """Results wait for the next pass only when that comes at once: other computers read the record."""
    controller = lab.up()
    lab.wait(10)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(lambda r: "demo-tpu-g2" in lab.nodes())
    other = lab.controller(state="elsewhere", beside=False)
    assert changed(other.record, serial=0, fence=0) == changed(controller.record, serial=0, fence=0)
    assert other.record.node.accepted


def test_new_code_goes_to_the_machine_without_waiting_for_the_record(lab, monkeypatch):
    """The next command takes the record with its first intent: nobody is left who could write behind its back."""
    gone(lab, lab.up())
    refused = refusals(lab, monkeypatch)
    controller = lab.controller()
    before = controller.records._generation
    controller.records.update_later(lambda record: changed(record, settings_due=True))
    assert controller.one_pass().plan.changes
    assert refused == []
    assert controller.records._generation != before
    assert controller.record.fence == controller.lease.token
    assert decode(lab.get(RECORD), "demo").fence == controller.lease.token


def test_a_lease_that_was_taken_over_takes_the_record_at_once(lab, written):
    """A holder that has not given it back may still have a write under way, which has to be refused."""
    first = lab.up()
    lab.wait(120)
    written.clear()
    second = lab.controller(state="elsewhere", beside=True, who="there")
    assert second.lease.taken_from is not None
    assert written[RECORD]
    with pytest.raises(LeaseHeldError):
        first.records.update(lambda record: changed(record, preemptions=9))


def test_a_command_that_has_nothing_to_do_gives_its_lease_back_without_waiting(lab, monkeypatch):
    """It was taken a moment ago and cannot be deleted yet. The next one has it at once, and as a free one."""
    gone(lab, lab.up())
    refused = refusals(lab, monkeypatch)
    quick = lab.controller()
    before = lab.clock.now()
    quick.lease.release()
    assert lab.clock.now() == before
    assert refused == [LEASE]
    assert lab.objects(LEASE_RELEASED)
    assert current(quick.cloud.store) is None
    lab.wait(1)
    following = lab.controller(state="elsewhere", beside=True, who="there")
    assert following.lease.taken_from is None
    assert refused == [LEASE]


def test_a_lease_released_frees_no_later_one(lab, monkeypatch):
    """The note names the generation: whoever takes the lease after it is respected."""
    gone(lab, lab.up())
    refusals(lab, monkeypatch)
    lab.controller().lease.release()
    lab.wait(1)
    holder = lab.controller()
    assert lab.objects(LEASE_RELEASED)
    assert current(holder.cloud.store) is not None
    with pytest.raises(LeaseHeldError):
        lab.controller(state="elsewhere", beside=True, who="there")


def test_a_slow_pass_leaves_its_results_to_the_next_one_and_that_waits_for_nothing(lab, monkeypatch):
    """After a change the next look comes at once: a write in between would hold up its intents."""
    refused, send = refusals(lab, monkeypatch), lab.wire.answer

    def slowly(request, timeout):
        if "/o" not in request.path:
            lab.clock.advance(0.15)
        return send(request, timeout)

    monkeypatch.setattr(lab.wire, "answer", slowly)
    lab.up()
    assert refused == []
