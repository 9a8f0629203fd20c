"""
Another TPU in the deployment file: a new node takes the place of the old one, once.
"""

from dataclasses import replace

from orchestrator.core.decide import decide
from orchestrator.core.history import History
from orchestrator.core.plan import Verb
from orchestrator.core.shape import reshaped, shape_of, unwanted
from tests.core.worlds import history, spec, world

SMALL, LARGE = shape_of(spec()), "v5litepod-16"
RUNNING = history(shape=SMALL)


def test_the_shape_follows_what_a_node_cannot_change():
    """Type, runtime, price and address; where it may run is no part of it."""
    tpu = spec().tpu
    others = [{"type": "v5litepod-16"}, {"runtime": "v2"}, {"spot": False}, {"external_ip": False}]
    shapes = {shape_of(spec(tpu=replace(tpu, **other))) for other in others}
    assert len({SMALL, *shapes}) == 5
    assert shape_of(spec(tpu=replace(tpu, zones=tpu.zones[:1]))) == SMALL


def test_another_shape_replaces_the_node_under_a_new_incarnation():
    """The old one is deleted in the same pass, since it may hold the quota; the reason is said."""
    asked = reshaped(RUNNING, LARGE)
    plan = decide(spec(), world(), asked)
    assert [(c.verb, c.incarnation) for c in plan.changes] == [(Verb.DELETE, 1), (Verb.CREATE, 2)]
    assert LARGE in plan.changes[0].why
    assert not unwanted(replace(asked, incarnation=2))


def test_the_same_shape_and_an_unknown_one_replace_nothing():
    """Records of earlier versions hold none; before the first node there is nothing to replace."""
    for kept in (RUNNING, replace(RUNNING, shape="")):
        assert decide(spec(), world(), reshaped(kept, SMALL)).empty
    assert not unwanted(reshaped(replace(History(), shape=SMALL), LARGE))
