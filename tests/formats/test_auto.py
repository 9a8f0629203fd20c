"""What `auto` promises beyond one layout: the choice stays, steps only grow, nothing torn takes their place."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.agent.agreement.attempts import next_attempt
from orchestrator.agent.context import AgentContext
from orchestrator.contract.bucket.manifest import parse
from orchestrator.contract.formats.reading.inside import position_in
from orchestrator.contract.formats.reading.numbered_names import numbered
from orchestrator.contract.machine_errors import DamagedError
from tests.agent.agent_lab import AgentLab, running_lab
from tests.agent.format_trees import archive, safetensors
from tests.formats.layouts import hugging_face, npz, old_torch
from tests.formats.table import FormatLab, put

IN_PLACE = """
import os, pathlib, re, sys, time, zipfile
sys.path.insert(0, {tests!r})
from tests.agent.format_trees import archive
folder = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
path, step = folder / "ckpt.pt", 0
if path.exists():
    with zipfile.ZipFile(path) as file:
        step = int(re.search(rb"(?s)iter_numq.K(.)", file.read("archive/data.pkl"))[1][0])
print("begin after", step, "resume", os.environ["TPUCTL_RESUME"], flush=True)
while step < 60:
    step += 1
    time.sleep(0.05)
    if step % 5 == 0:
        path.write_bytes(archive({{"iter_num": step, "x": step}}))
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[FormatLab]:
    """Run a bucket."""
    with running_lab(tmp_path) as agents:
        yield FormatLab(agents)


def saved(context: AgentContext, name: str, data: bytes) -> bool:
    """Write one file and commit; say whether anything was."""
    put(context.local.folder, [(name, data)])
    return context.committer.commit()


def step_now(context: AgentContext) -> int | None:
    """Return the newest complete step in the bucket."""
    newest = context.checkpoints.newest()
    return newest.step if newest is not None else None


def test_a_stray_file_gives_way_to_the_frameworks_own_saves(lab: FormatLab) -> None:
    """Weights to start from, with a large number in their name, must not stand in the way of real checkpoints."""
    context = lab.context()
    context.committer.begin(1, None)
    assert saved(context, "pretrained_100000.pt", archive())
    assert (context.format.chosen, step_now(context)) == ("files", 100000)
    put(context.local.folder, hugging_face("model.safetensors")(20))
    assert context.committer.commit()
    assert (context.format.chosen, step_now(context)) == ("hf", 20)
    assert any(name.endswith(".replaced") for name in lab.agents.names("checkpoints/")), "nothing is deleted"
    assert not context.committer.commit()
    assert not saved(context, "later_200000.pt", archive()), "a framework's saves never give way to a file"
    assert step_now(context) == 20


def test_the_newest_manifest_decides_for_the_next_machine(lab: FormatLab) -> None:
    """A stray file that is there first on the next machine changes nothing."""
    context = lab.context()
    context.committer.begin(1, None)
    put(context.local.folder, hugging_face("model.safetensors")(20))
    assert context.committer.commit()
    other = lab.context(incarnation=2)
    put(other.local.folder, [("samples_900.npz", npz(None))])
    attempt = next_attempt(None, context.checkpoints.newest(), "test", 0, counted=False)
    other.restorer.restore(attempt)
    other.committer.begin(1, 20)
    assert not other.committer.commit()
    assert other.format.chosen == "hf"


def test_a_count_proves_no_target_and_grows_over_machines(lab: FormatLab) -> None:
    """Saves without a step are counted, each content once, starting where the last machine was."""
    context = lab.context()
    context.committer.begin(1, None)
    for number in range(3):
        assert saved(context, "snapshot.pt", archive({"x": number}))
        assert not context.committer.commit()
    assert step_now(context) == 2
    assert context.committer.proven is None
    assert context.heartbeat.get("committed_counted") is True
    other = lab.context(incarnation=2)
    newest = context.checkpoints.newest()
    assert other.restorer.restore(next_attempt(None, newest, "test", 0, counted=False)).counted
    other.committer.begin(1, 2, proven=False)
    assert not other.committer.commit(), "the same bytes have their step already"
    assert saved(other, "snapshot.pt", archive({"x": 9}))
    assert step_now(other) == 3
    assert not other.checkpoints.proven(3, 2)


