"""examples/bert-tf2: killed and stopped, BERT goes on with the same losses, and becomes a Hugging Face model."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.process_lab import ProcessLab, kill
from tests.recipes.kit import (
    EXAMPLES,
    INSTALL_TIMEOUT,
    Recipe,
    RecipeCommand,
    copy,
    hold,
    hold_at,
    losses,
    prepared,
)
from tests.recipes.run import RUN_TIMEOUT, checkpoints_of, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("bert-tf2")]
STEPS = 60
READ = """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("logs-straight", size_guidance={"tensors": 0}).Reload()
print("EVENTS", [event.step for event in events.Tensors("loss")])

import tensorflow as tf
shares = []
for record in tf.data.TFRecordDataset(tf.io.gfile.glob("data/*.tfrecord")).as_numpy_iterator():
    feature = tf.train.Example.FromString(record).features.feature
    values = {key: list(one.int64_list.value) for key, one in feature.items()}
    assert len(values["ids"]) == 32 and len(values["labels"]) == 5
    shares.append(sum(values["weights"]) / (sum(values["present"]) - 2))
print("MASKED", len(shares), sum(shares) / len(shares))
"""


def start(recipe: Recipe, out: str, held_at: int | None = None, more: str = "") -> RecipeCommand:
    """Start the training with a line of log for each step."""
    words = f"--out {out} --logs logs-{out} --steps {STEPS} --save-every 15 --log-every 1"
    return recipe.start(f"exec sh venv.sh python train.py {words} {more}", held_at)


def tear(prefix: Path) -> None:
    """Leave half of the data of a checkpoint."""
    file = prefix.with_name(f"{prefix.name}.data-00000-of-00001")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("bert-tf2", tmp_path_factory.mktemp("bert"), "sh venv.sh python prepare.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    text = start(recipe, "straight").wait()
    assert "MirroredStrategy with 2 replicas" in text
    found = losses(text)
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 1.0
    return found


def test_torn_newest_checkpoint_falls_back_and_a_stopped_run_saves(recipe, straight):
    """
    Data cut in half: the script says so and takes the one before. SIGTERM between two saves: it saves.

    What a killed save left behind is removed. With all checkpoints cut, the script stops.
    """
    folder = recipe.folder / "torn"
    shutil.copytree(recipe.folder / "straight", folder)
    tear(folder / f"ckpt-{STEPS}")
    leftover = folder / "ckpt-50_temp"
    leftover.mkdir()
    run = start(recipe, "torn", 50).until("^step 50 ")
    assert f"ckpt-{STEPS} cannot be read" in run.text()
    assert "resumed from step 45" in run.text()
    assert not leftover.exists()
    run.process.send_signal(signal.SIGTERM)
    found = losses(run.wait(42))
    saved = max(found)
    assert 50 <= saved < STEPS
    assert (folder / f"ckpt-{saved}.index").is_file()
    assert found == {step: straight[step] for step in range(46, saved + 1)}
    for index in folder.glob("ckpt-*.index"):
        tear(index.with_suffix(""))
    assert "nothing was trained" in start(recipe, "torn").wait(1)


def test_data_and_losses_can_be_read(recipe, straight):
    """15 % of the words are hidden, all examples have one shape; TensorBoard shows a loss for each step."""
    shards = [path.name for path in sorted((recipe.folder / "shards").iterdir())]
    assert shards[0] == "shard_0000"
    facts = json.loads((recipe.folder / "data/data.json").read_text())
    assert facts["shards"] == len(shards) > 1
    text = recipe.run(f"sh venv.sh python -c '{READ}'")
    number, share = re.findall(r"MASKED (\d+) (\S+)", text)[0]
    assert int(number) == facts["examples"]
    assert 0.12 < float(share) < 0.2
    assert f"EVENTS {list(range(1, STEPS + 1))}" in text


def test_replaced_machine_makes_the_same_data_and_other_data_are_refused(recipe, straight):
    """Made again, by one process, the data are the same bytes; those of another vocabulary are refused."""
    assert "data is there already" in recipe.run("sh venv.sh python prepare.py")
    recipe.run("sh venv.sh python prepare.py --out again --workers 1")
    made = [path for path in (recipe.folder / "data").iterdir() if path.name != "data.json"]
    assert len(made) > 2
    for path in made:
        assert path.read_bytes() == (recipe.folder / "again" / path.name).read_bytes()
    facts = json.loads((recipe.folder / "again/data.json").read_text())
    (recipe.folder / "again/data.json").write_text(json.dumps({**facts, "vocab_sha256": "0" * 64}))
    assert "another vocab.txt" in start(recipe, "straight", more="--data again").wait(1)


def test_checkpoint_becomes_a_hugging_face_model(recipe, straight):
    """No key is missing or left over in transformers, and its logits are TensorFlow's."""
    recipe.run("sh venv.sh python tf2hf.py --checkpoint straight --out hf")
    reader = f"sh {EXAMPLES}/hf-clm/venv.sh python check_hf.py hf"
    text = recipe.run(reader, INSTALL_TIMEOUT)
    assert "no missing keys, no unexpected keys" in text
    # The check can fail: a lost tensor and a changed one are found.
    cut = (
        "from safetensors.numpy import load_file, save_file; w = load_file('hf/model.safetensors'); "
        "w.pop('cls.predictions.bias'); save_file(w, 'hf/model.safetensors', {'format': 'pt'})"
    )
    recipe.run(f'sh venv.sh python -c "{cut}"')
    assert "cls.predictions.bias" in recipe.start(reader).wait(1)


