"""
examples/hf-tf-legacy: model.fit with transformers' TensorFlow classes, killed and stopped, keeps its losses.

Opt-in: TPUCTL_RECIPES=xla. The environment has 1.8 GB and holds what transformers no longer has.
"""

import json
import re
import signal

import pytest

from tests.recipes.kit import EXAMPLES, INSTALL_TIMEOUT, Recipe, RecipeCommand, losses, prepared
from tests.recipes.run import run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("hf-tf-legacy")]
STEPS = 40
FLAGS = f"--steps {STEPS} --save-every 10 --log-every 1"
TIMEOUT = 600  # seconds: each start compiles, and the machine may be busy

TENSORFLOW = """
import train, json, argparse, tensorflow as tf
model = train.network(argparse.Namespace(width=64, layers=2), json.load(open('data/data.json')))
status = tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint('straight'))
status.expect_partial().assert_existing_objects_matched()
print('LOGITS', model(tf.constant([{ids}])).logits[0, 1, :9].numpy().tolist())
"""
PYTORCH = """
import torch
from transformers import BertForMaskedLM
model, found = BertForMaskedLM.from_pretrained('model', output_loading_info=True)
print('KEYS', sorted(found['missing_keys']), sorted(found['unexpected_keys']))
print('LOGITS', model.eval()(torch.tensor([{ids}])).logits[0, 1, :9].tolist())
"""


def logits(text: str) -> list[float]:
    """Return the logits that a program printed."""
    return json.loads(re.findall(r"LOGITS (.*)", text)[0])


def start(recipe: Recipe, out: str, step_seconds: float = 0, more: str = "") -> RecipeCommand:
    """Start the training with a line of log for each step."""
    words = f"--out {out} {FLAGS} --step-seconds {step_seconds} {more}"
    return recipe.start(f"exec sh venv.sh python train.py {words}")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("hf-tf-legacy", tmp_path_factory.mktemp("hf-tf"), "sh venv.sh python prepare.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    text = start(recipe, "straight").wait(0, TIMEOUT)
    assert "MirroredStrategy with 2 replicas" in text
    assert "programs made: 1" in text, "all batches have one shape"
    found = losses(text)
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 0.5
    return found


def test_killed_and_stopped_run_resumes_with_the_same_losses(recipe, straight):
    """SIGKILL after a save, SIGTERM between two saves, then to the end: every loss is the unbroken run's."""
    run = start(recipe, "out", 0.2).until("^step 13 ", TIMEOUT)
    run.kill()
    parts = [run.text()]

    run = start(recipe, "out", 0.3).until("^step 15 ", TIMEOUT)
    assert "resumed from step 10" in run.text()
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(128 + signal.SIGTERM, TIMEOUT))
    saved = int(re.findall(r"asked to stop: saved step (\d+)", parts[-1])[0])
    assert (recipe.folder / f"out/ckpt-{saved}.index").is_file()

    parts.append(start(recipe, "out").wait(0, TIMEOUT))
    assert f"resumed from step {saved}" in parts[-1]
    assert losses("\n".join(parts)) == straight


def test_model_compiles_with_xla(recipe):
    """The article's test before a TPU: a few steps with jit_compile=True, one program for all of them."""
    text = recipe.start("sh venv.sh python train.py --jit --steps 3 --log-every 1 --out jit").wait(0, TIMEOUT)
    assert list(losses(text)) == [1, 2, 3]
    assert "programs made: 1" in text


def test_result_is_a_folder_that_current_transformers_loads(recipe, straight):
    """Version 5 reads the exported folder into PyTorch, no key missing or left over, the same logits."""
    recipe.run("sh venv.sh python export.py --checkpoints straight --out model", TIMEOUT)
    ids = [2, 100, 200, 300, 3]
    theirs = recipe.run(f'sh venv.sh python -c "{TENSORFLOW.format(ids=ids)}"', TIMEOUT)
    reader = recipe.run(
        f'sh {EXAMPLES}/hf-clm/venv.sh python -c "{PYTORCH.format(ids=ids)}"', INSTALL_TIMEOUT
    )
    assert "KEYS [] []" in reader
    assert logits(reader) == pytest.approx(logits(theirs), abs=1e-3)


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """SIGKILL of the machine, notice with SIGTERM, done: all losses are the unbroken run's."""
    settings = {
        "command": f"exec sh venv.sh python train.py {FLAGS}",
        "target_steps": STEPS,
        "env.BERT_STEP_SECONDS": 0.6,
    }
    run = run_recipe(lab, "hf-tf-legacy", saved=10, notice_at=17, settings=settings, timeout=TIMEOUT)
    assert run.losses() == straight
    # The agent committed what SIGTERM made the script save: no step was made twice.
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1]))
    assert any(name.endswith(f"ckpt-{STEPS}.index") for name in run.objects)
