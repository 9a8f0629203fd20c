"""A plan that somebody has approved: what makes it another one, and what is refused while it is carried out."""

from dataclasses import replace

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Absent, Bucket, NodeState, Present, Unknown, VmState, World
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.errors import ConflictError, TransientError, UsageError
from orchestrator.planning.approval import (
    Approved,
    differences,
    needs_same_cloud,
    observations_of,
    refuse_changed,
    refuse_others,
)
from orchestrator.planning.whole_plan import plan_from_nothing, whole_plan
from tests.planning.worlds import NOW, heartbeat, node, record, spec, vm, world

KIND = load_catalog().accelerator("v5litepod-8")
NODE = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g1", "there is none yet", "us-central1-a", 1)
FRESH = Approved(
    "demo", "my-project", "gcp", "/w/tpuctl.yaml", "f1", "1.0", "b1", "a1", {},
    observations_of(World(Absent(), Absent(), Present(()), Present(())), record(incarnation=0, uploaded="")),
    (Change(Kind.BUCKET, Verb.CREATE, "", "none").stored(), NODE.stored()), "p.json",
)  # fmt: skip

CASES = {
    "nothing": ({}, ""),
    "the file": ({"file_digest": "f2"}, "the deployment file was changed"),
    "the code": ({"bundle": "b2"}, "the code was changed"),
    "tpuctl": ({"tpuctl": "1.1"}, "tpuctl itself was changed"),
    "a bucket": (
        {"observations": {**FRESH.observations, "bucket": "in us-east1"}},
        "bucket: was absent, is in us-east1",
    ),
    "a node": (
        {"observations": {**FRESH.observations, "TPU x": "READY in z"}},
        "TPU x: was absent, is READY in z",
    ),
    "an incarnation": (
        {"observations": {**FRESH.observations, "incarnation": "2"}},
        "incarnation: was 0, is 2",
    ),
    "a plan": (
        {"changes": FRESH.changes[:1]},
        "another one: create bucket instead of create bucket, create TPU",
    ),
}


def test_a_plan_file_keeps_the_keys_of_earlier_versions():
    """A plan that was approved before an update of tpuctl is read after it."""
    body = FRESH.as_dict()
    assert body["sights"] == FRESH.observations
    assert "observations" not in body
    assert [(one["kind"], one.get("why")) for one in body["changes"]] == [
        ("bucket", "none"), ("node", "there is none yet"),
    ]  # fmt: skip
    assert replace(Approved.from_dict(body), path=FRESH.path) == FRESH


@pytest.mark.parametrize("case", CASES)
def test_what_has_changed_is_named(case):
    """Each cause alone is enough to refuse, and it is said in words; without one there is no refusal."""
    changes, said = CASES[case]
    now = replace(FRESH, **changes)
    if not said:
        refuse_changed(FRESH, now)
        return
    with pytest.raises(ConflictError, match=r"p\.json does not fit any more") as caught:
        refuse_changed(FRESH, now)
    assert said in caught.value.message
    assert (caught.value.code, caught.value.hint) == (
        "TPU-410",
        "see a new one: tpuctl plan --output p.json",
    )
    assert len(differences(FRESH, now)) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(NODE, name="demo-tpu-g2", incarnation=2),
        replace(NODE, zone="us-central1-b"),
        replace(NODE, verb=Verb.DELETE),
        Change(Kind.VM, Verb.CREATE, "demo-vm", "none", "us-central1-a"),
    ],
    ids=["another name", "another zone", "a deletion", "a vm"],
)
def test_a_pass_does_nothing_that_the_plan_does_not_hold(other):
    """Neither more machines, nor others, nor elsewhere."""
    refuse_others(FRESH, Plan((NODE,)))
    with pytest.raises(ConflictError, match="does not hold"):
        refuse_others(FRESH, Plan((NODE, other)))


def test_code_may_be_brought_again():
    """A second push of the approved code to the approved machine is no other plan."""
    refuse_others(FRESH, Plan((Change(Kind.JOB, Verb.UPDATE, "demo", "worker 0 is silent"),)))


def test_a_plan_survives_its_file():
    """Where it was read from is no part of it; another version's is refused."""
    assert Approved.from_dict(FRESH.as_dict()) == replace(FRESH, path="")
    for body in ({**FRESH.as_dict(), "schema": 2}, {"schema": 1}, {**FRESH.as_dict(), "more": 1}):
        with pytest.raises(ValueError, match=r"schema|not a plan"):
            Approved.from_dict(body)


def test_a_plan_for_one_cloud_is_not_carried_out_on_the_other():
    """One of them costs money."""
    needs_same_cloud(FRESH, "gcp")
    with pytest.raises(UsageError, match="is for --cloud gcp, not for local"):
        needs_same_cloud(FRESH, "local")


@pytest.mark.parametrize("what", ["bucket", "vm", "nodes", "heartbeats"])
def test_on_unknown_no_plan_is_made(what):
    """It would be a guess."""
    with pytest.raises(TransientError, match="503"):
        observations_of(world(**{what: Unknown("503")}), record())


def test_from_nothing_the_plan_is_that_of_plan_from_nothing():
    """The two roads to a plan are one."""
    nothing = World(Absent(), Absent(), Present(()), Present(()), observed_at=NOW)
    fresh = record(
        incarnation=0, bucket_observed=False, bucket_ready=False, uploaded="", pushed="", vm_accepted=False,
        accepted=False, zone="", first_seen={}, requested_at=0.0,
    )  # fmt: skip
    assert (
        whole_plan(spec(), KIND, nothing, fresh).changes == plan_from_nothing(spec(), KIND, "b", "a").changes
    )


WORLDS = {
    "all is well": ({}, []),
    "the TPU was taken away": (
        {"nodes": Present((node(state=NodeState.PREEMPTED),))}, ["delete node", "create node"],
    ),
    "the VM is stopped": ({"vm": Present(vm(state=VmState.TERMINATED))}, ["start vm"]),
    "the job is done": (
        {"heartbeats": Present((heartbeat(phase=Phase.DONE),))}, ["delete node", "stop vm"],
    ),
    "the bucket lies elsewhere": ({"bucket": Present(Bucket("b", "us-east1"))}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", WORLDS)
def test_from_what_exists_it_plans_the_rest_and_comes_to_rest(case):
    """Deletions, starts and ends are planned too."""
    shown, steps = WORLDS[case]
    plan = whole_plan(spec(), KIND, world(**shown), record())
    assert [f"{c.verb.word} {c.kind.value}" for c in plan.changes] == steps
