"""The figures of a finished run."""

import math
from dataclasses import replace

import pytest

from orchestrator.cli.views.summary import redone_text, summary_lines
from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.report.summary import Summary, summarise

T = 1_800_000_000.0
ESTIMATE = "what a lost TPU made after its last report is an estimate"
AGAIN = "after a crash, a push or `tpuctl up`"


def heartbeat(incarnation, step, resumed_from=None, **more):
    """Return the last heartbeat of one incarnation."""
    return Heartbeat(
        incarnation, 0, Phase.RUN, more.pop("updated", T), step=step, resumed_from=resumed_from, **more
    )


def summary(heartbeats, events=(), **more):
    """Return the summary of reports and events."""
    known = {
        "preemptions": 1,
        "wall": 200,
        "usd": 1.0,
        "on_demand_usd": 3.0,
    }
    return summarise(heartbeats, events, **{**known, **more})


def test_a_run_without_reports_has_no_figures():
    """Nothing is invented."""
    found = summary([])
    assert (found.steps, found.loss, found.steps_redone, found.recoveries) == (None, None, 0, ())


def test_steps_redone_are_those_between_checkpoint_and_preemption():
    """Step 57 was reached, 50 was saved: seven are trained twice."""
    assert summary([heartbeat(1, 57), heartbeat(2, 100, 50)]).steps_redone == 7
    assert summary([heartbeat(1, 57), heartbeat(2, 100, 57)]).steps_redone == 0
    assert summary([heartbeat(1, None), heartbeat(2, 100)]).steps_redone == 0


def test_a_job_that_ignores_its_checkpoint_makes_all_steps_again():
    """Steps 200 and 500 were restored, and each time it began at 0: what counts is where it really began."""
    earlier = [heartbeat(1, 260), heartbeat(2, 500, 200, from_step=0, began_step=20)]
    newest = heartbeat(3, 1000, 450, from_step=0, began_step=20)
    found = summary([*(replace(one, phase=Phase.STOPPED) for one in earlier), newest])
    assert (found.steps_redone, found.upper_steps_redone) == (760, 760)
    older_agent = [heartbeat(1, 260), heartbeat(2, 500, 200, began_step=20)]
    assert summary(older_agent).steps_redone == 241


@pytest.mark.parametrize(
    ("before", "resumed", "counts"),
    [
        ({"rate": 5.0}, 50, (7, True, 7 + 15)),
        ({"rate": 5.0}, 60, (0, True, 12)),  # saved three steps after the report, which are kept
        ({"rate": 5.0}, 90, (0, True, 0)),
        ({"rate": None}, 50, (7, True, None)),
        ({"rate": 5.0, "phase": Phase.STOPPED}, 50, (7, False, 7)),
        ({"rate": 5.0, "phase": Phase.STOPPING, "committed_step": 57}, 57, (0, False, 0)),
        ({"rate": 5.0, "phase": Phase.STOPPING, "committed_step": 50}, 50, (7, True, 7 + 15)),
    ],
)
def test_a_machine_may_have_trained_on_after_its_last_report(before, resumed, counts):
    """At most until its preemption was observed, here 3 s; one that reported its end, or its last save, has not."""
    observed = [Event(T + 3, "preempted", "", {"incarnation": 1})]
    lost = replace(heartbeat(1, 57), **before)
    found = summary([lost, heartbeat(2, 100, resumed)], observed)
    assert (found.steps_redone, found.steps_redone_is_lower_bound, found.upper_steps_redone) == counts


@pytest.mark.parametrize(
    ("known", "interval", "most"),
    [
        ({}, math.inf, 5 * 30),
        ({}, 10, 5 * (10 + 2)),  # it would have reported again
        ({"timings": {"spawned": T - 12}}, 10, 5 * (3 + 2)),  # sooner, soon after the job's start
        (
            {"observed_save_interval": 4.0, "commit_seconds": 1.0},
            10,
            5 * (4 + 1 + 2) - 7,
        ),  # the next save would be kept
        ({"observed_save_interval": 1.0, "commit_seconds": 3.0}, 10, 5 * (3 + 3 + 2) - 7),
        ({"observed_save_interval": 0.1, "commit_seconds": 0.0}, 10, 4),
        ({"observed_save_interval": 60.0, "commit_seconds": 1.0}, 10, 5 * (10 + 2)),
        (
            {"observed_save_interval": 0.1, "commit_seconds": 0.0, "workers": 4},
            10,
            5 * (10 + 2),
        ),  # the others may lag
    ],
)
def test_a_heartbeat_or_a_commit_that_is_missing_bounds_what_it_trained(known, interval, most):
    """Its preemption was seen after 30 s; a machine that had lived on would have reported, and committed a save."""
    observed = [Event(T + 30, "preempted", "", {"incarnation": 1})]
    lost = heartbeat(1, 57, rate=5.0, **known)
    found = summary([lost, heartbeat(2, 100, 50)], observed, heartbeat_interval=interval)
    assert found.upper_steps_redone == 7 + most


