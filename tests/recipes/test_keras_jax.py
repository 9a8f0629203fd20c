"""examples/keras-jax: model.fit of Keras 3 on JAX loses no epoch that its backup holds."""

import re

import pytest

from orchestrator.emulator.machines.environment import TPU_DEVICES
from tests.recipes.kit import losses, prepared
from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
EPOCHS = 20


def epochs(*logs: str) -> dict[int, str]:
    """Return the loss printed for each epoch; one that was trained twice must have had the same twice."""
    found = re.findall(r"Epoch (\d+)/\d+\s[^\n]*?- loss: (\S+)", "\n".join(logs))
    return losses("\n".join(f"step {epoch} loss {loss}" for epoch, loss in found))


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, tmp_path_factory):
    """Killed and given notice, `fit` goes on with the next epoch, and with the losses of an unbroken run."""
    recipe = prepared("keras-jax", tmp_path_factory.mktemp("keras-jax"))
    # As many devices as a machine has: the sums of a batch are made in the same order.
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={TPU_DEVICES}", "JAX_PLATFORMS": "cpu"}
    straight = epochs(recipe.run(f"exec sh venv.sh python train.py --epochs {EPOCHS}", **devices))
    assert list(straight) == list(range(1, EPOCHS + 1))
    use_example(lab, "keras-jax")
    run = survive(lab, settings={"env.KERAS_JAX_EPOCHS": EPOCHS, "target_steps": EPOCHS})
    assert run.heartbeats[2]["committed_step"] == EPOCHS
    assert epochs(*run.logs).items() <= straight.items()
    # A quick machine may reach the last epoch within its notice; the third one then has nothing left to train.
    assert epochs(*run.logs[1:])[EPOCHS] == straight[EPOCHS]
