"""Each format's rule on trees torn by hand: nothing that is not whole is ever called complete."""

import json
import os
from pathlib import Path

import pytest

from orchestrator.agent.checkpoints.local_checkpoints import LocalCheckpoint, LocalCheckpoints
from orchestrator.agent.settings import CheckpointSettings
from orchestrator.clock import VirtualClock
from orchestrator.contract.formats.base import Listing, LocalSave, SaveState
from orchestrator.contract.formats.choose import format_of
from orchestrator.contract.formats.reading.pickled import updates_in
from orchestrator.contract.formats.reading.whole import h5_damage
from tests.agent import format_trees as trees

NAMES = ("marker", "orbax", "hf", "fairseq", "tf", "keras", "torch")
PROVEN = ("hf", "fairseq", "tf", "keras", "torch")
PARTS = (0.0, 0.1, 0.5, 0.999)


def looking_at(root: Path, kind: str) -> LocalCheckpoints:
    """Return the reader of one folder."""
    settings = CheckpointSettings(kind, str(root / "saves"), 2, "COMPLETE")
    return LocalCheckpoints(settings, format_of(kind, "COMPLETE"), root / "quarantine", 0.0, VirtualClock())


def complete_steps(local: LocalCheckpoints) -> list[int]:
    """Return the complete steps, each once."""
    return sorted({one.step for one in local.checkpoints() if one.complete})


def by_name(local: LocalCheckpoints, name: str) -> LocalCheckpoint:
    """Return one step by its save's name."""
    return next(one for one in local.checkpoints() if one.save.name == name)


STEPPED = [name for name in NAMES if not format_of(name, "COMPLETE").at_end]


@pytest.mark.parametrize("kind", STEPPED)
def test_a_whole_save_is_complete_at_its_step(tmp_path: Path, kind: str) -> None:
    """Two saves are two steps; only Keras keeps one pair of files."""
    for step in (20, 40):
        trees.save(tmp_path / "saves", kind, step)
    assert complete_steps(looking_at(tmp_path, kind)) == ([40] if kind == "keras" else [20, 40])


@pytest.mark.parametrize("kind", STEPPED)
def test_a_save_cut_at_any_file_boundary_is_not_complete(tmp_path: Path, kind: str) -> None:
    """As long as one file of the order of writing is missing, the step does not count."""
    saved = trees.files(kind, 40)
    for count in range(len(saved)):
        root = tmp_path / str(count)
        part = saved[:count] if kind != "orbax" else [(f"40.orbax-checkpoint-tmp/{count}", b"x")]
        trees.write(root / "saves", part)
        assert complete_steps(looking_at(root, kind)) == [], part[-1:]
    trees.save(tmp_path / "whole" / "saves", kind, 40)
    assert complete_steps(looking_at(tmp_path / "whole", kind)) == [40]


@pytest.mark.parametrize("kind", PROVEN)
@pytest.mark.parametrize("part", PARTS)
def test_a_file_cut_anywhere_makes_its_step_torn(tmp_path: Path, kind: str, part: float) -> None:
    """Every file that a resume needs is proven by its own structure, at 0, 10, 50 and 99.9 % of its length."""
    for number, (name, data) in enumerate(trees.files(kind, 40)):
        root = tmp_path / str(number)
        trees.save(root / "saves", kind, 40)
        local = looking_at(root, kind)
        assert complete_steps(local) == [40]
        retained = min(len(data) - 1, int(len(data) * part))
        if name == "checkpoint":  # A name cut behind its closing quote still names.
            retained = min(retained, data.index(b'"') + 4)
        (root / "saves" / name).write_bytes(data[:retained])
        if kind == "fairseq":
            (root / "saves" / "checkpoint_last.pt").unlink()
        assert complete_steps(local) == [], name
        assert all(one.message for one in local.checkpoints())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"optimizer.pt": None}, "no optimizer.pt"),
        ({"scheduler.pt": None}, "no scheduler.pt"),
        ({"rng_state.pth": None}, "no rng_state.pth"),
        ({"trainer_state.json": b'{"global_step": 39}'}, "says step 39"),
        ({"checkpoint-is-incomplete.txt": b""}, "is there"),
        ({"model-00002-of-00002.safetensors": None}, "parts of model are missing"),
        (
            {"model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}'},
            "gone.safetensors is",
        ),
        (
            {"model-00001-of-00002.safetensors": None, "model-00002-of-00002.safetensors": None},
            "no model weights",
        ),
    ],
)
def test_hugging_face_folder_that_cannot_truly_resume_is_refused(
    tmp_path: Path, change: dict[str, bytes | None], why: str
) -> None:
    """The Trainer would take these: with a fresh optimizer, other random numbers, or a crash."""
    trees.save(tmp_path / "saves", "hf", 40)
    for name, data in change.items():
        path = tmp_path / "saves" / "checkpoint-40" / name
        path.unlink() if data is None else path.write_bytes(data)
    one = by_name(looking_at(tmp_path, "hf"), "checkpoint-40")
    assert not one.complete
    assert why in one.message


