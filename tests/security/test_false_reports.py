"""What one report says does not outlive it: it makes no record unreadable, and dates no commit in the future."""

import json
from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.job_progress import ProgressEstimate, seconds_remaining, with_heartbeats
from orchestrator.domain.ports import StoredObject
from orchestrator.engine.bucket.heartbeats import parse_heartbeat
from orchestrator.engine.records.rebuild_record import MAX_NUMBERS_AHEAD, rebuilt
from orchestrator.engine.records.record_format import decode, encode
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.records import record_of
from tests.planning.worlds import NOW, heartbeat, node


@pytest.mark.parametrize("rate", [5e-324, 1e-30, 1e-12, -1e-12, -1.0, 1e300, 0])
def test_no_rate_makes_the_record_unreadable(tmp_path, rate):
    """The next command reads it, with what earlier TPUs have cost."""
    lab = EngineLab(tmp_path)
    spec = one_zone_spec(vm="none", watch__budget_usd=500.0)
    first = lab.up(spec)
    number = first.record.node.incarnation
    report = {
        "incarnation": number,
        "worker": 0,
        "phase": "run",
        "rate": rate,
        "step": 1,
        "reported_target_steps": 9,
    }
    lab.put(f".tpuctl/heartbeat/{number}/0", json.dumps(report).encode())
    first.one_pass()
    first.records.flush()
    first.lease.release()
    second = lab.controller(spec)
    assert not second.records.damaged
    assert second.record.spans == first.record.spans


@pytest.mark.parametrize("rate", [5e-324, 1e-12, -1.0, 1e300])
def test_a_rate_that_no_job_has_is_none(rate):
    """The rest of the report counts."""
    data = json.dumps({"incarnation": 1, "worker": 0, "phase": "run", "step": 4, "rate": rate}).encode()
    report = parse_heartbeat(StoredObject(".tpuctl/heartbeat/1/0", len(data), 1, NOW, data))
    assert (report.step, report.rate) == (4, None)


def test_a_record_with_unreadable_progress_is_written_without_it():
    """Whatever has got into it."""
    broken = record_of(incarnation=3, progress=ProgressEstimate(step=7, seconds_per_step=1e12))
    again = decode(encode(broken, "demo"), "demo")
    assert (again.node.incarnation, again.deadline.progress) == (3, ProgressEstimate())


def test_a_commit_is_not_later_than_its_report_nor_than_its_tpu_is_old():
    """A clock that is wrong, or lies, would make the deadline pay for on demand."""
    begun = {"first_step": NOW - 500}
    ahead = heartbeat(
        phase=Phase.RUN, step=9, committed_step=9, committed_at=1e11, updated=NOW, timings=begun
    )
    learned = with_heartbeats(ProgressEstimate(), (ahead,), node(created_at=NOW - 600))
    assert (learned.committed_at, learned.commit_interval) == (NOW, 500)
    before = replace(ahead, timings={"first_step": 1.0})
    assert (
        with_heartbeats(
            ProgressEstimate(commit_interval=30.0), (before,), node(created_at=NOW - 600)
        ).commit_interval
        == 30
    )


def test_the_time_between_two_tpus_is_no_time_between_two_saves():
    """Days without a TPU would count as the work that each preemption costs; nor where it is not listed."""
    known = ProgressEstimate(step=5, committed_at=NOW - 300_000, commit_interval=30.0)
    first = heartbeat(phase=Phase.RUN, step=9, committed_step=9, committed_at=NOW - 10, updated=NOW)
    for observed in (node(created_at=NOW - 600), None):
        learned = with_heartbeats(known, (first,), observed)
        assert (learned.step, learned.committed_at, learned.commit_interval) == (9, NOW - 10, 30.0)


def test_steps_that_a_machine_has_made_up_end_with_it():
    """The deadline held all the work to be done, for good, and never paid for what was left."""
    lied = with_heartbeats(
        ProgressEstimate(), (heartbeat(phase=Phase.RUN, step=9, committed_step=2**52),), node()
    )
    assert lied.step == 2**52
    boots = heartbeat(2, phase=Phase.SETUP, step=None)
    assert with_heartbeats(lied, (boots,), node(2)).step == 2**52, "not known before the job runs"
    runs = (heartbeat(phase=Phase.RUN, resumed_from=40), heartbeat(1, phase=Phase.RUN, resumed_from=40))
    again = with_heartbeats(lied, runs, node(2))
    assert again.step == 40
    saved = tuple(replace(one, committed_step=60, committed_at=NOW) for one in runs)
    assert with_heartbeats(again, saved, node(2)).step == 60


def test_a_time_too_far_away_for_a_date_is_no_forecast():
    """It could not even be printed as a date."""
    slow = heartbeat(phase=Phase.RUN, step=1, reported_target_steps=2**50, rate=1e-7, updated=NOW)
    assert seconds_remaining((slow,), None) is None


def test_the_name_of_a_report_sets_no_incarnation_far_beyond_the_journal(tmp_path):
    """A record that is lost is rebuilt from both; machines write the names of reports."""
    lab = EngineLab(tmp_path)
    first = lab.up(one_zone_spec(vm="none"))
    lab.put(".tpuctl/heartbeat/999999999/0", b"{}")
    assert rebuilt(first.cloud.store).node.incarnation == first.record.node.incarnation
    lab.put(f".tpuctl/heartbeat/{first.record.node.incarnation + MAX_NUMBERS_AHEAD}/0", b"{}")
    assert rebuilt(first.cloud.store).node.incarnation == first.record.node.incarnation + MAX_NUMBERS_AHEAD
