"""The capacity history: what was refused, granted and lost, and the order of asking that follows."""

import time
from dataclasses import replace

import pytest

from orchestrator.domain.machines.capacity import (
    MAX_ZONES,
    ZoneHistory,
    after_grant,
    after_preemption,
    after_refusal,
    emptiness,
    passed_over,
    ranked_zones,
    worth,
    zone_history,
)
from orchestrator.domain.observation import NodeState, Present, World
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Refusal
from orchestrator.engine.delete import closed
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.next_zone import next_zone
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, record, spec, world

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
KIND = "v5litepod-8"
HOUR, DAY = 3600.0, 86400.0


def refused(zone, *ages):
    """Return the history after refusals so many seconds ago, oldest first."""
    history = ()
    for age in ages:
        history = after_refusal(history, zone, "", NOW - age)
    return history


def lived(zone, *hours, ago=DAY):
    """Return the history after lifetimes so long, the last of which ended so long ago."""
    history = ()
    for one in hours:
        history = after_preemption(history, zone, "", NOW - ago, one * HOUR)
    return history


def test_without_any_memory_the_order_of_the_file_holds():
    """And the zone of the last TPU comes first."""
    assert ranked_zones((A, B, C), (), "", NOW) == (A, B, C)
    assert ranked_zones((A, B, C), (), "", NOW, home=B) == (B, A, C)


def test_an_outage_is_believed_for_about_as_long_as_it_has_lasted():
    """One refusal is forgotten within some hours, a night of refusals is not."""
    short, long = refused(A, 900), refused(A, 8 * HOUR, 4 * HOUR, 900)
    assert emptiness(zone_history(short, A, ""), NOW) == pytest.approx(0.25)
    assert emptiness(zone_history(long, A, ""), NOW) > 0.9
    assert ranked_zones((A, B), refused(A, 60), "", NOW) == (B, A)
    assert ranked_zones((A, B), (*refused(A, 2 * HOUR), *refused(B, 1 * HOUR)), "", NOW) == (A, B)
    assert ranked_zones((A, B), long, "", NOW) == (B, A)


def test_a_zone_that_has_just_taken_a_tpu_away_comes_last():
    """Others are asked first, also those of which nothing is known."""
    assert ranked_zones((A, B), lived(A, 30, ago=0.0), "", NOW, home=A) == (B, A)


def test_where_tpus_live_longer_is_asked_first():
    """By observed lifetimes; the file's order decides between zones of which as much is known."""
    assert ranked_zones((A, B), lived(A, 0.1, 0.2, 0.1, 0.1), "", NOW) == (B, A)
    assert ranked_zones((A, B), lived(A, 9), "", NOW) == (A, B)
    assert ranked_zones((A, B), (*lived(A, 0.2, 0.2, 0.2, 0.2), *lived(B, 0.2, 0.2, 0.2)), "", NOW) == (B, A)


def test_what_a_zone_costs_is_weighed_against_what_it_is_worth():
    """A cheap zone comes first where both are as good, and not where TPUs live for minutes."""
    fares = {A: 0.4, B: 0.3}
    assert ranked_zones((A, B), (), "", NOW, fares=fares) == (B, A)
    assert ranked_zones((A, B), lived(B, 0.1, 0.1, 0.1, 0.1, ago=12.0), "", NOW, fares=fares) == (A, B)


def test_the_hour_of_the_day_counts():
    """A zone that was empty at this hour on other days is worth less at this hour only."""
    history = ()
    for day in range(10, 1, -1):
        history = after_refusal(history, A, "", NOW - day * DAY)
        history = after_grant(history, A, "", NOW - day * DAY + 6 * HOUR)
    then = zone_history(history, A, "")
    assert worth(then, NOW) < worth(then, NOW + 6 * HOUR) < 1
    assert worth(then, NOW + 12 * HOUR) == worth(ZoneHistory(A), NOW)
    assert ranked_zones((A, B), history, "", NOW) == (B, A)
    assert ranked_zones((A, B), history, "", NOW + 12 * HOUR) == (A, B)


def test_types_are_remembered_apart():
    """A zone without one type may have plenty of another."""
    history = after_refusal((), A, "v2-8", NOW)
    assert ranked_zones((A, B), history, "v2-8", NOW) == (B, A)
    assert ranked_zones((A, B), history, "v3-8", NOW) == (A, B)


