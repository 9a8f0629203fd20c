"""What lies beside a save comes back with it: pointers, links, tokenizers, the files of a layout nobody knows."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.agreement.attempts import next_attempt
from orchestrator.agent.checkpoints.links import make_links
from orchestrator.agent.context import AgentContext
from orchestrator.contract.bucket.manifest import parse
from orchestrator.contract.formats.reading.file_damage import damage_of
from orchestrator.contract.formats.reading.saved_files import Found, among, group, main_of
from orchestrator.contract.machine_errors import DamagedError
from tests.agent.agent_lab import running_lab
from tests.agent.format_trees import BYTES, archive, safetensors
from tests.formats.layouts import Save, joblib
from tests.formats.table import FormatLab, put


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[FormatLab]:
    """Run a bucket."""
    with running_lab(tmp_path) as agents:
        yield FormatLab(agents)


def begun(lab: FormatLab) -> AgentContext:
    """Return the context of a machine whose job runs."""
    context = lab.context()
    context.committer.begin(1, None)
    return context


def back(lab: FormatLab, context: AgentContext) -> Path:
    """Return the folder of a new machine after its restore of the newest checkpoint."""
    newest = context.checkpoints.newest()
    assert newest is not None, context.local.checkpoints()
    other = lab.context(incarnation=2)
    other.restorer.restore(next_attempt(None, newest, "test", 0, counted=False))
    return other.local.folder


def _deepspeed(step: int) -> Save:
    top = f"global_step{step}"
    return [
        (f"{top}/mp_rank_00_model_states.pt", archive({"global_steps": step})),
        (f"{top}/zero_pp_rank_0_mp_rank_00_optim_states.pt", archive()),
        ("latest", top.encode()),
        ("zero_to_fp32.py", b"print()\n"),
    ]


def _megatron(step: int) -> Save:
    return [
        (f"iter_{step:07d}/mp_rank_00/model_optim_rng.pt", archive({"iteration": step})),
        ("latest_checkpointed_iteration.txt", str(step).encode()),
    ]


def _detectron(step: int) -> Save:
    return [
        (f"model_{step:07d}.pth", archive({"iteration": step})),
        ("last_checkpoint", f"model_{step:07d}.pth".encode()),
    ]


def _mixed(step: int) -> Save:
    tokens = json.dumps("x" * 9_000_000).encode()
    return [("last/model.safetensors", safetensors()), ("last/tokenizer.json", tokens),
            ("last/optimizer.pt", archive({"step": step})), ("last/merges.bpe", b"a b")]  # fmt: skip


def _t5x(step: int) -> Save:
    top = f"checkpoint_{step}"
    return [(f"{top}/checkpoint", BYTES), (f"{top}/target.w/.zarray", b"{}"), (f"{top}/target.w/0.0", BYTES)]


def _hydra(step: int) -> Save:
    top = f"outputs/2026-11-23/12-30-00/checkpoints/step_{step}"
    return [(f"{top}/model.pt", archive({"step": step})), (f"{top}/state/optim.pt", archive())]


def _zarr_list(step: int) -> Save:
    return [(f"step_{step}/weights.dat", BYTES), (f"step_{step}/losses.json", b"[1, 2]")]


@pytest.mark.parametrize("write", [_deepspeed, _megatron, _detectron, _mixed, _t5x, _zarr_list, _hydra])
def test_each_file_that_a_program_needs_comes_back(lab: FormatLab, write) -> None:
    """DeepSpeed, Megatron and Detectron2 begin at step 0 without the file that names their newest save."""
    context = begun(lab)
    for step in (20, 40):
        put(context.local.folder, write(step))
        assert context.committer.commit()
    newest = context.checkpoints.newest()
    assert newest is not None
    assert newest.step == 40
    folder = back(lab, context)
    for name, data in write(40):
        assert (folder / name).read_bytes() == data, name


def test_a_pointer_that_comes_later_is_committed_too(lab: FormatLab) -> None:
    """A kill between the save and the file that names it is rare; a look between them is not."""
    context = begun(lab)
    put(context.local.folder, _megatron(20))
    put(context.local.folder, _megatron(40)[:1])
    assert context.committer.commit()
    put(context.local.folder, _megatron(40)[1:])
    assert context.committer.commit()
    assert not context.committer.commit()
    assert (back(lab, context) / "latest_checkpointed_iteration.txt").read_text() == "40"


@pytest.mark.parametrize("size", [10, 5000])
def test_what_changes_beside_a_save_is_not_committed_for_ever(lab: FormatLab, size: int) -> None:
    """A table of results that grows at each step would carry the whole model to the bucket each time."""
    context = begun(lab)
    put(context.local.folder, [("ckpt_10.pt", archive()), ("results.csv", b"0" * size)])
    assert context.committer.commit()
    done = 0
    for number in range(6):
        put(context.local.folder, [("results.csv", str(number).encode() * size)])
        done += context.committer.commit()
    assert done == (2 if size == 10 else 0)
    put(context.local.folder, [("ckpt_20.pt", archive())])
    assert context.committer.commit()
    assert (back(lab, context) / "results.csv").read_bytes() == b"5" * size


@pytest.mark.parametrize("folder", [True, False])
def test_a_link_to_the_newest_save_is_a_link_again(lab: FormatLab, *, folder: bool) -> None:
    """`latest -> step_40`: without it the program finds nothing, with a copy in its place it cannot replace it."""
    context = begun(lab)
    for step in (20, 40):
        name = f"step_{step}" if folder else f"step_{step}.pt"
        put(context.local.folder, [(f"{name}/model.pt" if folder else name, archive())])
        link = context.local.folder / "latest"
        link.unlink(missing_ok=True)
        # Some programs make it with a path from the root.
        link.symlink_to(name if step == 20 else context.local.folder / name)
        assert context.committer.commit()
    there = back(lab, context)
    assert os.readlink(there / "latest") == name  # noqa: PTH115 (the text)
    assert (there / "latest").exists()
    assert not any(one.is_symlink() for one in there.rglob("*") if one.name != "latest")


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A manifest lies where the job may write; a link through another one is not made either."""
    value = {
        "schema": 1,
        "step": 1,
        "incarnation": 1,
        "worker": 0,
        "workers": 1,
        "folder": ".",
        "files": [],
        "at": 0,
    }
    for pair in (["../x", "a"], ["a", "../x"], ["/x", "a"], ["a", "/etc"]):
        with pytest.raises(DamagedError):
            parse(json.dumps({**value, "links": [pair]}).encode(), "here")
    (tmp_path / "out").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "away").symlink_to(tmp_path / "out")
    make_links(tmp_path / "root", [("away/latest", "a")])
    assert list((tmp_path / "out").iterdir()) == []


