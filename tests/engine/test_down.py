"""`down`: everything that carries our label goes, nothing else does, and what is left is said."""

import json
from dataclasses import replace

import pytest

from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain.lease import EXPIRES_AFTER
from orchestrator.domain.observation import Absent, NodeState, Unknown
from orchestrator.domain.ports import NewBucket
from orchestrator.domain.record import CONFIRMED_AFTER, BucketRecord
from orchestrator.engine.delete_data import DataDeletion
from orchestrator.errors import LeaseHeldError
from tests.engine.engine_lab import OTHER_ZONE, ZONE, EngineLab, one_zone_spec
from tests.kit.records import changed


def delete_data(controller, name):
    """Do what `down --delete-data` does with a bucket; return what is left of it."""
    deletion = controller.deletion()
    return DataDeletion(deletion.deployment, deletion.close).delete(name)


def foreign_machines(controller, lab):
    """Make a node and a VM of another deployment."""
    node = controller.blueprint.new_node(controller.record, ZONE, 7)
    vm = controller.blueprint.new_vm(controller.record)
    labels = {"tpuctl-deployment": "other"}
    controller.cloud.nodes.create(replace(node, name="other-tpu-g7", labels=labels))
    controller.cloud.vms.create(replace(vm, name="other-vm", labels=labels))
    lab.wait(5)


def test_down_reports_what_it_waits_for(tmp_path):
    """Each machine with its state, as long as it is there; then nothing more."""
    lab = EngineLab(tmp_path, latency="realistic")
    deletion, reported = lab.up().deletion(), []
    deletion.report = reported.append
    assert deletion.machines() == ()
    assert reported[0] == "TPU demo-tpu-g1 (READY), VM demo-vm (RUNNING)"
    assert "TPU demo-tpu-g1 (DELETING)" in "; ".join(reported)
    assert all(reported)


@pytest.mark.parametrize("latency", ["scaled", "realistic"])
def test_down_deletes_all_machines_and_keeps_the_data(tmp_path, latency):
    """Afterwards the list is empty; a second `down` makes no mutating call."""
    lab = EngineLab(tmp_path, latency=latency)
    controller = lab.up()
    assert controller.deletion().machines() == ()
    assert (lab.nodes(), lab.vms()) == ({}, {})
    assert lab.objects("bundles/")
    before = lab.mutations()
    assert controller.deletion().machines() == ()
    assert lab.mutations() == before
    assert before["tpu.nodes.delete"] == before["compute.instances.delete"] == 1


def test_a_record_that_never_found_its_bucket_is_not_written_there(lab):
    """What `down` observes last is about machines: the bucket of that name may be somebody else's."""
    controller = lab.up()
    controller.cloud.store.delete(RECORD)
    records = controller.deployment.records
    records.update_later(lambda record: replace(record, bucket=BucketRecord()))
    controller.deletion().begin()
    assert RECORD not in lab.objects("")


def test_a_deletion_that_fails_is_no_open_intent(lab):
    """The journal has the refusal beside what was tried: `explain` must not say that nobody knows how it ended."""
    controller = lab.up()
    lab.cloud.fail_next("compute.instances.delete", ["permission denied"])
    controller.deletion().machines()
    lines = [json.loads(line) for line in (lab.folder / "state" / "journal.jsonl").read_text().splitlines()]
    asked = [line["id"] for line in lines if line["part"] == "intent" and line["why"] == "down"]
    outcomes = {line["id"]: line["outcome"] for line in lines if line["part"] == "result"}
    assert sorted(outcomes.get(one, "open")[:7] for one in asked) == ["TPU-202", "ok", "ok"]


def test_a_deletion_that_is_done_at_once_is_not_doubted(tmp_path):
    """Its operation is done before the list that is without the machine: no second look half a minute later."""
    lab = EngineLab(tmp_path, latency="instant")
    controller = lab.up()
    began = lab.clock.now()
    assert controller.deletion().machines() == ()
    assert (lab.nodes(), lab.vms()) == ({}, {})
    assert lab.clock.now() - began < CONFIRMED_AFTER


