"""The contract of the ports: every case gives the same through requests and on the short way of the tests."""

import pytest

from tests.conformance import ports_machines, ports_queued, ports_refusals, ports_storage, ports_walk  # noqa: F401 - cases
from tests.conformance.ports_kit import CASES, WAYS, a_way


@pytest.mark.parametrize("name", CASES)
def test_requests_and_the_short_way_give_the_same(name, monkeypatch):
    """Answers, errors with their texts and hints, calls made, and the cloud that is left."""
    monkeypatch.setattr(
        "orchestrator.google.unknown_on_error.PARALLEL", 1
    )  # so that zones are asked in order
    case = CASES[name]
    logs, states = {}, {}
    for label in WAYS:
        with a_way(label, **case.settings) as way:
            case.act(way)
            logs[label], states[label] = way.log, way.state()
    assert logs["short"] == logs["requests"]
    for part, expected in states["requests"].items():
        assert states["short"][part] == expected, part


def test_there_are_at_least_250_cases():
    """The contract does not shrink unseen."""
    assert len(CASES) >= 250