def test_steps_that_begin_again_with_each_epoch_are_ordered_by_the_epoch(lab: FormatLab) -> None:
    """`epoch_2_step_500.pt` is newer than `epoch_1_step_900.pt`; the number of neither is the training's step."""
    context = begun(lab)
    for name in ("epoch_1_step_500.pt", "epoch_1_step_900.pt", "epoch_2_step_500.pt", "epoch_2_step_900.pt"):
        put(context.local.folder, [(name, archive({"of": name}))])
        assert context.committer.commit(), name
    assert [one.name for one in back(lab, context).iterdir()] == ["epoch_2_step_900.pt"]


def test_a_second_part_of_a_job_does_not_wait_for_the_numbers_of_the_first() -> None:
    """A pretraining saved up to step 100; the fine-tuning after it begins at 10, and shall not rest for long."""

    def about(name: str) -> tuple[int, float]:
        return 5000, 1000.0 * name.startswith("tuned") + float(name.rpartition("_")[2].partition(".")[0])

    names = [f"{part}/ckpt_{step}.pt" for part in ("first", "tuned") for step in (10, 20)]
    saves = group(list(among([*names, "first/ckpt_30.pt"], about)))
    assert {one.name for one in saves.head} == {"first/ckpt_30.pt", "tuned/ckpt_20.pt"}
    assert saves.missing == ()
    older = group(
        [Found("a_20", "a", 20, at=2.0), Found("b_10", "b", 10, at=1.0), Found("a_10", "a", 10, at=1.0)]
    )
    assert older.missing == ("b",)


