"""
A record and a journal that an earlier tpuctl has left: `watch` was killed in a race, right after a preemption.

They were written by the version before records were nested, over the local cloud, and must be readable for ever.
"""

import json
from pathlib import Path

import pytest

from orchestrator.config.load import load
from orchestrator.contract.bucket.object_names import JOURNAL
from orchestrator.domain import names
from orchestrator.domain.first_seen import VM_HAS_RUN, Condition, of_name, of_node
from orchestrator.domain.job_progress import ProgressEstimate
from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.record import (
    BucketRecord,
    Candidate,
    DeadlineRecord,
    JobRecord,
    NodeRecord,
    RaceRecord,
    Record,
    Shape,
    SilenceRecord,
    Span,
    SshRecord,
    VmRecord,
    newest_incarnation,
)
from orchestrator.engine.records.rebuild_record import rebuilt
from orchestrator.engine.records.record_format import STORED, decode, encode
from orchestrator.errors import Retry
from tests.engine.engine_lab import PROJECT, EngineLab

EARLIER = Path(__file__).parent / "earlier_record"
DATA = (EARLIER / "record.json").read_bytes()
SPEC = load(EARLIER / "tpuctl.yaml", environ={})
HERE, THERE = SPEC.tpu.zones
BUNDLE = "78a39edd7eee0c8ae722d6bc19906fd87ac0ad15d4fb450ee2b28ee8d222880a"
AGENT = "b807c462a5a8c033433ddc724409d4d683f5b6da88ba1f8b307929077803804b"
REQUESTED, LOST, VM_OBSERVED = 1795477786.8692963, 1795477786.81954, 1795477713.6595647


@pytest.fixture
def earlier():
    """Return the record as it is understood now."""
    return decode(DATA, "lm")


def test_every_key_is_read_and_written_as_it_was(earlier):
    """An older tpuctl on another computer, and the agents of machines, read the same file."""
    stored = json.loads(DATA)["history"]
    assert set(stored) == set(STORED) - {"disks", "starts", "before_down"}
    again = json.loads(encode(earlier, "lm"))["history"]
    assert {key: again[key] for key in stored} == stored
    assert (again["disks"], again["starts"]) == ([s for s in stored["spans"] if s["kind"] == "vm"], [])


def test_an_unwatched_end_is_stored():
    """Between the two times the cost is not known, also after the next command."""
    ends = (
        Span(Kind.NODE, "lm-tpu-g1", HERE, 10.0, 20.0, end_observed=30.0),
        Span(Kind.VM, "lm-vm", HERE, 10.0),
    )
    assert decode(encode(Record(spans=ends), "lm"), "lm").spans == ends


def test_the_outcome_of_a_used_up_budget_is_stored_under_its_older_word():
    """An older tpuctl on another computer reads the same file."""
    stored = encode(Record(outcome=Outcome.LIMIT_REACHED), "lm")
    assert json.loads(stored)["history"]["outcome"] == "spent"
    assert decode(stored, "lm").outcome is Outcome.LIMIT_REACHED


