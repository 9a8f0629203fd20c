"""
Verdicts: when a rehearsal says that a job survives, and what it advises otherwise.
"""

from orchestrator.cli.verdict_view import verdict_lines
from orchestrator.core.verdict import Blow, Kill, judge
from orchestrator.core.world import Heartbeat, Phase

T = 1_800_000_000.0


def beat(incarnation, step, resumed_from=None, **more):
    """
    Return the last report of an incarnation that trained.
    """
    timings = more.pop("timings", {"first_step": T + 10 * incarnation})
    known = {"loss": 2.5, "timings": timings, "resumed_from": resumed_from, **more}
    return Heartbeat(incarnation, 0, Phase.RUN, T, step=step, **known)


def verdict(blows, beats, **more):
    """
    Judge with an unbroken run of the same loss.
    """
    known = {"done": True, "torn": 0, "unbroken_loss": 2.5, "seconds": 50.0, "unbroken_seconds": 30.0}
    return judge(blows, beats, **{**known, **more})


KILLED = Blow(Kill.KILL, 1, T + 15, step=60, committed=50)


def test_a_job_that_goes_on_from_its_newest_checkpoint_survives():
    """
    Step 50 was saved, step 60 reached: ten are redone, nothing is lost.
    """
    found = verdict([KILLED], [beat(1, 60), beat(2, 100, 50, began_at=51)])
    assert found.survives
    assert (found.comebacks[0].redone, found.comebacks[0].seconds) == (10, 5.0)
    assert found.seconds_lost == 20.0
    assert found.advice == ()


def test_a_job_that_starts_again_though_it_had_saved_does_not_survive():
    """
    The checkpoint was there and the script did not read it.
    """
    found = verdict([KILLED], [beat(1, 60), beat(2, 100, 50, began_at=1)])
    assert not found.survives
    assert found.comebacks[0].redone == 59
    assert any("ignores its checkpoint" in text for text in found.advice)


def test_a_job_that_goes_on_from_an_older_checkpoint_does_not_survive():
    """
    An older checkpoint means that a newer one was lost.
    """
    assert not verdict([KILLED], [beat(1, 60), beat(2, 100, 25)]).survives


def test_a_job_that_had_saved_nothing_does_not_survive():
    """
    Training from the beginning again is not resuming.
    """
    blow = Blow(Kill.NOTICE, 1, T + 15, step=60, committed=None)
    found = verdict([blow], [beat(1, 60), beat(2, 100)])
    assert not found.survives
    assert any("save earlier" in text for text in found.advice)


def test_a_machine_that_made_no_step_is_no_comeback():
    """
    Killed again while it restored: only the machine after it counts.
    """
    beats = [beat(1, 60), beat(2, None, timings={}), beat(3, 100, 50)]
    assert verdict([KILLED], beats).survives
    assert not verdict([KILLED], beats[:2]).survives


def test_a_job_that_never_ends_does_not_survive():
    """
    Coming back is half of it; the end is the other half.
    """
    assert not verdict([KILLED], [beat(1, 60), beat(2, 70, 50)], done=False).survives


def test_another_loss_is_said_but_does_not_fail_the_rehearsal():
    """
    Many jobs do not promise the same loss; the user decides.
    """
    found = verdict([KILLED], [beat(1, 60), beat(2, 100, 50)], unbroken_loss=2.6)
    assert found.survives
    assert found.same_loss is False
    assert any("loss differs" in text for text in found.advice)


def test_without_an_unbroken_run_nothing_is_said_about_the_loss():
    """
    No comparison, no claim.
    """
    found = verdict([KILLED], [beat(1, 60), beat(2, 100, 50)], unbroken_loss=None, unbroken_seconds=None)
    assert (found.same_loss, found.seconds_lost) == (None, None)


def test_a_job_that_ends_before_its_next_step_is_seen_has_come_back():
    """
    Its last save says so: a short job may report nothing between restore and end.
    """
    after = Heartbeat(2, 0, Phase.DONE, T, resumed_from=50, committed_step=100)
    assert verdict([KILLED], [beat(1, 60), after], unbroken_loss=None).survives
    idle = Heartbeat(2, 0, Phase.DONE, T, resumed_from=50, committed_step=50)
    assert not verdict([KILLED], [beat(1, 60), idle], unbroken_loss=None).survives


def test_blows_that_were_not_struck_prove_nothing():
    """
    A job that is too short is told so; it is not said to survive.
    """
    found = verdict([KILLED], [beat(1, 60), beat(2, 100, 50, began_at=51)], missed=1)
    assert not found.survives
    assert "give it more steps" in found.advice[0]
    assert "not proven" in verdict_lines(found)[1]
