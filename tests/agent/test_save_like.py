"""What looks like a save by its name, and what each format says that it wants."""

import pytest

from orchestrator.contract.formats.choose import NAMES, format_of
from orchestrator.contract.formats.reading.save_like import maybe_save, save_folder_like, save_like


@pytest.mark.parametrize(
    "name",
    [
        "ckpt.pt", "latest.npz", "checkpoint.pth.tar", "epoch=0-step=4.ckpt", "last.CKPT",
        "model.safetensors", "final.keras", "m.weights.h5", "checkpoint_100",
        "pytorch_model-00001-of-00002.bin", "best.onnx", "model_000100.pt",
        "ckpt-7.data-00000-of-00001", "ckpt-7.index",
    ],
)  # fmt: skip
def test_files_of_the_common_frameworks_look_like_saves(name: str) -> None:
    """Names as the frameworks write them."""
    assert save_like(name)


@pytest.mark.parametrize(
    "name",
    ["train.py", "log.txt", "train.bin", "metrics.json", "meta.csv", "README.md", "events.out.tfevents"],
)
def test_code_logs_and_data_do_not(name: str) -> None:
    """Names of what is not worth a warning."""
    assert not save_like(name)


def test_a_folder_of_one_save_is_known_by_its_number() -> None:
    """Folders of code and of all saves are not."""
    assert all(map(save_folder_like, ["checkpoint-100", "ckpt_7", "step-000040", "epoch=3", "my_step_5"]))
    assert not any(map(save_folder_like, ["checkpoints", "steps", "models", "out", "v2", "__pycache__"]))


@pytest.mark.parametrize("name", ["step_5.json", "epoch-3.json", "Iter100", "step=000040.json", "model.json"])
def test_where_nothing_else_looks_like_a_save_the_file_of_one_step_may_be_one(name: str) -> None:
    """However small: a program of one's own may keep all of its state in it."""
    assert maybe_save(name, 40)


@pytest.mark.parametrize(
    "name",
    ["config_step_5.json", "eval_step_5.json", "metrics_5.json", "step_5.png", "a.json", "model.json.tmp"],
)
def test_a_small_file_that_only_tells_of_a_training_is_none(name: str) -> None:
    """Settings, figures and pictures: with them alone no job can go on."""
    assert not maybe_save(name, 40)


@pytest.mark.parametrize("name", NAMES)
def test_each_format_says_what_it_wants(name: str) -> None:
    """The text ends a sentence of ours."""
    wants = format_of(name, "DONE").wants
    assert wants
    assert not wants.endswith(".")