def test_every_value_has_its_place_in_the_nested_record(earlier):
    """What the earlier version meant, written down by hand."""
    assert (earlier.serial, earlier.fence, earlier.started_at) == (
        1795477711705,
        1795477732066888,
        1795477711.500139,
    )
    assert earlier.node == NodeRecord(
        incarnation=3, zone=HERE, type="v5litepod-4", requested_at=REQUESTED,
        highest=4, shape=Shape("v5litepod-1", "v2-alpha-tpuv5-lite", True, True), preemptions=1,
    )  # fmt: skip
    assert earlier.race == RaceRecord(3, candidates=(Candidate(4, THERE, REQUESTED, accepted=True),))
    assert (earlier.vm, earlier.ssh) == (VmRecord(accepted=True), SshRecord())
    assert earlier.bucket == BucketRecord(
        observed=True, ready=True, grants="2:::0:0", granted_at=1795477712.4837377
    )
    assert earlier.job == JobRecord(BUNDLE, AGENT, f"{BUNDLE}:{AGENT}", BUNDLE, "149f71e8abb2f576")
    reached = ProgressEstimate(
        118, seconds_per_step=0.5100136395299043, cold=12.325292825698853, commit_interval=5.112518072128296,
        committed_at=1795477784.060072, spot_refused_at=VM_OBSERVED,
    )  # fmt: skip
    assert earlier.deadline == DeadlineRecord(progress=reached)
    assert earlier.silence == SilenceRecord(heartbeat_at_boot=(3, 4))
    assert earlier.first_seen == {
        of_name("lm-tpu-g1", Condition.DELETION_REQUESTED): REQUESTED,
        of_node(1, Condition.MADE): 1795477712.469566,
        of_node(1, NodeState.PREEMPTED): LOST,
        VM_HAS_RUN: VM_OBSERVED,
    }
    assert earlier.spans == (
        Span(Kind.VM, "lm-vm", HERE, VM_OBSERVED),
        Span(Kind.NODE, "lm-tpu-g1", HERE, VM_OBSERVED, LOST),
    )
    assert [(r.kind, r.zone, r.retry, r.beside) for r in earlier.refusals] == [
        (Kind.NODE, HERE, Retry.QUOTA, True)
    ]
    assert [(o.kind, o.verb, o.incarnation) for o in earlier.operations] == [
        (Kind.NODE, Verb.DELETE, 1), (Kind.NODE, Verb.CREATE, 4)
    ]  # fmt: skip
    assert [(p.zone, p.type, p.granted, p.refused, p.preemptions) for p in earlier.capacity_history] == [
        (THERE, "v5litepod-1", 0, 1, 0), (HERE, "v5litepod-1", 1, 0, 1)
    ]  # fmt: skip
    assert earlier.zones_used == (HERE, THERE)
    assert earlier.sidecars == {"tpu": "", "vm": ""}
    assert (earlier.outcome, earlier.message, earlier.self_delete_at) == (None, "", 0.0)


@pytest.fixture
def lab(tmp_path):
    """Return a cloud with what that `watch` left: bucket, VM, and the TPU that may still win the race."""
    lab = EngineLab(tmp_path, start=LOST + 5)
    lab.bucket = names.bucket_name(SPEC, PROJECT)
    (tmp_path / "state").mkdir()
    for name in ("record.json", "journal.jsonl"):
        (tmp_path / "state" / name).write_bytes((EARLIER / name).read_bytes())
    return lab


def test_the_next_pass_goes_on_where_it_was_killed(lab):
    """The TPU that was asked for last wins its race; whoever joins it gets a number of its own, and goes."""
    before = lab.controller(SPEC)
    record = before.record
    cloud, blueprint = before.cloud, before.blueprint
    cloud.buckets.create(blueprint.new_bucket())
    cloud.vms.create(blueprint.new_vm(record))
    made, asked = cloud.nodes.create(blueprint.new_node(record, THERE, 4)), record.operations[1]
    operations = lab.cloud.kernel.state.operations
    operations[asked.id.rsplit("/", 1)[1]] = operations[made.id.rsplit("/", 1)[1]]
    later = lab.controller(SPEC)
    later.run(lambda _: later.record.race.claimed, passes=20)
    assert (later.record.node.incarnation, later.record.node.zone) == (4, THERE)
    ready = [name for name, state in lab.nodes().items() if state is NodeState.READY]
    assert (ready, min(lab.nodes())) == (["lm-tpu-g4"], "lm-tpu-g4"), "no number is given twice"
    assert later.record.node.preemptions == 1
    assert later.record.spans[1] == Span(Kind.NODE, "lm-tpu-g1", HERE, VM_OBSERVED, LOST)


def test_the_journal_holds_what_the_record_held(lab, earlier):
    """Where the record is lost: the numbers that were given, and since when the deployment exists."""
    before = lab.controller(SPEC)
    before.cloud.buckets.create(before.blueprint.new_bucket())
    for line in (EARLIER / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        lab.put(f"{JOURNAL}{entry['id']}.{entry['part']}.json", line.encode())
    again = rebuilt(before.cloud.store)
    assert newest_incarnation(again) == newest_incarnation(earlier) == 4
    assert (again.race.round, again.node.type) == (earlier.race.round, earlier.node.type)
    assert again.started_at == pytest.approx(earlier.started_at, abs=1)
