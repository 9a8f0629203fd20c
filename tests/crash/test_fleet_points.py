"""A few of the points at which commands of a fleet are killed; `python -m tests.crash.fleet` tries all of them."""

import pytest

from tests.crash.fleet import explore
from tests.crash.fleet_scenarios import SCENARIOS


@pytest.mark.parametrize("name", ["submit", "retry", "down"])
def test_a_command_of_a_fleet_that_is_killed_is_put_right_by_the_next_one(tmp_path, name):
    """No task is lost or doubled, and nothing that costs money is left."""
    (scenario,) = (one for one in SCENARIOS if one.name == name)
    found = explore(scenario, tmp_path, first=3, every=30)
    assert found.violations == []
    assert found.tried.total() >= 1
