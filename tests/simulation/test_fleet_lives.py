"""Two lives of fleets; `python -m tests.simulation.fleet --seeds 0:1000` lives more, with up to 100 nodes."""

import pytest

from tests.simulation.fleet import live


@pytest.mark.parametrize("seed", [2, 9])
def test_a_fleet_loses_no_task_counts_none_twice_and_leaves_nothing(seed):
    """Faults, kills and errands, then calm, in which each task ends once, and `down`."""
    life = live(seed)
    assert not life.problem
    assert life.starts > 0
    assert sum(life.events.values()) > 3, "a life without faults proves nothing"
