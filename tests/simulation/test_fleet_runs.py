"""Two runs of fleets; `python -m tests.simulation.fleet --seeds 0:1000` simulates more, with up to 100 nodes."""

import pytest

from tests.simulation.fleet import simulate


@pytest.mark.parametrize("seed", [2, 9])
def test_a_fleet_loses_no_task_counts_none_twice_and_leaves_nothing(seed):
    """Faults, kills and errands, then calm, in which each task ends once, and `down`."""
    run = simulate(seed)
    assert not run.violation
    assert run.starts > 0
    assert sum(run.events.values()) > 3, "a run without faults proves nothing"
