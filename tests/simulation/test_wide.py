"""A few narrow runs of the long simulation; `python -m tests.simulation.wide` simulates the wide ones."""

import pytest

from tests.simulation.wide import simulate


@pytest.mark.parametrize("seed", [4])
def test_two_days_of_four_deployments_holds_all_invariants(seed):
    """The same code, the same checks, fewer TPUs and days."""
    run = simulate(seed, tpus=4, days=2)
    assert not run.violation
    assert run.tpu_days > 0
    assert run.events


def test_one_seed_is_one_run():
    """Lived twice, it is the same to the last call."""
    assert simulate(7, tpus=3, days=1).digest == simulate(7, tpus=3, days=1).digest
