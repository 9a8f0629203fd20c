"""A town for each scenario, and what must be true when its story is over."""

import pytest

from tests.scenarios.desk import Desk
from tests.scenarios.town import Town


@pytest.fixture
def town(tmp_path):
    """Give a cloud with the latencies of the real one. In the end every deployment goes, and nothing is left."""
    with Town(tmp_path, latency="realistic").open() as made:
        yield made
        finish(made)


@pytest.fixture
def desk(town):
    """Give the computer of the one who owns the deployment `demo`."""
    return Desk(town)


def finish(town):
    """Take everything down, from the computers that there are; then judge the whole story."""
    town.judge.retries()
    town.change(denied_permissions=frozenset(), disabled_apis=frozenset(), quotas={})
    town.distort = lambda method, response: response
    for desk in town.desks:
        desk.offline = desk.expired = False
        for _ in range(3):
            if desk.run("down", "--yes", "--delete-data").code == 0:
                break
            town.wait(120)
    town.wait(3600)
    for desk in town.desks:
        town.judge.gone(desk.deployment)
    assert town.judge.verdict == []
    assert town.witness.faults == {}
    assert town.nodes() == {}
    assert town.vms() == {}
