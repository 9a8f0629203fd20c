"""An end without a checkpoint: never done, no machine goes before its files are uploaded, and they are named."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.job_progress import ProgressEstimate, common_step
from orchestrator.domain.observation import NodeState, Present
from orchestrator.domain.one_pass import Pass
from orchestrator.domain.plan import Outcome
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.engine.outcome_errors import raise_outcome
from orchestrator.errors import UncommittedError
from orchestrator.planning.decide import decide
from orchestrator.planning.events import preemption
from orchestrator.planning.notifications import due
from orchestrator.planning.uncommitted import UNSAVED, lost_text, uncommitted_text
from orchestrator.planning.update_record import update_record
from tests.kit.records import changed
from tests.planning.worlds import NOW, heartbeat, node, record, spec, world

SAVED_NONE = "for more than 15 min and has saved no checkpoint (format auto wants "
LIES = {
    "uncommitted_files": 2,
    "uncommitted_bytes": 3000,
    "uncommitted": "ckpt.pt",
    "uncommitted_complete": True,
}


def planned(*heartbeats, was=None, **shown):
    """Return what a pass plans when these workers report."""
    return decide(spec(), world(heartbeats=Present(heartbeats), **shown), was or record())


def test_done_without_a_checkpoint_is_not_done_and_keeps_its_machine():
    """An agent of before this rule says done whenever a job leaves with status 0: nothing is deleted on that."""
    plan = planned(heartbeat(phase=Phase.DONE, committed_step=None))

    assert (plan.outcome, plan.changes) == (None, ())
    assert any("has saved no checkpoint; its machine is kept" in text for text in plan.waiting)
    assert planned(heartbeat(phase=Phase.DONE)).outcome is Outcome.DONE


def test_the_files_of_every_worker_come_first():
    """A slice ends when each of its workers has said its last word."""
    first = heartbeat(workers=2, phase=Phase.UNCOMMITTED, **LIES)

    assert planned(first, heartbeat(1, workers=2, phase=Phase.ENDED)).outcome is None
    ended = planned(first, heartbeat(1, workers=2, phase=Phase.UNCOMMITTED, **LIES))
    assert ended.outcome is Outcome.UNCOMMITTED
    assert [change.name for change in ended.changes][:1] == ["demo-tpu-g1"]
    assert "ckpt.pt and 3 more files lie in unclaimed/" in ended.message
    assert "format auto wants the layout of a known framework" in ended.message


def test_nothing_saved_at_all_is_said():
    """There is no file to name then."""
    plan = planned(heartbeat(phase=Phase.UNCOMMITTED))
    assert plan.message.startswith("the job ended with status 0 and saved nothing; format auto wants")


def test_the_end_is_remembered_when_the_reports_are_gone():
    """The record keeps outcome and reason."""
    was = changed(record(), outcome=Outcome.UNCOMMITTED, message="why")
    plan = planned(was=was, nodes=Present(()))
    assert (plan.outcome, plan.message) == (Outcome.UNCOMMITTED, "why")


def test_a_gang_that_gave_up_ends_when_each_worker_has_brought_its_files():
    """One that falls silent is not waited for, and none for more than an hour."""
    failed = heartbeat(workers=2, phase=Phase.FAILED, message="5 starts")
    busy = heartbeat(1, workers=2, phase=Phase.STOPPING)

    assert planned(failed, busy).outcome is None
    assert planned(failed, replace(busy, phase=Phase.FAILED)).outcome is Outcome.FAILED
    assert planned(failed, replace(busy, updated=NOW - 900)).outcome is Outcome.FAILED
    assert planned(replace(failed, updated=NOW - 4000), busy).outcome is Outcome.FAILED


def test_a_preemption_tells_what_became_of_the_work():
    """Never that it is committed when nothing is."""
    taken = {"nodes": Present((node(state=NodeState.READY),))}
    remaining = {"phase": Phase.STOPPED, "notice": True, "preempted": True}

    def reported(earlier=0, **more):
        """Return the event, and check that the changes do not say it again."""
        was = record()
        was = replace(was, deadline=replace(was.deadline, progress=ProgressEstimate(step=earlier)))
        report = heartbeat(**remaining, **more)
        assert not any(
            "committed" in c.message or "checkpoint" in c.message for c in planned(report, **taken).changes
        )
        observed = world(heartbeats=Present((report,)), **taken)
        event = preemption(spec(), was, update_record(was, observed), observed)
        assert event is not None
        return event.message

    none = "is being preempted; it reported no checkpoint; without one in the bucket the next TPU begins at step 0"
    assert none in reported()
    early = "it reported no checkpoint; the next one resumes from the newest in the bucket"
    assert early in reported(earlier=40)
    assert "is being preempted; the newest checkpoint that it reported is step 40" in reported(
        committed_step=40
    )
    counted = reported(committed_step=3, committed_counted=True)
    assert "the newest checkpoint that it reported is save 3" in counted, "no step is claimed"


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("bucket", "has no steps and starts again; what it wrote to the bucket stays there"),
        ("local", "has no steps and starts again; 2 files, 3 kB"),
    ],
)
def test_of_a_job_without_steps_nothing_is_said_to_be_lost(folder, text):
    """Its files count when it has ended: what is there already is in the bucket, and comes back."""
    saving = CheckpointSpec(format="outputs", dir=folder)
    remaining = heartbeat(phase=Phase.STOPPED, notice=True, preempted=True, **LIES)
    assert text in lost_text(saving, world(heartbeats=Present((remaining,))), record())


def test_a_save_elsewhere_is_named_with_its_reason():
    """The format is not to blame for a file in the source folder."""
    whole = {"uncommitted": "checkpoint-20/model.safetensors", "uncommitted_place": "checkpoints"}
    alone = heartbeat(uncommitted_state="not resumable", **whole)
    assert "it is whole, but" in uncommitted_text(spec().job.checkpoint, [alone])
    wrong = heartbeat(uncommitted="out/ckpt.pt", uncommitted_place="work")
    reported = uncommitted_text(spec().job.checkpoint, [wrong])
    assert reported.endswith("(only what lies below $TPUCTL_CHECKPOINT_DIR becomes a checkpoint)")
    stray = {"uncommitted": "runs/ckpt_5.npz", "uncommitted_place": "bucket"}
    reported = uncommitted_text(spec().job.checkpoint, [heartbeat(**stray)])
    assert (
        "runs/ckpt_5.npz is in the bucket, where tpuctl looks for no saves, but in no checkpoint" in reported
    )
    assert "set job.checkpoint.dir: bucket" in reported
    ended = planned(heartbeat(phase=Phase.UNCOMMITTED, **stray))
    assert "runs/ckpt_5.npz lies in the bucket" in ended.message
    assert "saved nothing" not in ended.message
    gone = world(heartbeats=Present((heartbeat(phase=Phase.STOPPED, notice=True, **stray),)))
    assert "NOTHING" not in lost_text(spec().job.checkpoint, gone, record())
    ended = planned(heartbeat(phase=Phase.UNCOMMITTED, **{**LIES, "uncommitted_place": "home"}))
    assert ended.message.endswith("; only what lies below $TPUCTL_CHECKPOINT_DIR becomes a checkpoint")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"uncommitted": "ckpt.pt", "uncommitted_place": "checkpoints"},
            "ckpt.pt is in the checkpoint folder, ",
        ),
        (
            {"uncommitted": "out/a.pt", "uncommitted_place": "work"},
            "out/a.pt is in the source folder, ",
        ),
        ({"uncommitted": "a.pt", "uncommitted_place": "new"}, "a.pt is on the machine, but in no checkpoint"),
        ({}, ""),
        ({"uncommitted": "a.pt", "committed_step": 5}, ""),
        ({"uncommitted": "a.pt", "phase": Phase.STOPPED}, ""),
    ],
)
def test_a_running_job_that_saves_in_vain_is_reported(fields, text):
    """With what the format wants; a place that this version does not know is no reason to be silent."""
    reported = uncommitted_text(spec().job.checkpoint, [heartbeat(worker=1), heartbeat(**fields)])
    assert reported.startswith(text) if text else reported == ""


@pytest.mark.parametrize(
    ("minutes", "fields", "said"),
    [
        (14, {}, ""),
        (16, {}, SAVED_NONE),
        (29, {}, SAVED_NONE),
        (61, {}, "for more than 1 h and has saved no checkpoint (format auto wants "),
        (61, {"resumed_from": 7}, "for more than 1 h and has saved no new checkpoint: "),
        (61, {"committed_step": 9, "committed_at": NOW - 30}, ""),
        (61, {"committed_step": 9, "committed_at": NOW - 2000}, "30 min and has saved no new checkpoint: "),
        (61, {"save_interval": 1800.0}, ""),
        (91, {"observed_save_interval": 1800.0}, "for more than 1 h and "),
        (61, {"phase": Phase.SETUP}, ""),
    ],
)
def test_work_that_no_checkpoint_holds_is_reported_while_it_can_still_be_saved(minutes, fields, said):
    """A job that saves nothing would lose all at its first preemption; the text changes seldom."""
    shown = heartbeat(timings={"spawned": NOW - 7200, "first_step": NOW - 60 * minutes}, **fields)
    reported = uncommitted_text(spec().job.checkpoint, [shown])
    assert said in reported
    assert bool(said) == bool(reported)
    found = due(spec(), world(heartbeats=Present((shown,))), record(), None, "", 0.0)
    assert [one.message for one in found if one.kind == "stalled"] == ([reported] if said else [])


def test_a_job_whose_steps_are_unknown_has_worked_since_it_was_started():
    """And one whose format saves at its end only is not asked for more."""
    shown = heartbeat(timings={"spawned": NOW - 2 * UNSAVED})
    assert "for more than 30 min" in uncommitted_text(spec().job.checkpoint, [shown])
    assert uncommitted_text(CheckpointSpec(format="outputs"), [shown]) == ""


def test_a_target_for_failures_is_notified_of_this_end():
    """And no notification says that the job is done."""
    plan = planned(heartbeat(phase=Phase.UNCOMMITTED, **LIES))
    found = due(spec(), world(), record(), plan.outcome, plan.message, 0.0)

    ends = [notice for notice in found if notice.kind in {"done", "failed"}]
    assert [(n.kind, n.data) for n in ends] == [("failed", {"outcome": "uncommitted"})]
    assert "tpuctl checkpoints fetch --uncommitted" in ends[0].message


def test_the_command_leaves_with_5_and_names_the_next_one():
    """Something is left: the files that hold the model."""
    ended = heartbeat(phase=Phase.UNCOMMITTED, **LIES)
    with pytest.raises(UncommittedError) as reported:
        raise_outcome(Pass(world(heartbeats=Present((ended,))), planned(ended)))
    assert (reported.value.exit_code, reported.value.code) == (5, "TPU-810")
    assert "tpuctl checkpoints fetch --uncommitted" in reported.value.hint
    assert "ln -sfn" not in reported.value.hint
    fixed = replace(ended, uncommitted_place="work")
    with pytest.raises(UncommittedError) as reported:
        raise_outcome(Pass(world(heartbeats=Present((fixed,))), planned(fixed)))
    assert 'a link to it (ln -sfn "$TPUCTL_CHECKPOINT_DIR" FOLDER)' in reported.value.hint


def test_a_gang_is_as_far_as_the_step_that_all_of_its_workers_have_committed():
    """Workers that save faster than they upload commit other steps; none of these brings a gang back."""
    one = heartbeat(0, committed_step=60, committed_steps=(60, 40, 20), resumed_from=10)
    two = heartbeat(1, committed_step=50, committed_steps=(50, 30, 20), resumed_from=10)
    apart = replace(two, committed_steps=(50, 30))
    older = replace(two, committed_steps=())
    assert [common_step((one, other)) for other in (two, apart, older)] == [20, 10, 50]
    assert common_step((replace(one, resumed_from=None), replace(apart, resumed_from=None))) is None
    assert common_step((one, heartbeat(1))) is None
    assert common_step(()) is None
    lost = world(heartbeats=Present((one, two)))
    assert (
        lost_text(spec().job.checkpoint, lost, record())
        == "the newest checkpoint that it reported is step 20"
    )