def test_the_step_that_the_job_reported_names_a_file_that_tells_none(lab: FormatLab) -> None:
    """It is better than a count, and proves no target either."""
    context = lab.context()
    context.committer.begin(1, None)
    context.heartbeat.set(step=70)
    assert saved(context, "snapshot.pt", archive({"x": 1}))
    assert step_now(context) == 70
    assert context.committer.proven is None


def test_a_job_that_begins_again_does_not_replace_what_is_further(lab: FormatLab) -> None:
    """Otherwise a script that ignores its checkpoint would push the good ones out of the bucket."""
    context = lab.context()
    context.committer.begin(1, None)
    assert saved(context, "ckpt.pt", archive({"iter_num": 500}))
    assert not saved(context, "ckpt.pt", archive({"iter_num": 10}))
    assert not saved(context, "ckpt.pt", archive({"iter_num": 20}))
    assert step_now(context) == 500
    assert saved(context, "ckpt.pt", archive({"iter_num": 510}))
    assert step_now(context) == 510


def test_a_number_that_belongs_to_the_name_is_no_step_for_ever(lab: FormatLab) -> None:
    """`vit_b_16.pth` is replaced in place: the second content is committed too, as a count."""
    context = lab.context()
    context.committer.begin(1, None)
    assert saved(context, "vit_b_16.pth", archive({"x": 1}))
    assert saved(context, "vit_b_16.pth", archive({"x": 2}))
    assert step_now(context) == 17


def test_what_belongs_to_one_save_stays_together(lab: FormatLab) -> None:
    """A model whose optimizer is not there yet is no save, where earlier saves had both."""
    context = lab.context()
    context.committer.begin(1, None)
    put(context.local.folder, [("model_10.pt", archive()), ("optim_10.pt", archive())])
    put(context.local.folder, [("best.pt", archive({"x": 1})), ("config.json", b"{}")])
    assert context.committer.commit()
    names = {name.partition("/w0/")[2] for name in lab.agents.names("checkpoints/00000010/g1/w0/")}
    assert names == {"model_10.pt", "optim_10.pt", "best.pt", "config.json"}
    assert not saved(context, "model_20.pt", archive())
    assert saved(context, "optim_20.pt", archive())
    assert step_now(context) == 20


def test_a_file_that_is_still_written_waits_and_one_that_never_rests_is_copied(lab: FormatLab) -> None:
    """While the job runs a file has to stay the same for a look; some programs save more often than that."""
    context = lab.context()
    context.committer.begin(1, None)
    context.local.forget()
    for step in range(1, 3):
        assert not saved(context, "ckpt.pt", archive({"iter_num": step})), (
            "it has changed since the last look"
        )
        lab.clock.advance(0.75 * context.settings.poll)
    assert saved(context, "ckpt.pt", archive({"iter_num": 3})), "its own structure proves it"
    assert step_now(context) == 3
    context.local.rest()
    assert saved(context, "ckpt.pt", archive({"iter_num": 6})), "a job that has ended writes no more"


def test_a_numbered_file_alone_does_not_follow_a_save_with_the_file_that_is_replaced(lab: FormatLab) -> None:
    """Lightning goes on from last.ckpt: with step=20.ckpt alone it would begin at step 0 on the next machine."""
    context = lab.context()
    context.committer.begin(1, None)
    context.local.forget()
    for step in (10, 20, 30, 40):
        assert not _both(context, step), "step=40.ckpt may still be written, and so may last.ckpt"
    assert _both(context, 50), "it never rests, and proves itself"
    held = lab.agents.names("checkpoints/")
    assert {name.partition("/w0/")[2] for name in held} == {"", "last.ckpt", "step=50.ckpt"}
    put(context.local.folder, [("step=60.ckpt", _lightning(60)), ("step=70.ckpt", _lightning(70)[:-40])])
    context.local.rest()
    assert not context.committer.commit(), "killed in a save: what was committed is the newest whole one"
    assert step_now(context) == 50