def test_without_a_time_of_the_preemption_the_next_request_bounds_it():
    """The TPU vanished unseen; without that event nothing is known."""
    heartbeats = [heartbeat(1, 57, rate=5.0), heartbeat(2, 100, 50)]
    asked = [Event(T + 4, "tpu-create", "", {"incarnation": 2})]
    assert summary(heartbeats, asked).upper_steps_redone == 7 + 20
    assert summary(heartbeats).upper_steps_redone is None


def test_a_machine_that_never_trained_has_no_steps_to_lose():
    """Killed while it restored, it neither trained a step nor hides that the one before it did."""
    assert summary([heartbeat(1, 57), heartbeat(2, None), heartbeat(3, 100, 50)]).steps_redone == 7


def test_a_machine_on_which_the_job_could_not_start_hides_nothing():
    """A package was missing on the first one: what the next ones have counted is still known."""
    failed = Heartbeat(1, 0, Phase.FAILED, T, timings={"spawned": T})
    found = summary([failed, heartbeat(2, 57), heartbeat(3, 100, 50)])
    assert (found.steps_redone, found.goodput is None) == (7, False)
    trained = Heartbeat(1, 0, Phase.RUN, T, timings={"spawned": T})
    found = summary([trained, heartbeat(2, 57), heartbeat(3, 100, 50)])
    assert (found.steps_redone, found.goodput) == (None, None)


def test_goodput_is_a_share():
    """Between nothing and one, also when clocks disagree."""
    assert summary([heartbeat(1, 57)], wall=1, trained=1000.0).goodput == 1.0
    assert summary([heartbeat(1, 57)], wall=60, trained=15.0).goodput == 0.25
    assert summary([], wall=0).goodput is None


UNREPORTED = {"boot": T, "fetched": T + 1, "spawned": T + 2}


@pytest.mark.parametrize(
    "first",
    [
        heartbeat(1, None, timings=UNREPORTED),
        heartbeat(
            1, 50, timings={**UNREPORTED, "first_step": T + 9}, progress_at=T + 9, progress_from="commits"
        ),
    ],
    ids=["no step", "saves only"],
)
def test_what_was_not_counted_is_not_known(first):
    """Nothing lost and nothing gained are figures too; a job that reports no steps has neither."""
    found = summary([first, heartbeat(2, 100, 50, progress_from="lines", timings=UNREPORTED)])
    assert (found.steps_redone, found.goodput) == (None, None)
    assert summary([first]).steps_redone == 0, "nothing was lost"
    assert summary([first]).goodput is None


def test_a_deployment_that_was_opened_again_came_back_from_nothing():
    """Its second lifetime begins at step 0: nothing was redone, no recovery is listed, the first counts whole."""
    done = heartbeat(1, step=100, timings={"first_step": T - 90}, progress_at=T)
    again = heartbeat(
        2, step=50, timings={"first_step": T + 10, "boot": T, "fetched": T, "spawned": T}, progress_at=T + 40
    )
    events = [Event(T, "tpu-create", "", {"incarnation": 2})]
    apart = summary([done, again], events, begun={1, 2})
    assert (apart.steps_redone, apart.steps_redone_is_lower_bound, apart.recoveries) == (0, False, ())
    together = summary([done, again], events, begun={1})
    assert together.steps_redone == 100
    assert len(together.recoveries) == 1


def test_steps_that_are_made_again_after_down_and_up_are_redone_steps():
    """A lost machine had trained up to 88, and the next one resumes from 20: no recovery, and no new job either."""
    found = summary([heartbeat(1, 88), heartbeat(2, 600, 20)], begun={1, 2})
    assert (found.steps_redone, found.steps_redone_is_lower_bound, found.recoveries) == (68, True, ())
    assert found.steps_repeated == 68