def test_down_in_the_middle_of_a_creation_leaves_nothing(tmp_path):
    """The service drops the deletion and says that it went well: only the absence of the TPU is believed."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.controller()
    controller.want()
    controller.run(lambda _: lab.mutations()["tpu.nodes.create"] > 0)
    lab.wait(10)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.CREATING}
    assert controller.deletion().machines() == ()
    lab.wait(3600)
    assert (lab.nodes(), lab.vms()) == ({}, {})
    assert 2 <= lab.mutations()["tpu.nodes.delete"] <= 10


def test_a_tpu_that_is_not_wanted_any_more_goes_although_it_is_just_being_made(tmp_path):
    """Another type in the file replaces it: its deletion is repeated until it shows."""
    lab = EngineLab(tmp_path, latency="realistic")
    lab.controller().want()
    first = lab.controller()
    first.run(lambda _: lab.mutations()["tpu.nodes.create"] > 0)
    second = lab.controller(one_zone_spec(tpu__type="v5litepod-4"))
    second.up()
    lab.wait(900)
    second.run(seconds=120)
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}


def test_down_needs_no_record(lab):
    """On a new computer, without a bucket even, everything is found by its label."""
    controller = lab.up()
    controller.cloud.buckets.delete(lab.bucket)
    elsewhere = lab.controller(state="another computer")
    assert elsewhere.record.node.incarnation == 0
    assert elsewhere.deletion().machines() == ()
    assert (lab.nodes(), lab.vms()) == ({}, {})


def test_down_looks_into_every_zone_ever_used(lab):
    """The file names another zone by now; the record still knows the old one."""
    lab.up(one_zone_spec(tpu__zones=[OTHER_ZONE], vm__zone=ZONE))
    moved = lab.controller(one_zone_spec())
    assert moved.deletion().machines() == ()
    assert (lab.nodes(), lab.vms()) == ({}, {})


def test_down_reads_a_zone_whose_create_had_no_answer_before_the_kill(lab):
    """The create was written down before it was made; killed right after it, in a zone that the file drops."""
    killed = lab.controller(one_zone_spec(tpu__zones=[OTHER_ZONE], vm="none"))
    killed.want()
    killed.one_pass()
    lab.wait(60)
    assert len(lab.nodes()) == 1
    assert lab.controller(one_zone_spec(vm="none")).deletion().machines() == ()
    assert lab.nodes() == {}


def test_down_leaves_other_deployments_alone(lab):
    """Another label means hands off, also in the same zone and project."""
    controller = lab.up()
    foreign_machines(controller, lab)
    assert controller.deletion().machines() == ()
    assert set(lab.nodes()) == {"other-tpu-g7"}
    assert set(lab.vms()) == {"other-vm"}


def test_down_sweeps_what_no_record_knows(lab):
    """A node of an incarnation that nobody remembers goes too."""
    controller = lab.up()
    controller.cloud.nodes.create(controller.blueprint.new_node(controller.record, ZONE, 40))
    assert controller.deletion().machines() == ()
    assert lab.nodes() == {}


@pytest.mark.parametrize("method", ["tpu.nodes.delete", "compute.instances.delete"])
def test_down_survives_a_lost_answer(lab, method):
    """The list says what is left, whatever the calls have answered."""
    controller = lab.up()
    lab.cloud.fail_next(method, ["drop-answer"])
    assert controller.deletion().machines() == ()
    assert (lab.nodes(), lab.vms()) == ({}, {})


def test_down_lists_what_refuses_to_go(lab):
    """After its deadline `down` says what is left and in which state."""
    controller = lab.up()
    lab.change(denied_permissions=frozenset({"tpu.nodes.delete"}))
    remaining = controller.deletion().machines()
    assert [(item.kind, item.name, item.zone, item.state) for item in remaining] == [
        ("tpu", "demo-tpu-g1", ZONE, "READY")
    ]
    assert lab.mutations()["tpu.nodes.delete"] <= 12
    lab.change(denied_permissions=frozenset())
    assert controller.deletion().machines() == ()


def test_down_does_not_call_it_empty_when_it_cannot_look(lab):
    """A list that fails is an entry of its own, never "nothing left" (I7)."""
    controller = lab.up()
    lab.change(denied_permissions=frozenset({"tpu.nodes.list"}))
    remaining = controller.deletion().machines()
    assert [(item.kind, item.name) for item in remaining] == [("tpu", "?")]
    assert "demo-tpu-g1" in lab.nodes()


def test_down_deletes_our_bucket_with_everything_in_it(lab):
    """With --delete-data nothing is left at all."""
    controller = lab.up()
    assert controller.deletion().machines() == ()
    assert delete_data(controller, lab.bucket) is None
    assert lab.objects() == []
    assert delete_data(controller, lab.bucket) is None


@pytest.mark.parametrize("adopt", [True, False])
def test_down_never_deletes_a_bucket_that_it_did_not_make(lab, adopt):
    """An adopted bucket stays, whatever its labels; a bucket without our label stays too."""
    spec = one_zone_spec(bucket__name="theirs", bucket__adopt=adopt)
    labels = {"tpuctl-deployment": "demo"} if adopt else {}
    controller = lab.controller(spec)
    controller.cloud.buckets.create(NewBucket("theirs", "europe-west4", labels, "a@b.invalid"))
    before = lab.mutations()["storage.buckets.delete"]
    remaining = delete_data(controller, "theirs")
    assert remaining is not None
    assert "kept" in remaining.state
    assert lab.mutations()["storage.buckets.delete"] == before


def test_down_says_when_the_bucket_cannot_be_deleted(lab):
    """A bucket that refuses to go is listed, not raised half-way."""
    controller = lab.up()
    lab.change(denied_permissions=frozenset({"storage.buckets.delete"}))
    remaining = delete_data(controller, lab.bucket)
    assert remaining is not None
    assert remaining.name == lab.bucket


def test_down_waits_for_a_create_whose_answer_was_lost(lab):
    """A create that nobody confirmed may still show; one empty list right after it proves nothing."""
    controller = lab.up()
    controller.records.update(lambda record: changed(record, accepted=False, requested_at=lab.clock.now()))
    begun = lab.clock.now()
    assert controller.deletion().machines() == ()
    assert lab.clock.now() - begun >= 30


def test_down_waits_for_a_create_that_is_still_running(lab, monkeypatch):
    """No list shows the node before its operation is done, so two empty ones prove nothing; it is not forgotten."""
    lab.cloud.fail_next("tpu.nodes.create", ["latency:150"])
    controller = lab.controller()
    controller.want()
    controller.one_pass()
    adapter, begun = type(controller.cloud.nodes), lab.clock.now()
    listed = adapter.labelled

    def late(self, *wanted):
        return listed(self, *wanted) if lab.clock.now() - begun > 140 else Absent()

    monkeypatch.setattr(adapter, "labelled", late)
    assert controller.deletion().machines() == ()
    lab.wait(300)
    assert (lab.nodes(), lab.vms()) == ({}, {})


def test_down_says_first_that_the_deployment_goes(lab):
    """Killed in the middle, it leaves a record that no `watch` takes for a deployment to keep alive."""
    lab.up().deletion().begin()
    assert lab.controller(state="another computer").record.job.bundle == ""


def test_down_that_slept_through_its_lease_deletes_nothing_of_its_successor(lab):
    """A laptop closed in the middle of `down` wakes when another computer has brought the deployment up again."""
    deletion = lab.up().deletion()
    deletion.begin()
    lab.clock.advance(EXPIRES_AFTER + 1)
    lab.controller(state="another computer", beside=True, who="there").up()
    before = lab.mutations()
    with pytest.raises(LeaseHeldError, match="there holds the lease"):
        deletion.machines()
    assert lab.mutations() == before


def test_down_is_not_done_before_the_record_is_closed(lab):
    """A bucket that refuses for a while is asked again; one that refuses for a minute is said to be left."""
    controller = lab.up()
    deletion = controller.deletion()
    deletion.begin()
    deletion.machines()
    controller.lease.keep()
    lab.cloud.fail_next("storage.objects.insert", ["rate of one object"] * 5)
    assert deletion.close() is None
    assert lab.controller(state="another computer").record.node.incarnation == 2
    later = lab.up().deletion()
    lab.cloud.fail_next("storage.objects.insert", ["rate of one object"] * 500)
    remaining = later.close()
    assert (remaining.kind, remaining.name) == ("record", ".tpuctl/record.json")


def test_down_does_not_believe_one_list_that_is_older_than_the_node(tmp_path, monkeypatch):
    """A replica that does not know the node yet, or no more, is asked again half a minute later."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up()
    deletion, listed = controller.deletion(), type(controller.cloud.nodes).labelled
    looks = []

    def stale(self, *words):
        looks.append(lab.clock.now())
        return Absent() if len(looks) in {1, 3} else listed(self, *words)

    monkeypatch.setattr(type(controller.cloud.nodes), "labelled", stale)
    assert deletion.machines() == ()
    assert lab.nodes() == {}
    assert len(looks) > 3


