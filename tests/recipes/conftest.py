"""
The tests of recipes run only when TPUCTL_RECIPES asks for them: large frameworks, long installs.

1 means the recipes that CI rehearses, xla those that are too large for every run, all means both. With
TPUCTL_RECIPES_TURN, the number of a change, the articles' five systems are rehearsed, and of the others those
whose turn it is: a change has half an hour.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.emulator.machines.machine_python import base_interpreter, version_of
from orchestrator.emulator.start_options import Options, save_options
from tests.e2e.conftest import slurm_packages
from tests.e2e.process_lab import ProcessLab
from tests.recipes.kit import VENVS

__all__ = ["lab", "slurm_packages"]
HERE = Path(__file__).parent
OURS = version_of(base_interpreter())
TOO_LARGE = {
    f"test_{name}.py"
    for name in (
        "alexnet_xla",
        "hf_clm_xla",
        "fairseq_mlm_xla",
        "hf_tf_legacy",
        "maxtext",
        "accelerate",
        "trl_sft",
        "ray",
    )
}
TURNS = (
    ("test_jax_lm_slice.py",),
    ("test_flax_nnx.py", "test_eval.py", "test_data_logs_and_checkpoints_straight_in_the_bucket"),
    ("test_keras_jax.py", "test_real_saves.py", "test_pages_run.py"),
    ("test_lightning.py", "test_sidecars.py", "test_pins.py"),
)
"""What one change in four rehearses: files and tests."""
# With `--no-loadscope-reorder` processes take modules in this order: a long one must not begin last.
LONGEST = [
    f"test_{name}.py"
    for name in ("bert_tf2", "jax_lm_slice", "fairseq_mlm", "alexnet_ddp", "pages_run", "hf_clm", "jax_lm")
]


def pytest_collection_modifyitems(items):
    """Skip the tests of this folder, with the reason, unless they are asked for; put long modules first."""
    asked, resting = os.environ.get("TPUCTL_RECIPES"), _resting(os.environ.get("TPUCTL_RECIPES_TURN"))
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    for item in items:
        if HERE in item.path.parents:
            switch = "xla" if item.path.name in TOO_LARGE else "1"
            if asked not in (switch, "all"):
                reason = f"large frameworks; ask for them with TPUCTL_RECIPES={switch}"
                item.add_marker(pytest.mark.skip(reason=reason))
        if {item.path.name, item.name} & resting:
            item.add_marker(pytest.mark.skip(reason="another change's turn; .ci/recipes all"))


def _resting(change: str | None) -> set[str]:
    """Return what it is not the turn of at the change with this number; nothing when no number is given."""
    if not change:
        return set()
    others = [turn for number, turn in enumerate(TURNS) if number != int(change) % len(TURNS)]
    return {name for turn in others for name in turn}


@pytest.fixture
def lab(tmp_path) -> Iterator[ProcessLab]:
    """Return an empty lab whose machines share the virtual environments; it leaves nothing behind."""
    one = ProcessLab(tmp_path)
    one.environment["TPUCTL_VENV_CACHE"] = str(VENVS)
    # The CPU builds of torch that an index may offer are for few versions; the other tests use the image's.
    save_options(one.cloud, Options(python=OURS, fresh_project=False))
    try:
        yield one
    finally:
        one.close()
