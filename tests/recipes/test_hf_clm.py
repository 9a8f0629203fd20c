"""examples/hf-clm: killed, torn and stopped, the Trainer's GPT-2 ends with the bytes of an unbroken run."""

import hashlib
import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from orchestrator.contract.formats.base import LocalSave, SaveState
from orchestrator.contract.formats.hf import HuggingFace
from tests.e2e.process_lab import ProcessLab, kill
from tests.recipes.kit import Recipe, RecipeCommand, losses, prepared
from tests.recipes.run import RUN_TIMEOUT, checkpoints_of, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("hf-clm")]
STEPS = 60
FLAGS = (
    f"--max_steps {STEPS} --per_device_train_batch_size 8 --learning_rate 3e-3 --warmup_steps 10 "
    "--save_steps 15 --save_total_limit 3 --logging_steps 1 --seed 42 --report_to none"
)


def start(
    recipe: Recipe, out: str, resume: str = "", more: str = "", held_at: int | None = None
) -> RecipeCommand:
    """Start the training as tpuctl.yaml does, resuming from *resume*."""
    words = f'--output_dir {out} --resume_from_checkpoint "{resume}"'
    return recipe.start(f"exec sh venv.sh python train.py {words} {FLAGS} {more}", held_at)


def newest(recipe: Recipe, out: str) -> str:
    """Return the newest checkpoint that was written to its end, by the Trainer's own last file."""
    whole = [path.parent for path in (recipe.folder / out).glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda path: int(path.name.split("-")[1])))


def weights(folder: Path) -> str:
    """Return the checksum of the model's file."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("hf-clm", tmp_path_factory.mktemp("hf-clm"), "sh venv.sh python corpus.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> tuple[dict[int, str], str]:
    """Return the losses and the final weights of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait())
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 1.0
    return found, weights(recipe.folder / f"straight/checkpoint-{STEPS}")


def test_stopped_run_saves_and_leaves_with_its_own_status(recipe, straight):
    """SIGTERM between two saves: after 3 s of waiting it saves, and says after which step it left."""
    # The Trainer prints the loss of a step after the moment at which held.py holds it.
    older = recipe.folder / "straight/checkpoint-30"
    run = start(recipe, "out", str(older), held_at=33).until("^step 32 ")
    assert "resumed from step 30" in run.text()
    run.process.send_signal(signal.SIGTERM)
    text = run.wait(128 + signal.SIGTERM)
    remaining = int(re.findall(r"asked to stop: saved, left after step (\d+)", text)[0])
    assert 33 < remaining < STEPS
    assert int(newest(recipe, "out").rpartition("-")[2]) in {remaining - 1, remaining}
    assert losses(text).items() <= straight[0].items()


def test_checkpoint_without_optimizer_is_refused_not_resumed_silently(recipe, straight):
    """The Trainer would go on with a fresh optimizer; the script says what is missing and leaves with 1."""
    torn = recipe.folder / "no-optimizer/checkpoint-45"
    shutil.copytree(recipe.folder / "straight/checkpoint-45", torn)
    (torn / "optimizer.pt").unlink()
    assert "lacks optimizer.pt" in start(recipe, "no-optimizer", str(torn)).wait(1)


def test_other_data_are_refused(recipe, straight):
    """A checkpoint made with another text or tokenizer is refused: its tokens would mean something else."""
    other = recipe.start("sh venv.sh python corpus.py --vocab-size 1000 --out data-other")
    other.wait()
    run = start(recipe, "other", str(recipe.folder / "straight/checkpoint-45"), "--data data-other")
    assert "was trained on other data or with another tokenizer" in run.wait(1)


def test_result_is_a_model_that_transformers_loads(recipe, straight):
    """The last checkpoint is model and tokenizer in one folder."""
    code = (
        "from transformers import pipeline; "
        f"p = pipeline('text-generation', 'straight/checkpoint-{STEPS}'); "
        "print('TEXT', repr(p('import ', max_new_tokens=8, do_sample=False)[0]['generated_text']))"
    )
    assert "TEXT 'import " in recipe.run(f'sh venv.sh python -c "{code}"')


def fake(source: Path, step: int, harm) -> None:
    """Put a checkpoint of *step* beside *source* with harm done to it; the rename shows it all at once."""
    building = source.parent / ".building"
    shutil.copytree(source, building)
    state = json.loads((building / "trainer_state.json").read_text())
    (building / "trainer_state.json").write_text(json.dumps({**state, "global_step": step}))
    harm(building)
    building.rename(source.parent / f"checkpoint-{step}")


def cut(folder: Path) -> None:
    """Leave half of the model's file."""
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def tear(lab: ProcessLab) -> None:
    """
    Add two newer checkpoints, one without optimizer and one with half a model, and kill the job.

    The Trainer by itself would take the newest: crash on the one, and go on silently wrong with the other.
    """
    folder = checkpoints_of(lab, "hf-clm-tpu-g1")
    source = folder / "checkpoint-15"
    fake(source, 900, lambda one: (one / "optimizer.pt").unlink())
    fake(source, 901, cut)
    for pid in lab.jobs(b"train.py"):
        kill(pid)
    lab.wait_for("the second attempt", lambda: lab.at(16, attempt=2), RUN_TIMEOUT)
    assert not (folder / "checkpoint-900").exists()
    assert not (folder / "checkpoint-901").exists()
    assert list(folder.parent.rglob("torn-checkpoint-900-*"))
    assert list(folder.parent.rglob("torn-checkpoint-901-*"))


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """Two torn checkpoints, SIGKILL of the machine, notice with SIGTERM: the final weights are the same."""
    command = f'exec sh venv.sh python train.py --output_dir "$TPUCTL_CHECKPOINT_DIR" {FLAGS} '
    command += '--resume_from_checkpoint "$TPUCTL_RESUME"'
    settings = {"command": command, "target_steps": STEPS}
    run = run_recipe(lab, "hf-clm", saved=15, kill_at=18, notice_at=25, settings=settings, early=tear)
    assert run.losses() == straight[0]
    final = lab.read(f"checkpoints/{STEPS:08d}/g3/w0/model.safetensors")
    assert hashlib.sha256(final).hexdigest() == straight[1]
    assert "asked to stop: saved" in run.logs[1]
    # The Trainer may save just before an update that it then makes: one step is redone at most.
    assert max(losses(run.logs[1])) - run.heartbeats[1]["committed_step"] in {0, 1}


def test_agent_sees_every_tear_in_files_of_the_real_trainer(recipe, straight):
    """A file cut at 10, 50 or 99.9 %, or missing, is never complete; the untouched checkpoint is."""
    source, one = recipe.folder / "straight/checkpoint-45", HuggingFace()
    root = recipe.folder / "tears"
    save = LocalSave(45, "checkpoint-45", "checkpoint-45")
    shutil.copytree(source, root / save.folder)
    assert one.find(root) == [save]
    assert one.judge(root, save).state is SaveState.COMPLETE
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        file = root / save.folder / name
        whole = file.read_bytes()
        for share in (0, 0.1, 0.5, 0.999):
            file.write_bytes(whole[: int(len(whole) * share)])
            assert one.judge(root, save).state is SaveState.TORN, (name, share)
        file.unlink()
        assert one.judge(root, save).state is not SaveState.COMPLETE, name
        file.write_bytes(whole)
    assert one.judge(root, save).state is SaveState.COMPLETE
