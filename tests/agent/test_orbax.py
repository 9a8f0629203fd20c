"""Orbax's saves: which folder is whole, by version and by the way in which it is written."""

import json
from pathlib import Path

import pytest

from orchestrator.contract.formats.base import Listing, SaveState
from orchestrator.contract.formats.orbax import COMMIT_SUCCESS, METADATA, Orbax


def put(folder: Path, **files: str) -> None:
    """Write the files of a step; a name's `__` is a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def state(root: Path) -> SaveState:
    """Return what the one step in *root* is worth."""
    (save,) = Orbax().find(root)
    return Orbax().judge(root, save).state


def metadata(commit: int | None) -> str:
    """Return `_CHECKPOINT_METADATA` as Orbax writes it at the start (None) and at the commit."""
    return json.dumps({"item_handlers": {}, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": commit})


def test_a_save_written_in_place_is_no_checkpoint_before_its_commit(tmp_path: Path) -> None:
    """CommitFileTemporaryPath writes into the final folder: all arrays may be there, and it is still torn."""
    step = tmp_path / "100"
    step.mkdir()
    assert state(tmp_path) is SaveState.UNFINISHED, "an empty folder"
    put(step, **{METADATA: ""})
    assert state(tmp_path) is SaveState.TORN, "its metadata are being written"
    put(step, **{METADATA: metadata(None)})
    put(step, default___METADATA="{}", **{"default__manifest.ocdbt": "m", "default__d__0": "x"})
    assert state(tmp_path) is SaveState.UNFINISHED
    put(step, **{METADATA: metadata(7)})
    assert state(tmp_path) is SaveState.COMPLETE, "the time of the commit comes after the arrays"
    put(step, **{METADATA: metadata(None), COMMIT_SUCCESS: "done"})
    assert state(tmp_path) is SaveState.COMPLETE


def test_a_save_killed_before_its_commit_file_gets_it_back(tmp_path: Path) -> None:
    """Orbax deletes a folder without the commit file at its start, and then goes on from an older step."""
    put(tmp_path / "100", default__d="x", **{METADATA: metadata(7)})
    (save,) = Orbax().find(tmp_path)
    assert Orbax().repair(tmp_path, save)
    assert (tmp_path / "100" / COMMIT_SUCCESS).is_file()
    assert Orbax().repair(tmp_path, save) == []


@pytest.mark.parametrize("tree", ["_METADATA", "checkpoint"])
def test_a_folder_that_an_old_orbax_renamed_is_a_checkpoint(tmp_path: Path, tree: str) -> None:
    """Up to 0.5 there is no metadata of the step: the saved tree and the joined parts prove it."""
    put(tmp_path / "100", **{f"default__{tree}": "tree", "default__ocdbt.process_0__d__a": "x"})
    assert state(tmp_path) is SaveState.UNFINISHED, "the parts of the processes are not joined"
    put(tmp_path / "100", **{"default__manifest.ocdbt": "m"})
    assert state(tmp_path) is SaveState.COMPLETE
    put(tmp_path / "100", **{"other.orbax-checkpoint-tmp-17__d": "x"})
    assert state(tmp_path) is SaveState.UNFINISHED


def test_a_folder_with_arrays_alone_is_no_checkpoint(tmp_path: Path) -> None:
    """A save in place whose metadata are written by another thread may look like that for a moment."""
    put(tmp_path / "100", default__d__0="x")
    assert state(tmp_path) is SaveState.UNFINISHED


@pytest.mark.parametrize("name", ["ckpt_100", "checkpoint_100", "00000100", "100"])
def test_a_step_may_have_a_prefix(tmp_path: Path, name: str) -> None:
    """Kauldron and flax name their steps; a folder of anybody else with such a name is not taken for one."""
    put(tmp_path / name, **{METADATA: metadata(7)})
    put(tmp_path / "version_3", **{"hparams.yaml": "x"})
    (save,) = Orbax().find(tmp_path)
    assert (save.step, save.folder) == (100, name)


def test_in_the_bucket_only_the_commit_file_counts() -> None:
    """The time of the commit stands there before Orbax itself takes the step for whole."""
    objects = {f"100/{METADATA}", f"200/{METADATA}", f"100/{COMMIT_SUCCESS}"}
    listing = Listing((), ("100/", "200/"), objects.__contains__, lambda _name: metadata(7).encode())
    assert [(one.step, one.complete) for one in Orbax().stored(listing)] == [(200, False), (100, True)]
