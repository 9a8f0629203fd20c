"""What is shown of how often a job saves, and why."""

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.capacity import after_preemption
from orchestrator.planning.save_interval import SaveInterval, planned_interval, reported_interval
from tests.planning.planning_kit import a_spec

ZONE, KIND = "europe-west4-a", "v5litepod-8"


def heartbeat(worker=0, **more):
    """Return the report of a worker."""
    return Heartbeat(1, worker, Phase.RUN, 0.0, workers=2, **more)


def lost(*lifetimes):
    """Return the capacity history after TPUs that lived so long."""
    history = ()
    for number, lifetime in enumerate(lifetimes):
        history = after_preemption(history, ZONE, KIND, 1000.0 + number, lifetime)
    return history


def test_before_any_observation_the_figures_are_assumed():
    """Young's square root of 2 x 5 s x 2 h."""
    spec = a_spec(job__checkpoint__every="auto")
    found = planned_interval(spec, (), KIND, ZONE)
    assert (
        found.text
        == "every 4 min 28 s: a save stops the training for 5.0 s (assumed), unsaved work is lost every 2 h 0 min"
    )


def test_a_zone_with_short_lifetimes_gets_a_shorter_interval_and_another_does_not():
    """The capacity history counts before the first machine of this deployment is lost."""
    spec = a_spec(job__checkpoint__every="auto", job__checkpoint__save_pause=3.0)
    history = lost(1200.0, 1200.0, 1200.0)
    short, other = (planned_interval(spec, history, KIND, zone) for zone in (ZONE, "europe-west4-b"))
    assert (
        short.text
        == "every 2 min 7 s: a save stops the training for 3.0 s (declared), unsaved work is lost every 45 min 0 s"
    )
    assert other.time_between_interruptions == 7200.0
    assert planned_interval(spec, history, "v4-8", ZONE).time_between_interruptions == 7200.0


@pytest.mark.parametrize(("every", "text"), [("10m", "every 10 min 0 s"), (None, None)])
def test_what_the_file_fixes_needs_no_reason(every, text):
    """Without the setting the job decides, and nothing is said."""
    found = planned_interval(a_spec(job__checkpoint__every=every), lost(60.0), KIND, ZONE)
    assert (found and found.text) == text


def test_the_shortest_interval_of_a_slice_is_shown():
    """A save that one worker's clock asks for is made by all of them."""
    reported = reported_interval(
        (
            heartbeat(
                0,
                save_interval=300.0,
                save_pause=4.0,
                save_pause_from="measured",
                time_between_interruptions=11000.0,
            ),
            heartbeat(
                1,
                save_interval=240.0,
                save_pause=3.0,
                save_pause_from="measured",
                time_between_interruptions=9600.0,
            ),
        )
    )
    assert (
        reported.text
        == "every 4 min 0 s: a save stops the training for 3.0 s (measured), unsaved work is lost every 2 h 40 min"
    )
    assert reported_interval((heartbeat(), heartbeat(1))) is None


def test_a_job_that_does_not_follow_its_interval_is_named():
    """Some programs save by steps, whatever the interval; up to twice the interval is no fault."""
    follows, ignores = (
        reported_interval((heartbeat(save_interval=60.0, observed_save_interval=apart),)).text
        for apart in (110.0, 600.0)
    )
    assert follows == "every 1 min 0 s"
    assert ignores == "every 1 min 0 s: the job itself saves every 10 min 0 s"


def test_the_save_pause_is_shown_of_a_job_that_decides_when():
    """Asynchronous saves hardly stop the training."""
    reported = reported_interval((heartbeat(save_pause=0.04, save_pause_from="measured"),))
    assert reported == SaveInterval(None, 0.04, "measured")
    assert reported.text == "as the job decides; a save stops the training for at most 0.1 s (measured)"
    declared = SaveInterval(None, 0.1, "declared")
    assert declared.text == "as the job decides; a save stops the training for 0.1 s (declared)"
