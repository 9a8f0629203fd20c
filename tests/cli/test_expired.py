"""
Deployments whose time is over while nobody watched: the next command of this computer ends them.
"""

from collections.abc import Iterator

import pytest

from tests.scenarios.desk import Desk
from tests.scenarios.town import Town

TTL = 2 * 3600.0


@pytest.fixture
def town(tmp_path) -> Iterator[Town]:
    """Give a cloud on a virtual clock, and computers at which commands are typed."""
    with Town(tmp_path).open() as made:
        yield made


def test_the_next_command_ends_an_expired_deployment(town):
    """A command about another deployment takes its machines away, and not earlier; the data stays."""
    abandoned = Desk(town, watch__ttl="2h")
    other = Desk(town, "other", beside=abandoned, name="other")
    abandoned.up()
    town.wait(TTL - 600)
    other.run("status")
    assert len(town.nodes()) == 1

    town.wait(1200)
    said = other.run("status")

    assert "demo: its time to live of 2h is over and nobody watched; its machines go" in said.err
    town.wait(60)
    assert town.nodes() == {}
    assert len(town.buckets()) == 1
