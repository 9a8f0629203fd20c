"""Types in order of preference: the next one when no zone has the first, and back."""

from dataclasses import replace

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.machines.capacity import after_grant, after_preemption, after_refusal
from orchestrator.domain.observation import NodeState, Present
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import CloudAccount
from orchestrator.domain.record import Candidate, Refusal
from orchestrator.domain.tpu_shape import reshaped, shape_of, unwanted
from orchestrator.engine.blueprint import Blueprint
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.race import with_request
from orchestrator.planning.tpu.tpu_types import next_type
from orchestrator.planning.update_record import update_record
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, node, record, spec, world

FIRST, SECOND = "v5litepod-8", "v6e-8"
BOTH = spec(tpu=replace(spec().tpu, other_types=(SECOND,)))
FILE = """
name: demo
tpu: {types}
job: {{command: "true"}}
"""


def out(kind, *zones, at=NOW):
    """Return the history of refusals of one type."""
    history = ()
    for zone in zones:
        history = after_refusal(history, zone, kind, at)
    return history


def creates(plan):
    """Return zone and type of each create."""
    return [(c.zone, c.type) for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.CREATE]


def test_the_second_type_is_asked_for_when_all_zones_have_refused_the_first():
    """Not before: another zone may have the first one."""
    known = record(type=FIRST, capacity_history=out(FIRST, ZONE))
    assert next_type(BOTH, known, NOW) == FIRST
    known = replace(known, capacity_history=out(FIRST, ZONE, OTHER_ZONE))
    assert next_type(BOTH, known, NOW) == SECOND
    assert next_type(spec(), known, NOW) == FIRST


def test_the_first_type_is_asked_for_again_later():
    """When its outage may be over, or when the second one is not to be had either."""
    known = record(capacity_history=out(FIRST, ZONE, OTHER_ZONE, at=NOW - 7200))
    assert next_type(BOTH, known, NOW) == FIRST
    both = out(FIRST, ZONE, OTHER_ZONE, at=NOW - 300) + out(SECOND, ZONE, OTHER_ZONE)
    assert next_type(BOTH, record(capacity_history=both), NOW) == FIRST


def test_refusals_lead_to_the_second_type_and_the_plan_says_so():
    """Both zones have refused; the record then knows which type the next TPU has."""
    refusals = (Refusal(NOW - 100, ZONE, Retry.CAPACITY), Refusal(NOW - 99, OTHER_ZONE, Retry.CAPACITY))
    now = world(nodes=Present(()))
    made = update_record(record(accepted=False, type=FIRST, refusals=refusals), now)
    plan = decide(BOTH, now, made)
    assert creates(plan) == [(ZONE, SECOND)]
    change = next(c for c in plan.changes if c.type)
    assert change.as_dict()["type"] == SECOND
    asked = with_request(made, change.zone, change.incarnation, change.round, NOW, change.type)
    assert asked.node.type == SECOND
    again = decide(BOTH, now, replace(asked, refusals=()))
    assert creates(again) == [(ZONE, SECOND)]


def test_the_preferred_type_is_no_substitute():
    """Nothing more is said of it."""
    lost = world(nodes=Present((node(state=NodeState.PREEMPTED),)))
    history = after_preemption(after_grant((), ZONE, SECOND, NOW - 9000), ZONE, SECOND, NOW, 9000)
    known = record(type=SECOND, capacity_history=history)
    assert creates(decide(BOTH, lost, known)) == [(ZONE, FIRST)]


def test_a_substitute_is_not_replaced_for_being_one():
    """The file still wants what it wanted; a change of the first type replaces it."""
    made = record(type=SECOND, shape=shape_of(BOTH))
    assert not unwanted(reshaped(made, shape_of(BOTH)))
    assert unwanted(reshaped(made, shape_of(spec(tpu=replace(BOTH.tpu, type="v5litepod-4")))))


def test_the_request_and_the_bill_are_for_the_type_that_was_taken():
    """With the software of that type, at its price."""
    made = record(type=SECOND, rivals=(Candidate(2, OTHER_ZONE, NOW),))
    blueprint = Blueprint(BOTH, CloudAccount("p", "a@b"), lambda: "key")
    new = blueprint.new_node(made, ZONE, 1)
    assert (new.type, new.runtime) == (SECOND, "v2-alpha-tpuv6e")
    assert blueprint.new_node(record(), ZONE, 1).type == FIRST
    observed = update_record(made, world(observed_at=NOW))
    (span,) = (s for s in observed.spans if s.kind is Kind.NODE)
    assert span.type == SECOND
    expensive = cost_so_far(BOTH, load_catalog(), replace(observed, spans=(span,)), NOW + 3600).known_usd
    cheap = cost_so_far(
        BOTH, load_catalog(), replace(observed, spans=(replace(span, type=""),)), NOW + 3600
    ).known_usd
    assert expensive > cheap > 0


@pytest.mark.parametrize(
    "text",
    [
        "{type: [v5litepod-8, v6e-8], zones: [europe-west4-a]}",
        "{type: v5litepod-8, other_types: [v6e-8], zones: [europe-west4-a]}",
    ],
)
def test_the_two_ways_to_write_tpu_types_are_read_alike(text):
    """A list is the short form."""
    found = read(FILE.format(types=text).encode(), "tpuctl.yaml", environ={})
    assert (found.tpu.type, found.tpu.other_types) == (FIRST, (SECOND,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{type: [v5litepod-8, v9-8], zones: [europe-west4-a]}", '"v9-8" is not a type'),
        ("{type: [v5litepod-8, v5litepod-8], zones: [europe-west4-a]}", "twice"),
        ("{type: [v5litepod-8, v6e-8], zones: [europe-west4-b]}", "europe-west4-b has no v6e-8"),
        ("{type: [], zones: [europe-west4-a]}", "expected one type or a list"),
        ("{type: [v6e-8], other_types: [v2-8], zones: [europe-west4-a]}", "expected one type or a list"),
        ("{type: [1, v6e-8], zones: [europe-west4-a]}", "expected text"),
    ],
)
def test_what_cannot_be_taken_is_said_before_anything_is_made(text, said):
    """A type that a zone does not serve would end the deployment when nobody looks."""
    with pytest.raises(ConfigError) as reported:
        read(FILE.format(types=text).encode(), "tpuctl.yaml", environ={})
    assert said in str(reported.value) + " ".join(c.message for c in reported.value.findings)
