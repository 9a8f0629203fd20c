"""The cloud says no: stockout, quota, permission, lost answers, operations without end."""

from itertools import pairwise

import pytest

from orchestrator.domain.observation import NodeState, Present
from orchestrator.domain.plan import Outcome
from orchestrator.errors import AuthError, ConflictError, QuotaError, TpuctlError
from orchestrator.planning.tpu.next_zone import quota_wait
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT
from tests.engine.engine_lab import MUTATING, OTHER_ZONE, QUOTA, ZONE, EngineLab, one_zone_spec

BOTH = one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE])
WAITS = quota_wait(ZONE).text
DONE_BEAT = b'{"phase": "done", "incarnation": 1, "worker": 0, "workers": 1, "committed_step": 5}'


def the_one_node(lab):
    """Return the name of the only node, which must be READY."""
    lab.wait(120)
    ((name, state),) = lab.nodes().items()
    assert state is NodeState.READY
    return name


def test_a_stockout_inside_the_operation_moves_on_to_the_next_zone(lab):
    """The first zone has none, the second one serves."""
    lab.change(stockouts=frozenset({ZONE}))
    controller = lab.up(one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE], vm="none"))
    assert controller.record.node.zone == OTHER_ZONE
    assert the_one_node(lab) == "demo-tpu-g2"
    assert controller.record.refusals == ()


def test_a_stockout_everywhere_is_asked_again_ever_more_slowly_until_capacity_returns(lab):
    """The pauses grow to their cap, so the creates of an hour are bounded (I5); what returns is used."""
    lab.change(stockouts=frozenset({ZONE, OTHER_ZONE}))
    controller = lab.controller(one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE], vm="none"))
    controller.want()
    controller.run(seconds=900, passes=1000)
    asked = [(e.data["zone"], e.at) for e in controller.events if e.kind == "tpu-create"]
    assert len(asked) <= 2 * 30 + 10
    for zone in (ZONE, OTHER_ZONE):
        pauses = [later - earlier for earlier, later in pairwise(at for where, at in asked if where == zone)]
        assert min(pauses[-4:]) >= 30 > pauses[0]
    lab.change(stockouts=frozenset({ZONE}))
    start = lab.clock.now()
    controller.up()
    assert lab.clock.now() - start <= 130
    the_one_node(lab)


def test_a_quota_held_by_the_old_node_is_waited_for(tmp_path):
    """A preempted node holds quota until it is deleted: the create is refused once and then waits."""
    lab = EngineLab(tmp_path, latency="realistic", quotas={(QUOTA, ZONE): 8})
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.want()
    reported = []
    controller.run(lambda r: reported.extend(r.failures) or (r.plan.settled))
    assert lab.mutations()["tpu.nodes.create"] == 3
    assert the_one_node(lab) == "demo-tpu-g2"
    (refused,) = reported
    assert refused.waiting == refused.error.message == WAITS
    assert (refused.error.code, "waiting helps only" in refused.error.hint) == ("TPU-350", False)
    (again,) = [e.message for e in controller.events if e.message.startswith("Creating TPU demo-tpu-g2")]
    assert again.endswith(": it replaces TPU #1")


def test_the_quota_of_the_old_node_is_used_as_soon_as_it_is_free(tmp_path):
    """The pass after the refusal comes in a second, not in a poll, as after a deletion alone."""
    lab = EngineLab(tmp_path, latency="realistic", quotas={(QUOTA, ZONE): 8})
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.want()
    passes = []
    controller.run(lambda r: passes.append((lab.clock.now(), r)) or (r.plan.settled))
    first = next(number for number, (_, result) in enumerate(passes) if result.failures)
    assert passes[first + 1][0] - passes[first][0] < 5
    waits = [result.plan.waiting for _, result in passes[first + 1 :]]
    assert WAITS in waits[0]
    assert lab.mutations()["tpu.nodes.create"] == 3


