"""The contract of the ports: every case gives the same over the official clients and straight on the model."""

import pytest

from tests.contract import ports_machines, ports_queued, ports_refusals, ports_storage, ports_walk  # noqa: F401 - cases
from tests.contract.ports_kit import CASES, WAYS


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same(name, monkeypatch):
    """Answers, errors with their texts and hints, calls made, and the cloud that is left."""
    monkeypatch.setattr("orchestrator.google.observations.PARALLEL", 1)  # so that zones are asked in order
    case = CASES[name]
    logs, states = {}, {}
    for label, start in WAYS.items():
        way = start(**case.settings)
        case.act(way)
        logs[label], states[label] = way.log, way.state()
    assert logs["direct"] == logs["clients"]
    for part, expected in states["clients"].items():
        assert states["direct"][part] == expected, part


def test_there_are_at_least_250_cases():
    """The contract does not shrink unseen."""
    assert len(CASES) >= 250