def test_numbered_files_count_where_those_beside_them_are_never_whole(lab: FormatLab) -> None:
    """A broken file that nobody replaces must not keep a whole training out of the bucket."""
    context = lab.context()
    context.committer.begin(1, None)
    context.local.forget()
    put(context.local.folder, [("broken.pt", archive()[:-40]), ("step=10.ckpt", _lightning(10))])
    put(context.local.folder, [("step=20.ckpt", _lightning(20))])
    for seconds in (0, 1, 1):
        lab.clock.advance(seconds)
        assert not context.committer.commit()
    lab.clock.advance(100)
    assert context.committer.commit()
    assert step_now(context) == 10


def test_a_version_of_a_name_is_no_series_of_its_own(lab: FormatLab) -> None:
    """Lightning saves step=40-v1.ckpt beside the step=40.ckpt that it went on from, and then step=60.ckpt."""
    context = lab.context()
    context.committer.begin(1, None)
    put(context.local.folder, [("step=40.ckpt", _lightning(40)), ("step=40-v1.ckpt", _lightning(40))])
    assert _both(context, 60)
    assert step_now(context) == 60
    assert {name.partition("/w0/")[2] for name in lab.agents.names("checkpoints/00000060/g1/w0/")} == {
        "last.ckpt", "step=60.ckpt",
    }  # fmt: skip


def test_a_job_that_ended_in_order_has_no_file_outstanding(lab: FormatLab) -> None:
    """A series that has no file of the last step is waited for while the job runs, and not when it has ended."""
    context = lab.context()
    context.committer.begin(1, None)
    for step in (10, 20):
        put(context.local.folder, [(f"model_{step}.pt", archive()), (f"ema_{step}.pt", archive())])
    assert context.committer.commit()
    put(context.local.folder, [("model_30.pt", archive({"x": 3}))])
    assert not context.committer.commit()
    assert step_now(context) == 20
    context.local.rest(in_order=True)
    assert context.committer.commit()
    assert step_now(context) == 30


def _lightning(step: int) -> bytes:
    return archive({"global_step": step, "x": step})


def _both(context: AgentContext, step: int) -> bool:
    """Save as Lightning does with save_last: a numbered file, and the same bytes as last.ckpt."""
    put(context.local.folder, [(f"step={step}.ckpt", _lightning(step)), ("last.ckpt", _lightning(step))])
    return context.committer.commit()


@pytest.mark.parametrize("renamed", [True, False])
def test_bytes_of_no_known_format_are_committed_when_each_save_is_renamed(
    lab: FormatLab, *, renamed: bool
) -> None:
    """A program of one's own that saves `weights.bin` all the time: only a rename proves that it is whole."""
    context = lab.context()
    context.committer.begin(1, None)
    context.local.forget()
    path = context.local.folder / "weights.bin"
    done = []
    for step in range(1, 8):
        target = path.with_suffix(".tmp") if renamed else path
        put(context.local.folder, [(target.name, bytes([step]) * 5000)])
        target.replace(path)
        done.append(context.committer.commit())
    assert done == [False] * 4 + [renamed] * 3
    assert (step_now(context) is not None) == renamed


@pytest.mark.parametrize("folder", ["../x", "/x", "a/../../x", "a/..", ""])
def test_a_manifest_leads_out_of_no_folder(folder: str) -> None:
    """Nested folders are allowed, ways out of them are not."""
    body = {"schema": 1, "folder": "a/b", "files": [], "at": 0, "step": 1, "incarnation": 1, "worker": 0}
    body["workers"] = 1
    assert parse(json.dumps(body).encode(), "here").folder == "a/b"
    with pytest.raises(DamagedError):
        parse(json.dumps({**body, "folder": folder}).encode(), "here")