def test_quota_with_room_for_one_is_learned_once(tmp_path):
    """
    From the second preemption on the next TPU is asked for once, when the old one is gone, and one line says so.

    A later loop knows it too. After a day it is tried again: quota may have been raised.
    """
    lab = EngineLab(tmp_path, latency="realistic", quotas={(QUOTA, ZONE): 8})
    lab.up()

    def lose():
        controller, reported, before = lab.controller(), [], lab.mutations()["tpu.nodes.create"]
        lab.cloud.preempt(the_one_node(lab), notice=False)
        controller.want()
        controller.run(lambda r: reported.append(r.plan.waiting) or (r.plan.settled))
        lines = {line for waiting in reported for line in waiting if "quota" in line}
        return lab.mutations()["tpu.nodes.create"] - before, lines, controller

    assert lose()[0] == 2
    for _ in range(2):
        asked, lines, controller = lose()
        assert asked == 1
        assert lines == {WAITS}
        assert not [e for e in controller.events if "limit" in e.message.lower()]
    lab.wait(24 * 3600)
    assert lose()[0] == 2


def test_a_quota_of_nothing_stops_with_its_reason(lab):
    """Nothing that waiting cures: a few tries, then QuotaError."""
    lab.change(quotas={(QUOTA, ZONE): 0})
    with pytest.raises(QuotaError, match=ZONE):
        lab.up()
    assert lab.mutations()["tpu.nodes.create"] <= 5


def test_a_quota_that_was_used_up_ends_no_deployment_for_ever(lab):
    """An hour later a loop that is started again asks again, a few times; then, when there is some, it goes on."""
    lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.change(quotas={(QUOTA, ZONE): 0})
    for _ in range(2):
        before = lab.mutations()["tpu.nodes.create"]
        for _ in range(3):
            with pytest.raises(QuotaError):
                lab.controller().run()
        assert 1 <= lab.mutations()["tpu.nodes.create"] - before <= 5
        lab.wait(3700)
    lab.change(quotas={})
    lab.controller().run(lambda r: r.plan.settled)
    assert list(lab.nodes().values()) == [NodeState.READY]


@pytest.mark.parametrize(
    ("permission", "method"),
    [
        ("tpu.nodes.create", "tpu.nodes.create"),
        ("compute.instances.create", "compute.instances.insert"),
        ("storage.buckets.create", "storage.buckets.insert"),
    ],
)
def test_a_missing_permission_stops_within_two_attempts(lab, permission, method):
    """403 is permanent: the second attempt is the last (I5), and the error says what is missing."""
    lab.change(denied_permissions=frozenset({permission}))
    with pytest.raises(AuthError):
        lab.up()
    assert lab.mutations()[method] <= 2


V4 = {"tpu__type": "v4-8", "tpu__zones": ["us-central2-b"], "tpu__runtime": "tpu-ubuntu2204-base"}


def test_a_zone_without_the_vms_machine_type_is_met_before_any_tpu_is_billed(lab):
    """The error names the type that is there; with it in the file the next `up` makes everything."""
    with pytest.raises(TpuctlError, match="TPU-125") as refused:
        lab.up(one_zone_spec(**V4, vm__machine_type="e2-small"))
    assert "n1-standard-1" in refused.value.hint
    assert (lab.mutations()["tpu.nodes.create"], lab.nodes()) == (0, {})
    lab.up(one_zone_spec(**V4, vm__machine_type="n1-standard-1"))
    assert (len(lab.nodes()), len(lab.vms())) == (1, 1)


@pytest.mark.parametrize("case", ["permission denied", "quota on call"])
def test_no_tpu_is_asked_for_when_the_first_vm_is_refused_for_good(lab, case):
    """Whatever the reason; a VM that was there once keeps no TPU from coming back."""
    lab.cloud.fail_next("compute.instances.insert", [case] * 10)
    with pytest.raises(TpuctlError):
        lab.up()
    assert lab.mutations()["tpu.nodes.create"] == 0
    lab.cloud.kernel.state.faults.clear()
    assert lab.up().record.vm.accepted
    assert len(lab.nodes()) == 1


def test_a_cloud_that_refuses_to_be_looked_at_stops_the_loop(lab):
    """Without the right to list nothing can be known, so nothing is made."""
    lab.change(denied_permissions=frozenset({"tpu.nodes.list"}))
    with pytest.raises(AuthError):
        lab.up()
    assert lab.mutations()["tpu.nodes.create"] == 0


