"""examples/fairseq-mlm: fairseq's own training, killed and stopped at any moment, goes on with the same losses."""

import re
import shutil
import signal
import zipfile
from pathlib import Path

import pytest

from tests.e2e.process_lab import ProcessLab, kill
from tests.recipes.kit import Recipe, RecipeCommand, prepared
from tests.recipes.run import RUN_TIMEOUT, checkpoints_of, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("fairseq-mlm")]
UPDATES = 120
LAST = "checkpoint_last.pt"


def start(recipe: Recipe, out: str, held_at: int | None = None) -> RecipeCommand:
    """Start the training with a line of log for each update."""
    return recipe.start("exec sh train.sh --log-interval 1", held_at, TPUCTL_CHECKPOINT_DIR=out)


def losses(text: str) -> dict[int, str]:
    """Return the loss of each update; one that was made twice must have had the same loss twice."""
    found: dict[int, str] = {}
    for loss, update in re.findall(r"train_inner .* loss=([\d.]+),.* num_updates=(\d+),", text):
        first = found.setdefault(int(update), loss)
        assert first == loss, f"update {update} had two losses: {first}, {loss}"
    return found


def tear(path: Path) -> None:
    """Leave the first tenth of a file, as a kill during fairseq's copy does."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 10])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("fairseq-mlm", tmp_path_factory.mktemp("fairseq"), "sh prepare.sh")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait())
    assert list(found) == list(range(1, UPDATES + 1))
    assert float(found[UPDATES]) < float(found[1]) - 2.0
    return found


def test_torn_files_are_repaired_and_a_stopped_run_saves(recipe, straight):
    """Alias and newest file torn: both are moved aside, the one before is loaded. SIGTERM makes it save."""
    out = recipe.folder / "out"
    shutil.copytree(recipe.folder / "straight", out)
    for name in (LAST, f"checkpoint_2_{UPDATES}.pt"):
        tear(out / name)
        with pytest.raises(zipfile.BadZipFile):
            zipfile.ZipFile(out / name)
    run = start(recipe, "out", 107).until("num_updates=107,")
    assert f"repair: {LAST} is now a copy of checkpoint_2_100.pt" in run.text()
    assert f"{LAST} (epoch 2 @ 100 updates)" in run.text()
    assert list(out.glob(f"torn-{LAST}-*"))
    assert list(out.glob(f"torn-checkpoint_2_{UPDATES}.pt-*"))
    run.process.send_signal(signal.SIGTERM)
    found = losses(run.wait(128 + signal.SIGTERM))
    saved = max(found)
    assert 107 <= saved < UPDATES
    assert (out / f"checkpoint_2_{saved}.pt").is_file()
    assert found == {update: straight[update] for update in range(101, saved + 1)}


def test_fairseq_alone_fails_on_the_torn_alias(recipe, straight):
    """What the repair is for: without it the same command crashes and leaves the torn file."""
    shutil.copytree(recipe.folder / "straight", recipe.folder / "alone")
    tear(recipe.folder / "alone" / LAST)
    torn = (recipe.folder / "alone" / LAST).stat().st_size
    run = recipe.start(
        "sed 's/checkpoints.repair(.*/pass/' launch.py > bare.py; "
        "sed 's/launch.py/bare.py/' train.sh > bare.sh; "
        "TPUCTL_CHECKPOINT_DIR=alone exec sh bare.sh"
    )
    assert "failed finding central directory" in run.wait(1)
    assert (recipe.folder / "alone" / LAST).stat().st_size == torn


def test_a_machine_without_compiler_says_what_to_install(recipe, tmp_path):
    """The setup says that fairseq is built from source, before it downloads anything."""
    run = recipe.start("sh venv.sh", TPUCTL_VENV_CACHE=str(tmp_path / "venvs"), CC="no-such-compiler")
    assert "there is no gcc and g++; on Debian and Ubuntu: apt-get install g++" in run.wait(1)
    assert not (tmp_path / "venvs").exists()


def test_finished_training_is_not_changed(recipe, straight):
    """Started again after its last update it makes none, and leaves with 0."""
    again = start(recipe, "straight").wait()
    assert losses(again) == {}


def harm(lab: ProcessLab) -> None:
    """Tear the alias on the machine and kill the job; the agent must repair before it starts again."""
    tear(checkpoints_of(lab, "fairseq-mlm-tpu-g1") / LAST)
    for pid in lab.jobs(b"launch.py"):
        kill(pid)
    lab.wait_for("the second attempt", lambda: lab.at(41, attempt=2), RUN_TIMEOUT)


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """Up, torn alias, SIGKILL of the machine, notice with SIGTERM, done: each loss is the unbroken run's."""
    settings = {"command": "exec sh train.sh --log-interval 1"}
    run = run_recipe(lab, "fairseq-mlm", saved=40, kill_at=43, notice_at=75, settings=settings, early=harm)
    assert losses("\n".join(run.logs)) == straight
    # The agent committed what SIGTERM made fairseq save: no update was made twice.
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1]))
    assert any(name.endswith(f"_{UPDATES}.pt") for name in run.objects)
