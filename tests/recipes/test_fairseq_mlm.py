"""
examples/fairseq-mlm: fairseq's own training, killed and stopped at any moment, goes on with the same losses.
"""

import re
import shutil
import signal
import zipfile
from pathlib import Path

import pytest

from tests.e2e.stage import Stage, kill
from tests.recipes.kit import Recipe, Run, prepared
from tests.recipes.life import checkpoints_of, live

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("fairseq-mlm")]
UPDATES = 120
LAST = "checkpoint_last.pt"


def start(recipe: Recipe, out: str, step_seconds: float = 0) -> Run:
    """Start the training with a line of log for each update."""
    return recipe.start(
        "exec sh train.sh --log-interval 1", TPUCTL_CHECKPOINT_DIR=out, FAIRSEQ_STEP_SECONDS=str(step_seconds)
    )


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


def test_torn_alias_is_repaired_and_all_losses_are_those_of_an_unbroken_run(recipe, straight):
    """SIGKILL and a torn checkpoint_last.pt, SIGTERM between two saves, then to the end."""
    out = recipe.folder / "out"
    run = start(recipe, "out", 0.05).until("num_updates=47,")
    run.kill()
    parts = [run.text()]
    tear(out / LAST)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(out / LAST)

    run = start(recipe, "out", 0.05).until("num_updates=51,")
    assert f"repair: {LAST} is now a copy of checkpoint_1_40.pt" in run.text()
    assert f"{LAST} (epoch 1 @ 40 updates)" in run.text()
    assert list(out.glob(f"torn-{LAST}-*"))
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(128 + signal.SIGTERM, 30))
    saved = max(losses(parts[-1]))
    assert (out / f"checkpoint_1_{saved}.pt").is_file()

    parts.append(start(recipe, "out").wait())
    assert f"@ {saved} updates" in parts[-1]
    assert (out / f"checkpoint_2_{UPDATES}.pt").is_file()
    assert losses("\n".join(parts)) == straight


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


def test_machine_without_compiler_is_told_what_to_install(recipe, tmp_path):
    """The setup says that fairseq is built from source, before it downloads anything."""
    run = recipe.start("sh venv.sh", TPUCTL_VENV_CACHE=str(tmp_path / "venvs"), CC="no-such-compiler")
    assert "there is no gcc and g++; on Debian and Ubuntu: apt-get install g++" in run.wait(1)
    assert not (tmp_path / "venvs").exists()


def test_finished_training_is_left_as_it_is(recipe, straight):
    """Started again after its last update it makes none, and leaves with 0."""
    again = start(recipe, "straight").wait()
    assert losses(again) == {}


def test_torn_newest_falls_back_to_the_one_before(recipe, straight):
    """Newest file and alias both torn: both are moved aside, the one before is loaded."""
    folder = recipe.folder / "both"
    shutil.copytree(recipe.folder / "straight", folder)
    tear(folder / f"checkpoint_2_{UPDATES}.pt")
    tear(folder / LAST)
    text = start(recipe, "both").wait()
    assert f"repair: {LAST} is now a copy of checkpoint_2_100.pt" in text
    assert losses(text) == {update: straight[update] for update in range(101, UPDATES + 1)}


def harm(stage: Stage) -> None:
    """Tear the alias on the machine and kill the job; the agent must repair before it starts again."""
    tear(checkpoints_of(stage, "fairseq-mlm-tpu-g1") / LAST)
    for pid in stage.jobs(b"launch.py"):
        kill(pid)
    stage.wait_for("the second attempt", lambda: stage.at(41, attempt=2), 60)


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(stage, straight):
    """Up, torn alias, SIGKILL of the machine, notice with SIGTERM, done: each loss is the unbroken run's."""
    settings = {"command": "exec sh train.sh --log-interval 1", "env.FAIRSEQ_STEP_SECONDS": 0.15}
    life = live(stage, "fairseq-mlm", kill_at=40, notice_at=75, settings=settings, early=harm)
    assert losses("\n".join(life.logs)) == straight
    # The agent committed what SIGTERM made fairseq save: no update was made twice.
    assert life.beats[1]["committed_step"] == max(losses(life.logs[1]))
    assert any(name.endswith(f"_{UPDATES}.pt") for name in life.objects)