def test_steps_that_a_crash_or_a_push_has_cost_are_counted_apart():
    """The first TPU went back from 57 to 50 after a crash, and got to 80; the next one resumed from 70."""
    crashed = heartbeat(
        1, 80, 50, attempt=2, progress_at=T, timings={"first_step": T - 40},
        trained=(Training(1, T - 90, T - 50, 0, 57),),
    )  # fmt: skip
    found = summary([crashed, heartbeat(2, 100, 70)])
    assert (found.steps_redone, found.steps_repeated) == (17, 7)


def test_what_saves_have_stopped_is_added_up_over_the_machines():
    """Of one that could not measure it nothing is added; where none could, nothing is known."""
    heartbeats = [
        heartbeat(1, 57, save_pauses=12.0, measured_saves=3),
        heartbeat(2, 100, 50),
        heartbeat(3, 160, 100, save_pauses=6.5, measured_saves=2),
    ]
    found = summary(heartbeats, [])
    assert (found.save_pauses_s, found.measured_saves) == (18.5, 5)
    older = summary([heartbeat(1, 57, save_pauses=12.0)], [])
    assert older.save_pauses_s is None, "an older agent does not say of how many saves"
    assert summary([heartbeat(1, 57), heartbeat(2, 100, 50)], []).save_pauses_s is None


@pytest.mark.parametrize(
    ("seconds", "saves", "text"),
    [
        (2.3, 3, "the 3 that were measured usually stopped the training for 0.8 s each, about 2.3 s in all"),
        (0.9, 28,
         "the 28 that were measured usually stopped the training for less than 0.1 s each, about 0.9 s in all"),
        (40.0, 1, "the one that was measured stopped the training for 40 s"),
        (0.3, 3, ""),
        (2.3, None, ""),
    ],
)  # fmt: skip
def test_the_summary_says_of_how_many_saves_it_knows_the_pause(seconds, saves, text):
    """Not each can be measured, so it is no share of the time; `status` shows the pause of one."""
    known = Summary(
        400, None, 0, 0, False, (), None, 230.0, 1.0, 3.0, save_pauses_s=seconds, measured_saves=saves
    )
    said = " ".join(" ".join(summary_lines(known, unbilled=False)).split())
    assert (f" saves {text} " in said) if text else " saves " not in said


@pytest.mark.parametrize(
    ("at_least", "at_most", "repeated", "text"),
    [
        (False, 3, 0, "3"),
        (True, 3, 0, "3"),
        (False, 3, 3, f"3 (all {AGAIN})"),
        (True, 3, 2, f"3 (2 {AGAIN})"),
        (True, 43, 0, f"3 to about 43 ({ESTIMATE})"),
        (True, 43, 2, f"3 to about 43 (2 {AGAIN}; {ESTIMATE})"),
        (True, None, 0, "at least 3 (how many more a lost TPU made after its last report is not known)"),
    ],
)
def test_steps_that_a_lost_machine_had_not_reported_are_shown_apart(at_least, at_most, repeated, text):
    """A machine that died without a last heartbeat may have trained on after it."""
    summary = Summary(
        60, None, 2, 3, at_least, (), None, 9.0, 0, 0, upper_steps_redone=at_most, steps_repeated=repeated
    )
    assert redone_text(summary) == text


def test_steps_that_were_not_counted_are_not_called_none():
    """Neither 0 steps redone, nor a goodput of 0 %."""
    lines = "\n".join(summary_lines(Summary(60, None, 2, None, True, (), None, 9.0, 0, 0), unbilled=True))
    assert "steps redone    not known" in lines
    assert "%" not in lines


def test_new_code_that_has_made_no_step_yet_hides_no_figure():
    """Until then the steps are those of the attempt before, on the same TPU."""
    trained = (Training(1, T - 90, T - 10, 0, 57),)
    now = heartbeat(1, None, 57, attempt=2, trained=trained, timings={"first_step": T - 90, "spawned": T - 5})
    found = summary([now], trained=80.0)
    assert (found.steps, found.goodput) == (57, 0.4)
    later = replace(heartbeat(2, 100, 90), attempt=2, trained=(Training(1, T + 9, T + 20, 50, 90),))
    assert summary([heartbeat(1, 57), later]).steps_redone == 7
