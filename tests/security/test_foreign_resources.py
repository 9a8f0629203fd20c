"""
What is not ours stays as it is: adopted buckets, machines of others, whatever a record or a journal says.

TPUCTL_FORGERIES is how many forged records and journals are tried (SEC10).
"""

import copy
import json
import random
import shutil
from dataclasses import replace

import pytest

from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.bucket.object_names import EVENTS, HEARTBEAT, JOURNAL, RECORD
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.level import Level
from orchestrator.domain.names import region_of
from orchestrator.domain.observation import Bucket, Present
from orchestrator.domain.plan import Outcome
from orchestrator.domain.spec import BucketSpec
from orchestrator.engine.delete_data import DataDeletion
from orchestrator.errors import TpuctlError
from orchestrator.planning.decide import decide
from tests.emulator.emulator_lab import node_body, vm_body
from tests.engine.engine_lab import OTHER_ZONE, PROJECT, ZONE, EngineLab, one_zone_spec
from tests.kit.figures import record_figures
from tests.kit.records import record_of
from tests.planning.worlds import world
from tests.reliability.damage import depth

FORGERIES = depth("TPUCTL_FORGERIES", 8)
FOREIGN_NODES = ("other-tpu-g1", "demo-tpu-g7", "demo2-tpu-g1", "plain-tpu-g3")
FOREIGN_VMS = ("other-vm", "demo-vm2")
REGIONS = sorted({region_of(zone) for zone in load_catalog().zones})


@pytest.mark.parametrize(("home", "away"), [(a, b) for a in REGIONS[:7] for b in REGIONS if a != b][:40])
def test_a_bucket_in_another_region_than_the_tpu_is_a_hard_stop(home, away):
    """In the file, and when such a bucket is found: forty pairs."""
    catalog = load_catalog()
    zone = next(zone for zone in catalog.zones if region_of(zone) == home and catalog.types_in(zone))
    spec = one_zone_spec(tpu__type=catalog.types_in(zone)[0], tpu__zones=[zone])
    placed = replace(spec, bucket=BucketSpec(location=away))
    assert "bucket.location" in {p.setting for p in run_rules(placed, catalog) if p.level is Level.STOP}
    observed = world(bucket=Present(Bucket("b", away)), nodes=Present(()))
    plan = decide(spec, observed, record_of(started_at=1.0, bundle="b", agent="a"), 0.0)
    assert plan.outcome is Outcome.REFUSED
    assert plan.changes == ()


FIELDS = (
    {}, {"labels": {"team": "x"}},
    {"softDeletePolicy": {"retentionDurationSeconds": "604800"}},
    {"iamConfiguration": {"publicAccessPrevention": "inherited"}},
    {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 365}}]}},
    {"labels": {"tpuctl-deployment": "demo", "tpuctl-role": "bucket"}},
    {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}},
)  # fmt: skip


@pytest.mark.parametrize("fields", FIELDS, ids=[str(n) for n in range(len(FIELDS))])
def test_an_adopted_bucket_is_never_changed_weakened_or_deleted(fields, tmp_path):
    """Its settings after up, a preemption and `down --delete-data` are those before; so are its objects."""
    lab = EngineLab(tmp_path)
    lab.storage.buckets.create(
        PROJECT, {"name": "theirs", "location": "EUROPE-WEST4", **copy.deepcopy(fields)}
    )
    lab.bucket = "theirs"
    lab.put("their/data", b"precious")
    before = settings(lab)
    controller = lab.up(one_zone_spec(bucket__name="theirs", bucket__adopt=True))
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    assert controller.deletion().machines() == ()
    deletion = controller.deletion()
    remaining = DataDeletion(deletion.deployment, deletion.close).delete("theirs")
    assert remaining is not None
    assert settings(lab) == before
    assert lab.get("their/data") == b"precious"
    calls = lab.mutations()
    assert (calls["storage.buckets.delete"], calls["storage.buckets.patch"]) == (0, 0)


def settings(lab):
    """Return what the adopted bucket is like."""
    (found,) = [bucket for bucket in lab.storage.buckets.list(PROJECT) if bucket.name == "theirs"]
    return found.location, copy.deepcopy(dict(found.fields))


def crowd(lab):
    """Make machines of other people, with names that are like ours, and of another deployment."""
    for number, name in enumerate(FOREIGN_NODES):
        labels = {"tpuctl-deployment": "other", "tpuctl-incarnation": "1"} if number % 2 == 0 else {}
        lab.cloud.tpu.create(ZONE if number % 2 else OTHER_ZONE, name, node_body(labels=labels))
    for name in FOREIGN_VMS:
        with lab.cloud.lock:
            lab.cloud.compute.insert(ZONE, vm_body(name, labels={"tpuctl-deployment": "other"}))
    lab.wait(5)