def test_a_run_in_a_folder_of_its_own_date_leaves_the_saves_of_the_run_before_behind() -> None:
    """A program that makes a new dated folder at each start would carry one more model after each preemption."""
    first, second = (f"runs/exp_2026-11-23_16-40-0{number}" for number in (1, 2))
    ages = {f"{first}/ckpt-20/model.pt": 1.0, f"{first}/ckpt-40/model.pt": 2.0}
    went_on = {**ages, f"{second}/ckpt-60/model.pt": 3.0}
    begun_anew = {**ages, f"{second}/ckpt-20/model.pt": 3.0}
    for held, names in (
        (went_on, {f"{second}/ckpt-60/model.pt"}),
        (begun_anew, {f"{first}/ckpt-40/model.pt", f"{second}/ckpt-20/model.pt"}),
    ):
        saves = group(list(among(held, lambda name, held=held: (9, held[name]))))
        assert {one.name for one in saves.head} == names
        assert saves.missing == ()


def test_of_the_versions_of_a_name_the_youngest_is_resumed_from() -> None:
    """A Lightning script that went on from `last.ckpt` saves to `last-v1.ckpt`, the next one to `last-v2.ckpt`."""
    ages = {"last.ckpt": 1.0, "last-v1.ckpt": 2.0, "last-v2.ckpt": 3.0, "best.ckpt": 4.0}
    assert main_of(group(list(among(ages, lambda name: (9, ages[name]))))) == "last-v2.ckpt"
    ages["last.ckpt"] = 5.0
    assert main_of(group(list(among(ages, lambda name: (9, ages[name]))))) == "last.ckpt"


def test_what_the_first_part_of_a_job_saved_comes_back_in_the_second(lab: FormatLab) -> None:
    """A script that trains twice would train the first part again; the second one counts again, and further."""
    context = begun(lab)
    context.local.forget()
    for part, last in (("first", 20), ("tuned", 40)):
        for step in range(5, last + 1, 5):
            put(context.local.folder, [(f"{part}/ckpt_{step}.pt", archive({"of": f"{part}{step}"}))])
            os.utime(context.local.folder / f"{part}/ckpt_{step}.pt", (0, step + 100 * (part == "tuned")))
            context.committer.commit()
            newest = context.checkpoints.newest()
            if part == "tuned" and step > 5 and newest is not None:
                held = context.checkpoints.manifest(newest.step, newest.incarnation, 0)
                assert "first/ckpt_20.pt" in {one.name for one in held.files}, (step, held)
    context.local.rest()
    context.committer.commit()
    there = back(lab, context)
    names = {one.relative_to(there).as_posix() for one in there.rglob("*.pt")}
    assert names == {"first/ckpt_20.pt", "tuned/ckpt_40.pt"}


@pytest.mark.parametrize(
    "name", ["config.json", "vocab.txt", "train.log", "tokenizer.json", "args.yaml", "run_id"]
)
def test_what_a_program_writes_at_its_start_is_no_save(lab: FormatLab, name: str) -> None:
    """Where nothing is known a guess may be wrong; settings and names of runs are no model."""
    context = begun(lab)
    put(context.local.folder, [(name, b"{}" if name == "run_id" else b"x" * 5000)])
    assert not context.committer.commit()
    assert context.checkpoints.newest() is None


def test_a_file_of_joblib_is_whole_or_cut(tmp_path: Path) -> None:
    """Its arrays lie between the opcodes, so a plain walk of the pickle calls each such file torn."""
    path, data = tmp_path / "model.joblib", joblib(3)
    path.write_bytes(data)
    assert damage_of(path) == ""
    for length in (*range(1, 200), len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        assert damage_of(path) != "", length
