"""What `up` wants: how it changes the record."""

import hashlib
import json
from dataclasses import replace

from orchestrator.app.source.wanted import trained, with_reported_end, with_wanted
from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Present, Unknown
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.record import Record, Refusal, next_incarnation
from orchestrator.domain.spec import CheckpointSpec, JobSpec, MemorySpec
from orchestrator.domain.tpu_shape import reshaped, shape_of, unwanted
from orchestrator.engine.delete import closed
from orchestrator.errors import Retry, TransientError
from orchestrator.planning.decide import decide
from orchestrator.planning.intended_record import intended
from orchestrator.planning.job_digest import job_digest
from tests.kit.records import changed
from tests.planning.worlds import NOW, ZONE, heartbeat, record, spec, world

RUNNING = record(bundle="b", agent="a", job="j", pushed="b")


def test_the_first_up_has_no_running_job_to_change():
    """Nothing was pushed yet, so there are no other settings anywhere."""
    first = with_wanted(Record(), "b", "a", "j", NOW)
    assert (first.job.bundle, first.job.settings, first.job.settings_due, first.started_at) == (
        "b",
        "j",
        False,
        NOW,
    )


def test_other_settings_are_due_on_running_machines():
    """They stay due until a push has brought them."""
    after = with_wanted(RUNNING, "b", "a", "k", NOW)
    assert after.job.settings_due
    assert with_wanted(after, "b", "a", "k", NOW).job.settings_due
    assert not with_wanted(RUNNING, "b", "a", "j", NOW).job.settings_due


def test_other_settings_reach_machines_that_took_the_code_from_the_bucket():
    """Nothing was ever pushed to these; machines that are not asked for yet are made with the new ones."""
    unpushed = changed(RUNNING, pushed="")
    assert with_wanted(unpushed, "b", "a", "k", NOW).job.settings_due
    assert not with_wanted(
        changed(unpushed, accepted=False, requested_at=0.0), "b", "a", "k", NOW
    ).job.settings_due


def test_a_failed_deployment_is_opened_again_under_a_new_incarnation():
    """The old incarnation's reports still say that it failed."""
    again = with_wanted(changed(RUNNING, outcome=Outcome.FAILED), "b", "a", "j", NOW)
    assert (again.outcome, again.node.incarnation, again.node.accepted) == (None, 2, False)


def test_new_code_after_a_done_job_runs_on_the_tpu_of_the_next_number():
    """The deletion of TPU #1 is done: what follows is #2, also when `down` or another `up` lies between."""
    done = changed(RUNNING, outcome=Outcome.DONE, accepted=False, requested_at=0.0, highest=1)
    again = with_wanted(done, "c", "a", "j", NOW)
    closing = closed(again, NOW)
    reopened = with_wanted(changed(closing, outcome=Outcome.DONE), "d", "a", "j", NOW)
    for one in (again, closing, reopened):
        assert (one.node.incarnation, next_incarnation(one)) == (2, 2)
        step = decide(spec(), world(nodes=Present(()), heartbeats=Present(())), one)
        assert [c.incarnation for c in step.changes if c.kind is Kind.NODE] in ([2], [])
    tpus = decide(spec(), world(nodes=Present(()), heartbeats=Present(())), again).changes
    assert [c.name for c in tpus if c.kind is Kind.NODE] == ["demo-tpu-g2"]


def test_another_shape_does_not_make_a_number_unwanted_that_nothing_was_requested_under():
    """A TPU that was set aside gets the shape that is wanted when it is requested."""
    again = with_wanted(
        changed(RUNNING, outcome=Outcome.DONE, accepted=False, requested_at=0.0, highest=1),
        "c",
        "a",
        "j",
        NOW,
    )
    other = reshaped(changed(again, shape=shape_of(spec())), replace(shape_of(spec()), type="v5litepod-4"))
    assert other.node.unwanted == 1