def test_down_takes_a_list_that_failed_for_no_witness(lab, monkeypatch):
    """No answer, and half a minute later a list that is too old: that is one absence, not two."""
    controller = lab.up()
    deletion, adapter = controller.deletion(), type(controller.cloud.vms)
    listed, looks = adapter.labelled, []
    lab.cloud.fail_next("compute.instances.delete", ["permission denied"])

    def observed(self, *words):
        looks.append(lab.clock.now())
        if len(looks) == 2:
            return Unknown("no answer")
        if len(looks) == 3:
            lab.clock.advance(40)
            return Absent()
        return listed(self, *words)

    monkeypatch.setattr(adapter, "labelled", observed)
    assert deletion.machines() == ()
    assert lab.vms() == {}


def test_down_does_not_believe_one_list_that_is_older_than_a_vm_that_was_stopped(lab, monkeypatch):
    """Nothing runs any more, but its disk is billed: a list without it is asked again."""
    lab.up()
    lab.machines.report(phase="done")
    lab.controller().run()
    assert lab.vms()
    controller = lab.controller()
    adapter, looks = type(controller.cloud.vms), []
    listed = adapter.labelled

    def stale(self, *words):
        looks.append(lab.clock.now())
        return Absent() if len(looks) == 1 else listed(self, *words)

    monkeypatch.setattr(adapter, "labelled", stale)
    assert controller.deletion().machines() == ()
    assert lab.vms() == {}


