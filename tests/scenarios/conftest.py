"""A cloud for each scenario, and what must be true when it is over."""

import pytest

from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def cloud(tmp_path):
    """Give a cloud with the latencies of the real one. In the end every deployment goes, and nothing is left."""
    with VirtualCloud(tmp_path, latency="realistic").open() as made:
        yield made
        finish(made)


@pytest.fixture
def user(cloud):
    """Give the computer of the one who owns the deployment `demo`."""
    return User(cloud)


def finish(cloud):
    """Take everything down, from the computers that there are; then judge all that happened."""
    cloud.checks.retries()
    cloud.change(denied_permissions=frozenset(), disabled_apis=frozenset(), quotas={})
    cloud.distort = lambda method, response: response
    for user in cloud.users:
        user.offline = user.expired = False
        for _ in range(3):
            if user.run("down", "--yes", "--delete-data").code == 0:
                break
            cloud.wait(120)
    cloud.wait(3600)
    for user in cloud.users:
        cloud.checks.gone(user.deployment)
    assert cloud.checks.verdict == []
    assert cloud.witness.faults == {}
    assert cloud.nodes() == {}
    assert cloud.vms() == {}