def test_a_type_that_is_changed_after_a_refusal_gets_a_number_of_its_own():
    """The refused request was for another type: its number is not requested again, and then deleted as unwanted."""
    refusal = Refusal(NOW - 10, ZONE, Retry.QUOTA)
    refused = changed(RUNNING, accepted=False, highest=1, refusals=(refusal,), shape=shape_of(spec()))
    other = with_wanted(reshaped(refused, replace(shape_of(spec()), type="v5litepod-4")), "b", "a", "j", NOW)
    (asked,) = decide(spec(), world(nodes=Present(()), heartbeats=Present(())), other).changes
    assert asked.incarnation == 2
    assert not unwanted(intended(other, [asked], queued=False, now=NOW))


def test_a_record_of_an_early_version_skips_a_number():
    """It does not say what was requested, so the number that it holds may have been used."""
    early = changed(RUNNING, accepted=False, requested_at=0.0, highest=0)
    assert next_incarnation(early) == 2


def test_a_done_deployment_stays_done_until_something_changes():
    """A second `up` must not train for nothing."""
    done = changed(RUNNING, outcome=Outcome.DONE)
    assert with_wanted(done, "b", "a", "j", NOW).outcome is Outcome.DONE
    assert with_wanted(done, "c", "a", "j", NOW).outcome is None
    assert with_wanted(done, "b", "a", "k", NOW).outcome is None


def test_the_digest_follows_every_setting_of_the_job():
    """And nothing else: another poll does not restart a job."""
    base = spec()
    other = replace(base, job=replace(base.job, env={"A": "1"}))
    assert job_digest(base) != job_digest(other)
    assert job_digest(base) == job_digest(replace(base, vm="none"))


def test_the_digest_knows_no_defaults():
    """A setting that a later release adds leaves each digest as it is, and what only `check` reads too."""
    base = spec()
    known = replace(
        base, job=replace(base.job, failures=JobSpec.failures, memory=MemorySpec(params_millions=1))
    )
    assert job_digest(base) == job_digest(known)
    chosen = {"command": base.job.command}
    assert job_digest(base) == hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


def test_a_setting_with_another_name_than_before_leaves_the_digest_as_it_was():
    """An upgrade of tpuctl must not restart a job that declares its save pause."""
    base = spec()
    known = replace(base, job=replace(base.job, checkpoint=CheckpointSpec(save_pause=5.0)))
    chosen = {"checkpoint": {"save_seconds": 5.0}, "command": base.job.command}
    assert job_digest(known) == hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


def test_an_end_without_a_watcher_is_taken_from_the_reports():
    """New settings for a job that ended meanwhile open a new incarnation instead of ending it once more."""
    done = with_reported_end(spec(), Present((heartbeat(phase=Phase.DONE),)), RUNNING)
    assert done.outcome is Outcome.DONE
    assert with_wanted(done, "b", "a", "k", NOW).node.incarnation == 2
    lies = heartbeat(phase=Phase.UNCOMMITTED, uncommitted_files=1, uncommitted="a.pt")
    remaining = with_reported_end(spec(), Present((lies,)), RUNNING)
    assert remaining.outcome is Outcome.UNCOMMITTED
    assert "a.pt lies in unclaimed/" in remaining.message
    failed = with_reported_end(spec(), Present((heartbeat(phase=Phase.FAILED), heartbeat(1))), RUNNING)
    assert with_wanted(failed, "b", "a", "j", NOW).node.incarnation == 2


def test_a_model_that_may_be_there_is_not_trained_again():
    """The bucket does not answer after `down`: unknown is not absent, so `up` buys no machine."""

    class Silent:
        def list(self, prefix):
            raise TransientError("503")

    job = replace(RUNNING.job, bundle="", before_down="b", settings=job_digest(spec()))
    done = replace(RUNNING, outcome=Outcome.DONE, message="done", job=job)
    assert trained(spec(), Silent(), done, "b") == "done"
    assert trained(spec(), Silent(), done, "other code") == ""


def test_a_running_or_unknown_job_has_not_ended():
    """Half a slice that is done is not an end, and neither is silence."""
    assert with_reported_end(spec(), Present((heartbeat(phase=Phase.DONE, workers=2),)), RUNNING) == RUNNING
    assert with_reported_end(spec(), Present((heartbeat(),)), RUNNING) == RUNNING
    assert with_reported_end(spec(), Present(()), RUNNING) == RUNNING
    assert with_reported_end(spec(), Unknown("503"), RUNNING) == RUNNING
