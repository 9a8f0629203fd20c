"""Spot or on demand: each rule of the choice, and that no deadline is missed whatever spot does."""

import random
from dataclasses import replace

import pytest

from benchmarks.policies.compared import DeadlinePolicy, choose
from orchestrator.planning.tpu.deadline import Mode, Offer, Situation, granted_fraction, lifetime_of, on_time

HOUR = 3600.0
CHEAP = Offer("a", 1.0, up=True, available=0.9, lifetime=6 * HOUR)
EXPENSIVE = Offer("b", 1.8, up=True, available=0.9, lifetime=6 * HOUR)
NONE = replace(CHEAP, up=False)


def situation(**changes):
    """Return ten hours of work with five hours of slack, nothing done and nothing running."""
    base = Situation(
        now=0.0, began=0.0, deadline=15 * HOUR, work=10 * HOUR, done=0.0, cold=360.0, commit_interval=600.0,
        on_demand_usd_hour=3.0, offers=(CHEAP,),
    )  # fmt: skip
    return replace(base, **changes)


def near_the_end(**changes):
    """Return an hour of work with hardly more slack than one sudden end costs."""
    return situation(**{"done": 9 * HOUR, "now": 14 * HOUR - 1400.0, **changes})


@pytest.mark.parametrize("policy", DeadlinePolicy)
def test_spot_that_is_there_is_taken_and_held(policy):
    """Nobody leaves a spot node for one that costs as much."""
    assert choose(policy, situation()).mode is Mode.SPOT
    held = choose(policy, situation(mode=Mode.SPOT, zone="a"))
    assert (held.mode, held.zone) == (Mode.SPOT, "a")


@pytest.mark.parametrize("policy", DeadlinePolicy)
def test_the_net_when_the_slack_is_used_up(policy):
    """Without a node and with less slack than a sudden end costs, only on demand is safe, though spot is there."""
    assert near_the_end().slack > near_the_end().change
    late = near_the_end(now=14 * HOUR - 1200.0)
    assert late.slack < late.change
    assert choose(policy, late).mode is Mode.ON_DEMAND
    assert choose(policy, replace(late, mode=Mode.ON_DEMAND)).mode is Mode.ON_DEMAND


def test_greedy_waits_and_uniform_keeps_to_its_line():
    """An hour behind the line greedy waits still, Uniform Progress pays for on demand."""
    gone = situation(offers=(NONE,), now=1.5 * HOUR)
    assert choose(DeadlinePolicy.GREEDY, gone).mode is Mode.WAIT
    assert choose(DeadlinePolicy.UNIFORM, gone).mode is Mode.ON_DEMAND
    assert choose(DeadlinePolicy.UNIFORM, replace(gone, done=2 * HOUR)).mode is Mode.WAIT


def test_uniform_leaves_on_demand_only_when_it_is_ahead():
    """Ahead means: of where the line is two cold starts from now."""
    behind = situation(mode=Mode.ON_DEMAND, now=1.5 * HOUR, done=1 * HOUR)
    assert choose(DeadlinePolicy.UNIFORM, behind).mode is Mode.ON_DEMAND
    assert choose(DeadlinePolicy.UNIFORM, replace(behind, done=1.5 * HOUR)).mode is Mode.SPOT


def test_thrifty_keeps_slack_for_the_changes_to_come():
    """With lifetimes of an hour there are many of them, so it stops waiting earlier than with a day."""
    short, long = replace(NONE, lifetime=HOUR), replace(NONE, lifetime=24 * HOUR)
    now = situation(now=3.7 * HOUR)
    assert choose(DeadlinePolicy.THRIFTY, replace(now, offers=(short,))).mode is Mode.ON_DEMAND
    assert choose(DeadlinePolicy.THRIFTY, replace(now, offers=(long,))).mode is Mode.WAIT


def test_thrifty_goes_back_to_spot_only_when_it_pays():
    """For a lifetime of a few minutes two cold starts are too expensive."""
    back = situation(mode=Mode.ON_DEMAND, now=HOUR, done=0.5 * HOUR)
    assert choose(DeadlinePolicy.THRIFTY, back).mode is Mode.SPOT
    brief = replace(back, offers=(replace(CHEAP, lifetime=400.0),))
    assert choose(DeadlinePolicy.THRIFTY, brief).mode is Mode.ON_DEMAND
    assert choose(DeadlinePolicy.THRIFTY, replace(back, offers=(NONE,))).mode is Mode.ON_DEMAND


def test_thrifty_looks_again_for_spot_whatever_was_learned_of_its_lifetimes():
    """A zone in which TPUs went after half an hour is asked again; not just before much work is saved."""
    back = situation(
        mode=Mode.ON_DEMAND, now=HOUR, done=0.5 * HOUR, offers=(replace(CHEAP, lifetime=HOUR / 2),)
    )
    assert choose(DeadlinePolicy.THRIFTY, back).mode is Mode.SPOT
    assert choose(DeadlinePolicy.THRIFTY, replace(back, unsaved=12000.0)).mode is Mode.ON_DEMAND


