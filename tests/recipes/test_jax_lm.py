"""examples/jax-lm: killed at any moment it goes on with the same losses, from a folder or a bucket."""

import re
import signal
import urllib.request
from json import loads
from urllib.parse import quote

import pytest

from tests.e2e.process_lab import ProcessLab, kill
from tests.recipes.jax_lm import COMMAND, DataBucket, settings
from tests.recipes.kit import Recipe, RecipeCommand, losses, prepared
from tests.recipes.run import RUN_TIMEOUT, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("jax-lm")]
STEPS = 40
DEVICES = 8


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its environment made."""
    folder = tmp_path_factory.mktemp("jax-lm")
    one = prepared("jax-lm", folder, JAX_PLATFORMS="cpu", **settings(STEPS, DEVICES, folder / "compiled"))
    yield one
    one.close()


def start(recipe: Recipe, out: str, held_at: int | None = None, **more: str) -> RecipeCommand:
    """Start the training as tpuctl.yaml does, with checkpoints in *out*."""
    return recipe.start(COMMAND, held_at, JAX_LM_OUT=out, **more)


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait())
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 1.0
    return found


def test_killed_and_stopped_run_resumes_with_the_same_losses(recipe, straight):
    """SIGKILL after a save, SIGTERM later: every loss equals that of the unbroken run."""
    committed = recipe.folder / "out/8/commit_success.txt"
    run = start(recipe, "out", 10).until("^step 10 ").wait_for(committed.exists)
    run.kill()
    parts = [run.text()]

    run = start(recipe, "out", 18).until("^step 18 ")
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(128 + signal.SIGTERM))
    saved = int(re.findall(r"asked to stop: saved step (\d+)", parts[-1])[0])
    assert (recipe.folder / f"out/{saved}/commit_success.txt").exists()
    assert 18 <= saved < 24
    assert losses("\n".join(parts)) == {step: straight[step] for step in range(1, saved + 1)}


def test_bucket_takes_and_gives_back_checkpoints(recipe, straight):
    """Straight to gs://: killed and resumed, each step declared complete once."""
    bucket = DataBucket()
    with bucket.served("job") as (places,):
        run = start(recipe, "gs://data/checkpoints", 11, **places)
        run.wait_for(lambda: ("job", "8") in bucket.committed())
        run.kill()
        text = run.text() + start(recipe, "gs://data/checkpoints", **places).wait()
    assert "resumed from step" in text
    steps = [int(step) for _, step in bucket.committed()]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS
    assert losses(text) == straight


def test_an_error_ends_the_process_at_once(recipe):
    """A batch that the devices cannot share is refused in words; an exception leaves with 1, and is shown."""
    assert "--batch 12 cannot be shared equally by 8 devices" in start(
        recipe, "never", JAX_LM_BATCH="12"
    ).wait(1)
    (recipe.folder / "file").write_text("no folder")
    assert "Traceback" in start(recipe, "file").wait(1)


def store(lab: ProcessLab, name: str, data: bytes) -> None:
    """Put an object into the deployment's bucket."""
    endpoint = loads((lab.cloud / "daemon.json").read_text())["endpoint"]
    url = f"{endpoint}/upload/storage/v1/b/{lab.bucket()}/o?uploadType=media&name={quote(name, safe='')}"
    urllib.request.urlopen(urllib.request.Request(url, data, method="POST"), timeout=30).close()


def tear(lab: ProcessLab) -> None:
    """Add a newer step that was never declared complete, and kill the job: nobody may resume from it."""
    for name in ("_CHECKPOINT_METADATA", "default/_METADATA"):
        store(lab, f"checkpoints/900/{name}", lab.read(f"checkpoints/8/{name}"))
    for pid in lab.jobs(b"train.py"):
        kill(pid)
    lab.wait_for("the second attempt", lambda: lab.at(9, attempt=2), RUN_TIMEOUT)
    assert lab.heartbeats(1)[0]["resumed_from"] < 900


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, recipe, straight):
    """A torn newest step, SIGKILL of the machine, notice with SIGTERM: the losses of an unbroken run."""
    env = settings(STEPS, DEVICES, recipe.folder.parent / "compiled")
    run = run_recipe(
        lab, "jax-lm", saved=8, kill_at=11, notice_at=18, early=tear,
        settings={"target_steps": STEPS, **{f"env.{key}": value for key, value in env.items()}},
    )  # fmt: skip
    assert run.losses() == straight
    assert "asked to stop: saved step" in run.logs[1]
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1])), "the notice must cost no step"
    assert f"checkpoints/{STEPS}/commit_success.txt" in run.objects
