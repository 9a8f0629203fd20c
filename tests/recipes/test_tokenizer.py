"""examples/tokenizer: killed, it goes on with the missing step; transformers and hf-clm read the result."""

import shutil
from pathlib import Path

import pytest

from tests.recipes.kit import Recipe, prepared
from tests.recipes.run import run_recipe

pytestmark = pytest.mark.recipes
TRAIN = "exec sh venv.sh python train.py"
MADE = {
    "wordpiece/vocab.txt", "wordpiece/tokenizer.json",
    "bpe/vocab.json", "bpe/merges.txt", "bpe/tokenizer.json", "COMPLETE",
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder with their bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its text made."""
    one = prepared("tokenizer", tmp_path_factory.mktemp("tokenizer"), "sh venv.sh python corpus.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[str, bytes]:
    """Return the files that a run makes that nothing interrupts."""
    recipe.run(TRAIN, TOKENIZER_OUT="straight")
    found = contents(recipe.folder / "straight/tokenizers-2")
    assert set(found) == MADE
    return found


def test_killed_run_keeps_its_finished_step(recipe, straight):
    """SIGKILL in step 2: step 1 is not trained again, and every file equals that of the other run."""
    run = recipe.start(TRAIN, held_at=1, TOKENIZER_OUT="out").until("^step 1: ")
    run.wait_for((recipe.folder / "out/tokenizers-2/bpe").exists)
    run.kill()
    assert not (recipe.folder / "out/tokenizers-2/COMPLETE").exists()
    text = recipe.run(TRAIN, TOKENIZER_OUT="out")
    assert "resumed from step 1" in text
    assert "step 1: " not in text
    assert contents(recipe.folder / "out/tokenizers-2") == straight


def test_transformers_and_hf_clm_read_the_result(recipe, straight, tmp_path):
    """BertTokenizer reads vocab.txt; hf-clm takes the BPE instead of training its own."""
    clm: Recipe = prepared("hf-clm", tmp_path)
    shutil.copytree(recipe.folder / "straight/tokenizers-2/bpe", clm.folder / "tokenizer")
    assert f"tokenizer: {clm.folder / 'tokenizer'}" in clm.run("sh venv.sh python corpus.py")
    code = (
        "from transformers import BertTokenizer; "
        f"t = BertTokenizer.from_pretrained('{recipe.folder}/straight/tokenizers-2/wordpiece'); "
        "print(len(t), t.tokenize('def main():'))"
    )
    assert "2000 ['def', 'main', '(', ')', ':']" in clm.run(f'sh venv.sh python -c "{code}"')


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """Killed after step 1, notice in step 2: the bucket holds what an unbroken run makes elsewhere."""
    run = run_recipe(lab, "tokenizer", saved=1, kill_at=1, notice_at=1, settings={})
    # The kill may take the line with it: what a machine has not yet sent of its log is lost.
    assert sum(log.count("step 1: wordpiece") for log in run.logs) <= 1
    assert "resumed from step 1" in run.logs[1]
    place = "checkpoints/00000002/g3/w0/"
    last = {name.removeprefix(place): lab.read(name) for name in run.objects if name.startswith(place)}
    assert last == straight
