"""examples/accelerate: save_state and load_state lose no save, and no batch is used twice or left out."""

import pytest

from tests.recipes.kit import losses, prepared
from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
EPOCHS, STEPS = 4, 400


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, tmp_path_factory):
    """Killed and given notice, all losses are those of a run that nothing interrupts."""
    recipe = prepared("accelerate", tmp_path_factory.mktemp("accelerate"))
    straight = losses(recipe.run(f"exec sh venv.sh python train.py --epochs {EPOCHS}"))
    use_example(lab, "accelerate")
    run = survive(lab, settings={"env.ACCELERATE_EPOCHS": EPOCHS})
    found = losses("\n".join(run.logs))
    assert found.items() <= straight.items()
    assert found[STEPS] == straight[STEPS]
    assert run.heartbeats[2]["committed_step"] == STEPS