def forged(dice, body):
    """Return a record with a few of its values replaced by somebody who can write to the bucket."""
    record = body["history"]
    names, zones = (*FOREIGN_NODES, *FOREIGN_VMS, "../x", "demo-tpu-g1"), (ZONE, OTHER_ZONE, "us-central1-a")
    operation = {
        "id": "projects/x/operations/1", "kind": "node", "verb": dice.choice(["create", "delete"]),
        "name": dice.choice(names), "zone": dice.choice(zones), "incarnation": dice.choice([1, 7, None]),
        "started_at": 0.0,
    }  # fmt: skip
    span = {
        "kind": "node",
        "name": dice.choice(names),
        "zone": dice.choice(zones),
        "since": 1.0,
        "until": None,
    }
    changes = {
        "incarnation": dice.choice([0, 1, 6, 7, 99]), "zone": dice.choice(zones),
        "accepted": dice.random() < 0.5, "zones_used": list(zones), "spans": [span],
        "operations": [operation] * dice.randint(0, 2),
        "unwanted": dice.choice([0, 1, 7]), "requested_at": dice.choice([0.0, 1.0]),
        "started_at": dice.choice([1.0, 0.0]), "shape": dice.choice(["", "x"]),
        "sightings": {f"deleting:{dice.choice(names)}": 1.0, f"node:{dice.choice([1, 7])}:preempted": 1.0},
        "outcome": dice.choice(["", "done", "failed", "spent"]), "vm_accepted": True,
        "preemptions": 3, "bucket_seen": dice.random() < 0.8, "settings_due": dice.random() < 0.5,
    }  # fmt: skip
    chosen = {key: changes[key] for key in dice.sample(sorted(changes), dice.randint(1, len(changes)))}
    forgery = {**body, "history": {**record, **chosen}}
    forgery.pop("checksum", None)
    return with_checksum(forgery)


def entry(dice):
    """Return a made-up entry of the journal."""
    return with_checksum(
        {
            "at": dice.uniform(0, 2e9),
            "kind": dice.choice(["node", "vm", "bucket"]),
            "verb": dice.choice(["create", "delete", "start"]),
            "name": dice.choice(FOREIGN_NODES),
            "zone": dice.choice([ZONE, OTHER_ZONE, "mars"]),
            "incarnation": dice.choice([1, 7, 99, None]),
            "deployment": "other",
        }
    )


def test_no_forged_record_or_journal_deletes_what_is_not_ours(tmp_path):
    """A pass of the loop, then `down`: everything of others is there afterwards, in the state it had."""
    lab = EngineLab(tmp_path)
    controller = lab.up()
    whole = json.loads(lab.get(RECORD))
    crowd(lab)
    assert controller.deletion().machines() == ()
    others = (set(lab.nodes()), set(lab.vms()))
    assert others == (set(FOREIGN_NODES), set(FOREIGN_VMS))
    refused, store = 0, controller.cloud.store
    for seed in range(FORGERIES):
        dice = random.Random(seed)
        for name in (*lab.objects(JOURNAL), *lab.objects(EVENTS), *lab.objects(HEARTBEAT)):
            store.delete(name)
        lab.put(RECORD, json.dumps(forged(dice, whole)).encode())
        if dice.random() < 0.3:
            lab.put(RECORD, b"{damaged")
        for _ in range(dice.randint(0, 3)):
            lab.put(
                f"{JOURNAL}{dice.randrange(10**6):010d}-{dice.random()}.intent.json",
                json.dumps(entry(dice)).encode(),
            )
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        try:
            one = lab.controller()
            one.one_pass()
            lab.wait(30)
            one.one_pass()
            one.deletion().machines()
        except TpuctlError:
            refused += 1
        lab.wait(60)
        assert set(FOREIGN_NODES) <= set(lab.nodes()), f"seed {seed}"
        assert set(FOREIGN_VMS) <= set(lab.vms()), f"seed {seed}"
        assert {lab.nodes()[name].name for name in FOREIGN_NODES} == {"READY"}, f"seed {seed}"
    record_figures(
        "forgeries", "Forged records and journals (SEC10)",
        "The record in the bucket is replaced by a forged one with a valid checksum, the journal gets "
        "made-up entries, and the local copy is gone; then come two passes and `down`. Machines of others "
        "lie beside.",
        {"forgeries": FORGERIES, "refused before anything was touched": refused, "foreign deletions": 0},
    )  # fmt: skip
