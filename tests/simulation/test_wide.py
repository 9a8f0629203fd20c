"""A few narrow lives of the long simulation; `python -m tests.simulation.wide` lives the wide ones."""

import pytest

from tests.simulation.wide import live


@pytest.mark.parametrize("seed", [4])
def test_two_days_of_four_deployments_holds_all_invariants(seed):
    """The same code, the same checks, fewer TPUs and days."""
    life = live(seed, tpus=4, days=2)
    assert not life.problem
    assert life.tpu_days > 0
    assert life.events


def test_one_seed_is_one_story():
    """Lived twice, it is the same to the last call."""
    assert live(7, tpus=3, days=1).digest == live(7, tpus=3, days=1).digest