def test_down_waits_for_nothing_that_is_known_to_be_deleted(lab):
    """A deployment that is done, and a second `down`: no half minute for what is known to be gone."""
    controller = lab.up()
    lab.machines.report(phase="done")
    lab.controller().run()
    start = lab.clock.now()
    controller = lab.controller()
    assert controller.deletion().machines() == ()
    controller.deletion().close()
    assert lab.controller().deletion().machines() == ()
    assert lab.clock.now() - start < 20


@pytest.mark.parametrize("strategy", ["failover", "race"])
def test_the_numbers_of_tpus_go_on_without_a_gap_after_down(tmp_path, strategy):
    """However often `down` was called; a number that was set aside is taken once."""
    lab = EngineLab(tmp_path)
    wanted = one_zone_spec(tpu__strategy=strategy)
    for number in (1, 2, 3):
        controller = lab.up(wanted)
        assert list(lab.nodes()) == [f"demo-tpu-g{number}"]
        for _ in range(number):
            again = lab.controller(wanted).deletion()
            assert again.machines() == ()
            assert again.close() is None
    assert controller.record.node.incarnation == 3


def test_a_number_that_was_asked_for_is_not_set_aside_again(lab):
    """The create after `down` is refused and its TPU certainly absent: the next `down` sets another one aside."""
    controller = lab.up()
    controller.deletion().machines()
    controller.deletion().close()
    again = lab.controller()
    again.want()
    lab.change(stockouts=frozenset({ZONE, OTHER_ZONE}))
    again.run(seconds=120)
    asked = again.record.node.highest
    assert asked >= 2
    assert lab.nodes() == {}
    lab.change(stockouts=frozenset())
    again.deletion().machines()
    again.deletion().close()
    lab.up()
    (name,) = lab.nodes()
    assert int(name.rpartition("-g")[2]) > asked


def test_down_names_machines_of_our_label_in_zones_outside_file_and_record(lab):
    """
    Neither file nor record says that they are ours: they stay, and a zone without an answer is named.

    It costs one list of TPUs and one of VMs.
    """
    controller = lab.up()
    new = controller.blueprint.new_node(controller.record, OTHER_ZONE, 7)
    controller.cloud.nodes.create(new)
    controller.cloud.vms.create(replace(controller.blueprint.new_vm(controller.record), zone="us-east5-a"))
    lab.wait(5)
    lab.cloud.set_zone_state("us-west4-a", "unreachable")
    deletion = controller.deletion()
    before = lab.cloud.calls.copy()
    tpus, vms = deletion.outside_zones()
    assert lab.cloud.calls - before == {"tpu.nodes.list": 1, "compute.instances.aggregatedList": 1}
    assert [(node.name, node.zone) for node in tpus.value.found] == [("demo-tpu-g7", OTHER_ZONE)]
    assert tpus.value.unreachable == ("us-west4-a",)
    assert [(vm.name, vm.zone) for vm in vms.value.found] == [("demo-vm", "us-east5-a")]
    assert deletion.machines() == ()
    assert set(lab.nodes()) == {"demo-tpu-g7"}
    assert [vm.zone for vm in lab.cloud.kernel.state.instances.values()] == ["us-east5-a"]
