"""How deployments end: done, failed, out of money, out of time."""

import pytest

from orchestrator.domain.observation import Absent, NodeState
from orchestrator.domain.plan import Outcome
from orchestrator.domain.record import Record, Refusal
from orchestrator.engine.outcome_errors import raise_hopeless
from orchestrator.error_codes import CODES
from orchestrator.errors import (
    AuthError,
    ConflictError,
    JobFailedError,
    LimitReachedError,
    Retry,
    TpuctlError,
)
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.records import changed


def test_a_done_job_leaves_nothing_billed_and_nothing_to_do(lab):
    """The node is deleted and the VM stopped; a day of looks makes no further mutating call (I4)."""
    controller = lab.up()
    lab.machines.report(phase="done", step=100)
    result = controller.run()
    assert result.plan.outcome is Outcome.DONE
    lab.clock.advance(10)
    assert lab.nodes() == {}
    assert lab.vms() == {"demo-vm": "TERMINATED"}
    before = lab.mutations()
    for _ in range(24):
        lab.clock.advance(3600)
        assert controller.one_pass().plan.empty
    assert lab.mutations() == before
    assert lab.objects("bundles/"), "the data stay"


def test_up_after_the_end_changes_nothing_unless_the_code_is_new(lab):
    """A done deployment stays done; new code opens it again under a new incarnation."""
    controller = lab.up()
    lab.machines.report(phase="done")
    controller.run()
    lab.clock.advance(10)
    before = lab.mutations()
    lab.up()
    assert lab.mutations() == before
    reopened = lab.controller()
    reopened.records.update(lambda record: changed(record, bundle="other"))
    reopened.want()
    reopened.run(lambda r: r.plan.settled)
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}
    assert lab.vms() == {"demo-vm": "RUNNING"}


@pytest.mark.parametrize("fault", ["drop-answer", "transient"])
def test_an_end_is_reached_although_a_deletion_goes_wrong(lab, fault):
    """The end is not reported before the list shows that the node is gone."""
    controller = lab.up()
    lab.machines.report(phase="done")
    lab.cloud.fail_next("tpu.nodes.delete", [fault])
    controller.run(passes=200)
    assert lab.nodes() == {}


def test_an_end_waits_for_machines_that_are_still_being_made(tmp_path):
    """The job is done while the VM is starting and the next TPU is being created: neither is left running."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up()
    controller.cloud.vms.stop("demo-vm", "europe-west4-b")
    lab.wait(30)
    controller.one_pass()
    lab.machines.report(phase="done")
    controller.run()
    lab.clock.advance(300)
    assert lab.vms() == {"demo-vm": "TERMINATED"}
    assert lab.nodes() == {}


def test_a_failed_job_ends_with_its_reason(lab):
    """The agent gave up: machines go, data stay, the error carries the agent's own words."""
    controller = lab.up()
    lab.machines.report(phase="failed", message="5 failures without progress, last exit 1")
    with pytest.raises(JobFailedError, match="last exit 1"):
        controller.run()
    lab.clock.advance(10)
    assert lab.nodes() == {}
    assert controller.record.outcome is Outcome.FAILED


def test_up_after_a_failure_starts_again(lab):
    """`up` opens the deployment again under a new incarnation."""
    controller = lab.up()
    lab.machines.report(phase="failed", message="x")
    with pytest.raises(JobFailedError):
        controller.run()
    lab.clock.advance(10)
    lab.up()
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}


def test_the_budget_stops_before_one_poll_too_many(tmp_path):
    """What the cloud would bill never passes the budget by more than a poll and the deletion (I6)."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.up(one_zone_spec(watch__budget_usd=2.0, watch__poll="60s"))
    with pytest.raises(LimitReachedError):
        controller.run(passes=2000)
    lab.clock.advance(300)
    assert lab.nodes() == {}
    hourly = 2.0 / (controller.record.spans[0].until - controller.record.spans[0].since) * 3600
    billed = sum(line.usd or 0 for line in lab.cloud.bill())
    assert 1.9 <= billed <= 2.0 + hourly * (60 + 60 + 20) / 3600
    before = lab.mutations()
    with pytest.raises(LimitReachedError):
        controller.run()
    assert lab.mutations() == before


def test_the_time_to_live_ends_a_deployment(lab):
    """A forgotten deployment ends by itself, and its VM carries the same limit for Google to enforce."""
    controller = lab.up(one_zone_spec(watch__ttl="2h", watch__poll="5m"))
    with pytest.raises(LimitReachedError, match="time to live"):
        controller.run()
    lab.clock.advance(10)
    assert lab.nodes() == {}
    assert lab.clock.now() - controller.record.started_at <= 2 * 3600 + 600


def test_signals_and_silence_are_not_an_end(lab):
    """STOPPED after a notice is no success (I8): the loop goes on."""
    controller = lab.up()
    lab.machines.report(phase="stopped", notice=True, exit_code=0)
    assert controller.one_pass().plan.outcome is None


def test_an_end_does_not_believe_one_list(lab, monkeypatch):
    """
    The budget is used up, and in that pass the list is an old, empty one: the node is looked for again.

    Without a VM to stop, that pass finds nothing to do.
    """
    lab.up(one_zone_spec(vm="none"))
    spec = one_zone_spec(vm="none", watch__budget_usd=0.000001)
    controller = lab.controller(spec)
    listed, looks = type(controller.cloud.nodes).labelled, []

    def stale(self, *words):
        looks.append(words)
        return Absent() if len(looks) == 1 else listed(self, *words)

    monkeypatch.setattr(type(controller.cloud.nodes), "labelled", stale)
    lab.wait(600)
    with pytest.raises(LimitReachedError):
        controller.run()
    assert lab.nodes() == {}


@pytest.mark.parametrize("code", [*CODES, "TPU-999", ""])
def test_a_refusal_ends_a_command_with_the_exit_code_of_its_class(code):
    """3 for what a login lacks, 1 for the rest; a code of another version is no reason to fail."""
    record = Record(refusals=(Refusal(1.0, "", Retry.PERMANENT, code=code, message="no"),))
    with pytest.raises(TpuctlError, match="no") as caught:
        raise_hopeless(record)
    named = CODES[code][0] if code in CODES else TpuctlError
    assert caught.value.exit_code == (3 if issubclass(named, AuthError) else 1)
    assert isinstance(caught.value, ConflictError) == issubclass(named, ConflictError)