def test_an_old_manifest_tells_its_step_and_no_format() -> None:
    """Checkpoints from before `auto` stay what they are."""
    body = {"schema": 1, "folder": ".", "files": [], "at": 0, "step": 7, "incarnation": 1, "worker": 0}
    old = parse(json.dumps({**body, "workers": 1}).encode(), "here")
    assert (old.format, old.own_step, old.proven) == ("", 7, True)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("epoch=0-step=4.ckpt", 4), ("model_000100.pt", 100), ("optim_000100_rank0.pt", 100),
        ("ckpt.pt", None),
        ("last-v1.ckpt", None), ("resnet50.pth", None), ("epoch=03-val_loss=0.25.ckpt", 3), ("100.pt", 100),
        ("model-00001-of-00002.safetensors", None), ("checkpoint3.pt", 3), ("model_100steps.pt", 100),
    ],
)  # fmt: skip
def test_the_number_of_a_name(name: str, number: int | None) -> None:
    """Ranks, parts, versions, metrics and sizes of models are no steps."""
    found = numbered(name)
    assert (found.number if found else None) == number


def test_a_file_tells_its_step_and_runs_nothing(tmp_path: Path) -> None:
    """A pickle that would call something gives blanks instead; other kinds are read by their headers."""
    (tmp_path / "a.pt").write_bytes(archive({"epoch": 3, "global_step": 120}))
    (tmp_path / "b.pth").write_bytes(old_torch({"epoch": 4}))
    (tmp_path / "c.npz").write_bytes(npz(50))
    (tmp_path / "d.safetensors").write_bytes(safetensors())
    evil = b"\x80\x02cos\nsystem\nX\x0b\x00\x00\x00touch evil!\x85R."
    (tmp_path / "e.pkl").write_bytes(evil)
    assert (position_in(tmp_path / "a.pt").step, position_in(tmp_path / "a.pt").epoch) == (120, 3)
    assert position_in(tmp_path / "b.pth").epoch == 4
    assert position_in(tmp_path / "c.npz").step == 50
    for name, step in (("f", np.float32(35)), ("g", np.array([35.0])), ("h", np.array(35))):
        np.savez(tmp_path / f"{name}.npz", weights=np.ones(9), step=step)
        assert position_in(tmp_path / f"{name}.npz").step == 35
    for name, none in (("i", 35.5), ("j", np.inf), ("k", np.array([35.0, 36.0]))):
        np.savez(tmp_path / f"{name}.npz", step=none)
        assert position_in(tmp_path / f"{name}.npz").step is None
    assert position_in(tmp_path / "d.safetensors").step is None
    assert position_in(tmp_path / "e.pkl").step is None
    assert not (Path.cwd() / "evil!").exists()


def test_a_program_that_replaces_its_file_resumes_on_the_next_machine(agents: AgentLab) -> None:
    """Killed without a word, it goes on from what was committed; at the end the target is proven by the file."""
    code = IN_PLACE.format(tests=str(Path(__file__).parents[2]))
    agents.code = agents.put_bundle({"train.py": code.encode()})
    settings = {"CHECKPOINT_FORMAT": "auto", "TARGET_STEPS": 60}
    first = agents.machine(INCARNATION=1, **settings).start()
    first.until_committed(10)
    first.kill_all()
    second = agents.machine("m1", INCARNATION=2, **settings).run_to_end()
    heartbeat = second.heartbeat()
    assert (heartbeat["phase"], heartbeat["committed_step"], heartbeat["format"]) == ("done", 60, "files")
    begun = int(agents.log(2).split("begin after ")[1].split()[0])
    assert begun >= 10
    assert agents.log(2).count("resume " + str(second.root / "checkpoints" / "ckpt.pt")) == 1


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentLab]:
    """Run a bucket for machines."""
    with running_lab(tmp_path) as agents:
        yield agents