def harm(lab: ProcessLab) -> None:
    """Tear the newest checkpoint on the machine's disk and kill the job; the agent must not offer it."""
    folder = checkpoints_of(lab, "bert-tf2-tpu-g1")
    for pid in lab.jobs(b"train.py"):
        kill(pid)
    newest = max(int(path.stem.split("-")[1]) for path in folder.glob("ckpt-*.index"))
    tear(folder / f"ckpt-{newest}")
    lab.wait_for("the second attempt", lambda: lab.at(newest - 14, attempt=2), RUN_TIMEOUT)


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, recipe, straight):
    """
    Torn checkpoint, SIGKILL of the machine, notice with SIGTERM: all losses are the unbroken run's.

    The data are there already: the other run makes them on its machine.
    """
    words = f"--steps {STEPS} --save-every 15 --log-every 1"
    settings = {
        "setup": "sh venv.sh",
        "command": f"exec sh venv.sh python train.py {words}",
        "target_steps": STEPS,
        "env.BERT_DATA": recipe.folder / "data",
    }
    run = run_recipe(lab, "bert-tf2", saved=15, kill_at=18, notice_at=35, settings=settings, early=harm)
    assert run.losses() == straight
    # The agent committed what SIGTERM made the script save: no step was made twice.
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1]))
    assert any(name.endswith(f"ckpt-{STEPS}.index") for name in run.objects)


@pytest.mark.e2e
def test_data_logs_and_checkpoints_straight_in_the_bucket(lab, straight):
    """With no file on the machine, through the local cloud's proxy: killed, resumed, and the same losses."""
    lab.name = "bert-tf2"
    hold(copy("bert-tf2", lab.work))
    words = f"--steps {STEPS} --save-every 15 --log-every 1"
    gate = lab.folder / "held-at"
    hold_at(gate, 18)
    settings = {
        "watch.poll": "1s",
        "vm": "none",
        "job.command": f"exec sh venv.sh python held.py train.py {words}",
        "job.target_steps": STEPS,
        "job.checkpoint.dir": "bucket",
        "job.env.HELD_AT": gate,
        "job.env.BERT_DATA": "gs://$TPUCTL_BUCKET/data",
        "job.env.BERT_LOGS": "gs://$TPUCTL_BUCKET/tensorboard",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    lab.tpuctl("up", *flags, seconds=RUN_TIMEOUT)
    watch = lab.start("watch", *flags)

    def saved() -> bool:
        return any((heartbeat["committed_step"] or 0) >= 15 for heartbeat in lab.heartbeats(1))

    lab.wait_for("step 15 in the bucket", saved, RUN_TIMEOUT)
    for pid in lab.jobs(b"train.py"):
        kill(pid)
    gate.unlink()
    assert "done:" in lab.end(watch, seconds=RUN_TIMEOUT).err
    log = lab.logs(1)
    assert "attempt 2: resume from step 15 " in log
    assert losses(log) == straight
    assert f"checkpoints/ckpt-{STEPS}.index" in lab.objects("checkpoints/")
    assert "data/data.json" in lab.objects("data/")
    # One file of events for each start.
    assert len([name for name in lab.objects("tensorboard/") if "tfevents" in name]) == 2
