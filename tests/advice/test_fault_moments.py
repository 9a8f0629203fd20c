"""Moments of injected faults: what people may ask for, and what is chosen where nobody asks."""

import pytest

from orchestrator.advice.rehearsal.run import Moment, RunTotals, Shown, Trigger, come, default_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("step:100", Moment(Trigger.STEP, 100)),
        ("checkpoint:2", Moment(Trigger.CHECKPOINT, 2)),
        ("time:90s", Moment(Trigger.TIME, 90)),
        ("log:epoch: 3", Moment(Trigger.LOG, pattern="epoch: 3")),
    ],
)
def test_a_moment_is_read_as_it_is_printed(text, moment):
    """A colon within a pattern belongs to the pattern."""
    assert Moment.parse(text) == moment
    assert str(moment) == text


@pytest.mark.parametrize(
    "text", ["", "step", "step:", "step:-1", "step:x", "checkpoint:0", "time:90", "log:(", "minute:3"]
)
def test_what_is_no_moment_is_refused_with_what_would_be(text):
    """The message names the way to write it."""
    with pytest.raises(ValueError, match=r"write|number|regular expression"):
        Moment.parse(text)


def test_each_moment_comes_by_its_own_sign():
    """A step by what was reported or committed, a checkpoint by this machine's, a time since the job's start."""
    assert [come(Moment(Trigger.STEP, 60), Shown(step=s)) for s in (None, 59, 60)] == [False, False, True]
    assert [come(Moment(Trigger.CHECKPOINT, 2), Shown(checkpoints=n)) for n in (1, 2)] == [False, True]
    assert [come(Moment(Trigger.TIME, 9.0), Shown(seconds=s)) for s in (8.9, 9.0)] == [False, True]
    assert [come(Moment(Trigger.LOG, pattern="x"), Shown(line=observed)) for observed in (False, True)] == [
        False,
        True,
    ]


def test_a_step_waits_for_a_checkpoint_where_the_job_saves_before_its_end():
    """A machine that goes before the first save proves nothing about resuming."""
    moment = default_moment(1, 2, None, RunTotals(100, 4, 30.0))
    assert moment == Moment(Trigger.STEP, 25, saved=True)
    assert not come(moment, Shown(step=30))
    assert come(moment, Shown(step=30, saved=10))
    assert not come(moment, Shown(step=30, saved=0)), "of a checkpoint of step 0 nothing is lost"
    assert not default_moment(1, 2, None, RunTotals(100, 1, 30.0)).saved


def test_without_steps_the_next_checkpoint_is_waited_for_and_without_both_the_time():
    """The undisturbed run has shown what there is to go by."""
    assert default_moment(2, 2, None, RunTotals(None, 4, 30.0)) == Moment(Trigger.CHECKPOINT, 1)
    assert default_moment(1, 2, None, RunTotals(None, 0, 30.0)) == Moment(Trigger.TIME, 10.0)
    assert default_moment(2, 2, None, RunTotals(None, 1, 30.0)) == Moment(Trigger.TIME, 20.0)


def test_without_an_undisturbed_run_the_target_says_how_long_the_job_is():
    """Without a target either, the first checkpoint has to do."""
    assert default_moment(2, 2, 400, None) == Moment(Trigger.STEP, 200, saved=True)
    assert default_moment(1, 2, None, None) == Moment(Trigger.STEP, 0, saved=True)