def test_hugging_face_knows_its_own_target(tmp_path: Path) -> None:
    """max_steps stands in the state file."""
    trees.save(tmp_path / "saves", "hf", 40)
    assert looking_at(tmp_path, "hf").target() == 60


@pytest.mark.parametrize("retained", [0, 100, None])
def test_fairseq_alias_is_repaired_from_the_newest_whole_file(tmp_path: Path, retained: int | None) -> None:
    """A torn, an old and a missing checkpoint_last.pt all become a copy of the chosen file."""
    saves = tmp_path / "saves"
    for step in (20, 40):
        trees.save(saves, "fairseq", step)
    last = saves / "checkpoint_last.pt"
    old = trees.files("fairseq", 20)[0][1]
    last.write_bytes(old if retained is None else old[:retained])
    local = looking_at(tmp_path, "fairseq")
    chosen = local.chosen(40)
    assert chosen is not None

    notes = local.format.repair(saves, chosen.save)

    assert notes == ["checkpoint_last.pt was replaced from checkpoint_1_40.pt"]
    assert last.read_bytes() == (saves / "checkpoint_1_40.pt").read_bytes()
    assert local.format.repair(saves, chosen.save) == []


def test_fairseq_last_stands_for_itself_where_nothing_else_holds_its_update(tmp_path: Path) -> None:
    """With --no-epoch-checkpoints it is the only file; where another holds its update, that one is preferred."""
    data = trees.files("fairseq", 40)[0][1]
    trees.write(tmp_path / "saves", [("checkpoint_last.pt", data)])
    local = looking_at(tmp_path, "fairseq")
    assert [(one.step, one.save.name) for one in local.checkpoints() if one.complete] == [
        (40, "checkpoint_last.pt")
    ]
    trees.write(tmp_path / "saves", [("checkpoint3.pt", data)])
    chosen = local.chosen(40)
    assert chosen is not None
    assert chosen.save.name == "checkpoint3.pt"


def test_torch_pointer_and_tensorflow_list_name_what_was_chosen(tmp_path: Path) -> None:
    """After going back, the framework's own pointer leads to the same step as ours."""
    for kind in ("torch", "tf"):
        root = tmp_path / kind
        for step in (20, 40):
            trees.save(root / "saves", kind, step)
        local = looking_at(root, kind)
        chosen = local.chosen(20)
        assert chosen is not None
        for one in local.checkpoints():
            if one.step > 20:
                local.quarantine(one.save, torn=False)
        assert local.format.repair(local.folder, chosen.save)
        assert complete_steps(local) == [20]
    pointer = json.loads((tmp_path / "torch" / "saves" / "last.json").read_text())
    assert pointer == {"step": 20, "file": "step_000020.pt"}
    text = (tmp_path / "tf" / "saves" / "checkpoint").read_text()
    assert text.startswith('model_checkpoint_path: "ckpt-20"\nall_model_checkpoint_paths: "ckpt-20"\n')
    assert "all_model_checkpoint_timestamps: " in text


def test_torch_file_that_was_never_announced_does_not_count(tmp_path: Path) -> None:
    """The pointer comes last, so a whole file after it belongs to a save that did not end."""
    trees.save(tmp_path / "saves", "torch", 20)
    trees.write(tmp_path / "saves", trees.files("torch", 40)[:1])
    assert complete_steps(looking_at(tmp_path, "torch")) == [20]