@pytest.mark.parametrize(
    ("method", "fault"),
    [("tpu.nodes.create", "drop-answer"), ("tpu.nodes.create", "transient"),
     ("compute.instances.insert", "drop-answer"), ("storage.buckets.insert", "drop-answer"),
     ("storage.buckets.setIamPolicy", "drop-answer")],
)  # fmt: skip
def test_an_answer_lost_on_the_way_up_doubles_nothing(lab, method, fault):
    """The call took effect or not, nobody knows: the next pass finds what is there by label and adopts it."""
    lab.cloud.fail_next(method, [fault])
    lab.up()
    assert len(lab.nodes()) == 1
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.cloud.unused_faults() == []
    the_one_node(lab)


@pytest.mark.parametrize("position", range(14))
def test_an_answer_lost_on_any_write_of_the_bucket_stops_nothing(lab, position):
    """Record, journal, bundle and events: whichever write loses its answer, `up` converges."""
    lab.cloud.fail_next("storage.objects.insert", ["latency:0"] * position + ["drop-answer"])
    lab.up()
    assert lab.cloud.unused_faults() == []
    the_one_node(lab)


@pytest.mark.parametrize("method", ["tpu.nodes.delete", "tpu.nodes.create", "compute.instances.start"])
def test_an_answer_lost_on_the_way_back_doubles_nothing(lab, method):
    """The same for the calls of a recovery."""
    controller = lab.up(one_zone_spec(vm__spot=True))
    lab.cloud.fail_next(method, ["drop-answer"])
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.cloud.preempt("demo-vm", notice=False)
    controller.up()
    the_one_node(lab)
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.cloud.unused_faults() == []


def test_an_operation_without_end_is_given_up_after_the_deadline(lab):
    """A create that stays CREATING for half an hour is deleted and asked for again."""
    lab.cloud.fail_next("tpu.nodes.create", ["stuck"])
    start = lab.clock.now()
    controller = lab.up(passes=500)
    assert CREATE_TIMEOUT <= lab.clock.now() - start <= CREATE_TIMEOUT + 60
    assert controller.record.node.incarnation == 2
    assert the_one_node(lab) == "demo-tpu-g2"


def test_a_vm_whose_creation_has_no_end_is_created_again(lab):
    """After half an hour it is deleted, which loses nothing since it has never run, and asked for again."""
    lab.cloud.fail_next("compute.instances.insert", ["stuck"])
    controller = lab.controller()
    controller.want()
    controller.run(seconds=30)
    assert lab.vms() == {"demo-vm": "STAGING"}
    lab.wait(CREATE_TIMEOUT - 60)
    assert controller.run(seconds=5).plan.empty
    lab.wait(60)
    lab.up()
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.mutations()["compute.instances.delete"] == 1


def test_a_deletion_without_end_is_asked_for_again(lab):
    """A node that is still DELETING after ten minutes is deleted once more, so that it is not billed for ever."""
    controller = lab.up()
    lab.cloud.fail_next("tpu.nodes.delete", ["stuck"])
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.run(seconds=1000, passes=400)
    assert lab.mutations()["tpu.nodes.delete"] == 2


@pytest.mark.parametrize("case", ["stockout", "quota"])
def test_a_vm_that_cannot_be_had_is_asked_for_again_in_a_bounded_way(lab, case):
    """The VM's refusals slow down its own creates, and nobody else's: the TPU stays in its zone."""
    lab.cloud.fail_next("compute.instances.insert", [case] * 3)
    controller = lab.up(BOTH)
    assert lab.vms() == {"demo-vm": "RUNNING"}
    assert lab.mutations()["compute.instances.insert"] == 4
    assert controller.record.node.zone == ZONE
    assert the_one_node(lab) == "demo-tpu-g1"