def test_thrifty_refuses_expensive_offers_while_there_is_time():
    """A dear place is refused when a cheap one comes often enough, and taken when the deadline needs it."""
    only_expensive = situation(offers=(replace(CHEAP, up=False), EXPENSIVE), deadline=30 * HOUR)
    assert choose(DeadlinePolicy.THRIFTY, only_expensive).mode is Mode.WAIT
    hurried = replace(only_expensive, deadline=13 * HOUR)
    assert choose(DeadlinePolicy.THRIFTY, hurried).zone == "b"


def test_thrifty_moves_when_another_place_is_much_cheaper():
    """The saving must be worth twice what the move wastes."""
    on_expensive = situation(mode=Mode.SPOT, zone="b", offers=(CHEAP, EXPENSIVE))
    assert choose(DeadlinePolicy.THRIFTY, on_expensive).zone == "a"
    assert (
        choose(
            DeadlinePolicy.THRIFTY, replace(on_expensive, offers=(replace(CHEAP, usd_hour=1.75), EXPENSIVE))
        ).zone
        == "b"
    )
    assert choose(DeadlinePolicy.UNIFORM, on_expensive).zone == "b"


def test_nothing_is_taken_when_the_work_is_done():
    """No policy pays for a finished job."""
    for mode in Mode:
        assert choose(DeadlinePolicy.THRIFTY, situation(done=10 * HOUR, mode=mode)).mode is Mode.WAIT


def test_the_forecast():
    """On time, at risk when one more preemption is too many, and what cannot be met is said."""
    assert on_time(situation()) == "on time"
    assert on_time(situation(mode=Mode.SPOT, now=5 * HOUR - 700.0)) == "at risk"
    assert on_time(situation(mode=Mode.ON_DEMAND, now=5 * HOUR - 700.0)) == "on time"
    assert on_time(situation(now=5 * HOUR - 300.0)) == "cannot be met"


def test_what_is_not_known_yet_has_a_prior():
    """A half, and four hours; then what was observed counts."""
    assert (granted_fraction(0, 0), lifetime_of(0, 0)) == (0.5, 4 * HOUR)
    assert granted_fraction(0, 8) == 0.1
    assert lifetime_of(18 * HOUR, 9.5) == 2 * HOUR


def play(policy, seed, tick=60.0):
    """Play a job against spot that comes and goes as a seed wants; return (was it in time, cost)."""
    draw = random.Random(seed)
    means = (draw.uniform(0.2, 8) * HOUR, draw.uniform(0.2, 8) * HOUR)
    state = situation(deadline=draw.uniform(10.8, 20) * HOUR)
    up, until, cold_remaining, cost, worked = draw.random() < 0.5, 0.0, 0.0, 0.0, 0.0
    while state.done < state.work:
        if state.now >= until:
            up, until = not up, state.now + draw.expovariate(1 / means[up])
            if not up and state.mode is Mode.SPOT:
                state, worked = replace(state, mode=Mode.WAIT, zone=""), state.done
        offer = replace(CHEAP, up=up, available=0.5, lifetime=draw.uniform(0.1, 10) * HOUR)
        choice = choose(policy, replace(state, offers=(offer,), unsaved=worked - state.done))
        if choice.mode is not state.mode:
            worked, cold_remaining = state.done, state.cold
            state = replace(state, mode=choice.mode, zone=choice.zone)
        if state.mode is not Mode.WAIT:
            cost += {Mode.SPOT: 1.0, Mode.ON_DEMAND: 3.0}[state.mode] * tick / HOUR
            worked += tick if cold_remaining <= 0 else 0.0
            cold_remaining -= tick
        done = (
            worked
            if worked - state.done >= state.commit_interval - tick or worked >= state.work
            else state.done
        )
        state = replace(state, now=state.now + tick, done=done)
    return state.now <= state.deadline, cost


@pytest.mark.parametrize("policy", DeadlinePolicy)
def test_no_deadline_is_missed_whatever_spot_does(policy):
    """Also where what was learned is wrong: the estimates of lifetimes are drawn by lot."""
    assert [seed for seed in range(25) if not play(policy, seed)[0]] == []


def test_thrifty_is_cheaper_than_the_others_on_the_same_weather():
    """In sum over all seeds; the replay over real traces says by how much."""
    cost = {policy: sum(play(policy, seed)[1] for seed in range(25)) for policy in DeadlinePolicy}
    assert cost[DeadlinePolicy.THRIFTY] < cost[DeadlinePolicy.UNIFORM] < cost[DeadlinePolicy.GREEDY]