def test_keras_falls_back_to_its_second_pair(tmp_path: Path) -> None:
    """With double_checkpoint=True a torn pair is replaced by the whole older one."""
    saves = tmp_path / "saves"
    trees.save(saves, "keras", 2)
    trees.write(saves, [(f"{name}.bkp", data) for name, data in trees.files("keras", 1)])
    (saves / "latest.weights.h5").write_bytes(trees.h5()[:-10])
    local = looking_at(tmp_path, "keras")
    assert complete_steps(local) == [1]
    for one in local.checkpoints():
        if not one.complete:
            local.quarantine(one.save, torn=True)
    chosen = local.chosen(1)
    assert chosen is not None
    local.format.repair(saves, chosen.save)
    assert by_name(local, "latest.weights.h5").step == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("width", [4, 8])
def test_every_superblock_tells_the_length(tmp_path: Path, version: int, width: int) -> None:
    """HDF5 wrote its end-of-file address at four places in its history."""
    path = tmp_path / "x.h5"
    data = trees.h5(version, width)
    path.write_bytes(data)
    assert h5_damage(path) == ""
    for retained in (0, 7, 20, 40, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:retained])
        assert h5_damage(path), retained


class Evil:
    """A pickle that runs a command when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch stolen",)


def test_a_pickle_is_read_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of updates is found beside classes of others, and no instruction of the file is carried out."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.pt"
    path.write_bytes(trees.archive({"evil": Evil(), "optimizer_history": [{"num_updates": 7}]}))
    assert updates_in(path) == 7
    assert not (tmp_path / "stolen").exists()
    path.write_bytes(trees.archive({"evil": Evil()}))
    assert updates_in(path) is None


def test_torn_steps_are_moved_and_not_deleted(tmp_path: Path) -> None:
    """A torn save leaves the folder under a name that says so, with its bytes."""
    trees.save(tmp_path / "saves", "tf", 40)
    index = tmp_path / "saves" / "ckpt-40.index"
    index.write_bytes(index.read_bytes()[:50])
    local = looking_at(tmp_path, "tf")
    one = by_name(local, "ckpt-40")
    assert one.state is SaveState.TORN

    place = local.quarantine(one.save, torn=True)

    assert place.name.startswith("torn-ckpt-40-")
    assert sorted(path.name for path in place.iterdir()) == sorted(one.save.files or ())
    assert local.checkpoints() == []


def test_a_checkpoint_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proving reads every byte, so it must not happen at each look."""
    trees.save(tmp_path / "saves", "torch", 40)
    local = looking_at(tmp_path, "torch")
    judged: list[str] = []
    real = local.format.judge
    monkeypatch.setattr(
        local.format, "judge", lambda root, save: judged.append(save.name) or real(root, save)
    )
    for _ in range(3):
        assert complete_steps(local) == [40]
    assert judged == ["step_000040.pt"]
    (tmp_path / "saves" / "step_000040.pt").write_bytes(b"torn")
    assert complete_steps(local) == []
    assert len(judged) == 2


def test_tensorflow_in_the_bucket_is_complete_when_named(tmp_path: Path) -> None:
    """Index, every shard and the name in `checkpoint`: the same rule over the objects' names."""
    names = [name for step in (20, 40) for name, _ in trees.files("tf", step)]
    text = trees.files("tf", 20)[-1][1]

    def stored(present: list[str], pointer: bytes | None) -> list[tuple[int, bool]]:
        listing = Listing(tuple(present), (), lambda name: name in present, lambda _name: pointer)
        return [(one.step, one.complete) for one in format_of("tf", "").stored(listing)]

    assert stored(names, text) == [(40, False), (20, True)]
    assert stored([name for name in names if "ckpt-20.data-00001" not in name], text) == [
        (40, False),
        (20, False),
    ]
    assert stored(names, None) == [(40, False), (20, False)]


def test_resume_argument_is_what_the_framework_takes() -> None:
    """A folder, a file, or TensorFlow's prefix."""
    saves = {
        "hf": (LocalSave(40, "checkpoint-40", "checkpoint-40"), "/c/checkpoint-40"),
        "fairseq": (
            LocalSave(40, "checkpoint_1_40.pt", ".", ("checkpoint_1_40.pt",)),
            "/c/checkpoint_1_40.pt",
        ),
        "tf": (LocalSave(40, "ckpt-40", ".", ("ckpt-40.data-00000-of-00001", "ckpt-40.index")), "/c/ckpt-40"),
    }
    for kind, (save, path) in saves.items():
        assert format_of(kind, "").resume("/c/", save) == path