def test_a_vm_that_cannot_be_started_is_asked_in_a_bounded_way(lab):
    """A stockout on start is met with ever longer pauses (I5)."""
    controller = lab.up(one_zone_spec(vm__spot=True))
    lab.change(stockouts=frozenset({ZONE}))
    lab.cloud.preempt("demo-vm", notice=False)
    controller.run(seconds=900, passes=1000)
    assert lab.mutations()["compute.instances.start"] <= 15 + 10
    lab.change(stockouts=frozenset())
    controller.up()
    assert lab.vms() == {"demo-vm": "RUNNING"}


def test_a_foreign_node_with_our_name_is_refused_and_not_touched(lab):
    """A node of that name without our label is somebody's: one clear error, and nothing is deleted."""
    controller = lab.controller()
    new = controller.blueprint.new_node(controller.record, ZONE, 1)
    from dataclasses import replace

    controller.cloud.nodes.create(replace(new, labels={}))
    with pytest.raises(TpuctlError, match="demo-tpu-g1"):
        controller.up()
    assert "demo-tpu-g1" in lab.nodes()
    assert lab.mutations()["tpu.nodes.delete"] == 0


def test_a_node_whose_answer_was_lost_is_ours_however_old_the_lists_are(lab, monkeypatch):
    """The name is taken by our own node, which no list shows for a moment: it is adopted, not refused."""
    controller = lab.controller()
    listed, since = type(controller.cloud.nodes).labelled, lab.clock.now()

    def old(self, *words):
        return listed(self, *words) if lab.clock.now() > since + 20 else Present(())

    controller.cloud.nodes.create(controller.blueprint.new_node(controller.record, ZONE, 1))
    monkeypatch.setattr(type(controller.cloud.nodes), "labelled", old)
    controller.up()
    assert list(lab.nodes()) == ["demo-tpu-g1"]
    assert lab.mutations()["tpu.nodes.delete"] == 0


@pytest.mark.parametrize("running", [True, False])
def test_a_foreign_vm_with_our_name_is_refused_and_not_touched(lab, running):
    """It is neither started nor stopped nor deleted, and no code goes there."""
    from dataclasses import replace

    controller = lab.controller()
    new = controller.blueprint.new_vm(controller.record)
    controller.cloud.vms.create(replace(new, labels={"owner": "somebody"}))
    lab.clock.advance(5)
    if not running:
        controller.cloud.vms.stop("demo-vm", ZONE)
        lab.clock.advance(5)
    before = lab.vms()
    with pytest.raises(TpuctlError, match="demo-vm"):
        controller.up()
    with pytest.raises(TpuctlError, match="demo-vm"):
        controller.run()
    lab.put(".tpuctl/heartbeat/1/0", DONE_BEAT)
    assert controller.one_pass().plan.outcome is Outcome.DONE
    lab.clock.advance(5)
    assert lab.vms() == before
    assert [remaining.name for remaining in controller.deletion().machines()] == []
    assert lab.vms() == before
    assert lab.mutations()["compute.instances.start"] == 0


def test_a_foreign_bucket_stops_with_its_reason(tmp_path):
    """Bucket names are one namespace for the world; a stranger's bucket never gets our data."""
    probe = EngineLab(tmp_path)
    lab = EngineLab(tmp_path, taken=[probe.bucket])
    with pytest.raises(AuthError) as refused:
        lab.up()
    assert "bucket.name" in refused.value.hint
    assert lab.mutations()["storage.buckets.insert"] <= 2


def test_a_bucket_of_another_deployment_is_not_used(lab):
    """A bucket of the same project that does not carry our label is refused unless it is adopted."""
    from orchestrator.domain.names import region_of
    from orchestrator.domain.ports import NewBucket

    controller = lab.controller()
    new = NewBucket(lab.bucket, region_of(ZONE), {"tpuctl-deployment": "other"}, "a@b.invalid")
    controller.cloud.buckets.create(new)
    with pytest.raises(ConflictError):
        controller.up()
    assert lab.objects() == []


def test_every_refused_method_of_this_file_is_a_mutating_one():
    """The list of mutating methods that the tests count with is the one that the local cloud serves."""
    from orchestrator.emulator.state.values import methods

    assert set(MUTATING) <= methods.ALL