def test_the_memory_stays_small():
    """Neither time nor names without end make it grow."""
    history = ()
    for number in range(300):
        history = after_refusal(history, f"zone-{number}", "", NOW + number)
    for hour in range(24 * 100):
        history = after_refusal(history, A, "", NOW + hour * HOUR)
        history = after_grant(history, A, "", NOW + hour * HOUR + 60)
    assert len(history) == MAX_ZONES
    assert len(zone_history(history, A, "").hours) == 24


def test_each_refusal_grant_and_loss_counts_once():
    """However often the same world is observed again."""
    last = Refusal(NOW - 5, ZONE, Retry.CAPACITY)
    vm, on_demand = replace(last, kind=Kind.VM), replace(last, on_demand=True)
    others = (replace(last, retry=Retry.TRANSIENT), on_demand, vm)
    asked = record(accepted=False, refusals=(*others, last), first_seen={})
    made = asked
    for _ in range(3):
        made = update_record(made, world(nodes=Present(())))
    assert zone_history(made.capacity_history, ZONE, KIND).refused == 1
    up = update_record(record(first_seen={}, capacity_history=made.capacity_history), world())
    up = update_record(up, world(observed_at=NOW + 60))
    assert (
        zone_history(up.capacity_history, ZONE, KIND).granted,
        zone_history(up.capacity_history, ZONE, KIND).out_at,
    ) == (1, 0.0)
    gone = world(nodes=Present((node(state=NodeState.PREEMPTED),)), observed_at=NOW + HOUR)
    lost = update_record(update_record(up, gone), replace(gone, observed_at=NOW + HOUR + 15))
    found = zone_history(lost.capacity_history, ZONE, KIND)
    assert (found.preemptions, found.lived, found.out_at) == (1, HOUR, NOW + HOUR)


def test_a_notice_is_a_loss_and_the_death_after_it_no_second_one():
    """The worker says it first."""
    reported = Present((heartbeat(preempted=True, phase=heartbeat().phase.STOPPED),))
    warned = update_record(record(), world(heartbeats=reported))
    dead = world(nodes=Present((node(state=NodeState.PREEMPTED),)), heartbeats=reported, observed_at=NOW + 30)
    assert zone_history(warned.capacity_history, ZONE, KIND).preemptions == 1
    assert zone_history(update_record(warned, dead).capacity_history, ZONE, KIND).preemptions == 1


def test_the_next_tpu_goes_where_the_memory_says_and_the_plan_says_why():
    """A zone that the file names earlier was passed over for a reason."""
    lost = world(nodes=Present((node(state=NodeState.PREEMPTED),)))
    made = update_record(record(), lost)
    changes = [c for c in decide(spec(), lost, made).changes if c.kind is Kind.NODE]
    create = next(c for c in changes if c.verb is Verb.CREATE)
    assert create.zone == next_zone(spec(), made, NOW) == OTHER_ZONE
    assert create.message == f"it replaces TPU #1; {ZONE} preempted one just now"
    assert passed_over((A, B), refused(A, 600), "", NOW, B) == f"{A} refused 10 min ago"
    assert passed_over((A, B), lived(A, 0.5, 0.5), "", NOW, B) == f"{A} has kept one for 30 min on average"
    assert passed_over((A, B), (), "", NOW, A) == ""


def test_the_memory_outlives_down():
    """It is stored in the record, which stays in the bucket."""
    known = record(capacity_history=refused(A, 60), bundle="b" * 64, agent="a" * 64)
    assert decode(encode(closed(known, NOW), "demo"), "demo").capacity_history == known.capacity_history


def test_a_pass_stays_cheap():
    """Learning with a full memory costs next to nothing: the policies are replayed over months."""
    history = ()
    for number in range(MAX_ZONES):
        history = after_refusal(history, f"zone-{number}", "", NOW)
    known, calm = (
        record(capacity_history=history),
        World(world().bucket, world().vm, world().nodes, world().heartbeats),
    )
    began = time.process_time()
    for _ in range(50):
        update_record(known, calm)
    assert (time.process_time() - began) / 50 < 2e-3
