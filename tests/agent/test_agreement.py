"""Workers of a gang commit the same saves, and a save that the job deletes meanwhile."""

import shutil
import time

import pytest

from orchestrator.agent.agreement.saves import WAIT_FACTOR, SaveAgreement
from orchestrator.agent.checkpoints.local_checkpoints import CLOCK_TICKS, lost_files
from orchestrator.agent.context import AgentContext
from orchestrator.clock import VirtualClock
from orchestrator.contract.bucket.object_names import GANG
from orchestrator.contract.machine_errors import DamagedError, FencedError
from orchestrator.emulator.http.router import Request
from tests.agent.agent_lab import AgentLab
from tests.formats.layouts import npz, tf
from tests.kit.waiting import until

IN_STEP = """
import os, shutil, time
from pathlib import Path
folder, saves = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), []
while True:
    step = int((time.time() - float(os.environ["BEGIN"])) / 0.25)
    if step > (saves[-1] if saves else 0):
        saves.append(step)
        (folder / f"step-{step}").mkdir()
        (folder / f"step-{step}" / "shard").write_bytes(bytes(5000))
        (folder / f"step-{step}" / "COMPLETE").write_text("")
        for old in saves[-4:-2]:
            shutil.rmtree(folder / f"step-{old}", ignore_errors=True)
    time.sleep(0.01)
"""


def test_workers_commit_the_same_steps_though_uploads_last_longer_than_saves_are_retained(
    lab: AgentLab,
) -> None:
    """Both save at the same moments; a file of one comes up in two saves, of the other in three; a save has two."""

    def newest(worker: str) -> int:
        saves = (lab.folder / worker / "checkpoints").glob("step-*")
        return max((int(path.name.partition("-")[2]) for path in saves), default=0)

    def slowly(request: Request) -> None:
        name = request.query.get("name", "")
        if "/g1/w" in name and name.startswith("checkpoints/") and request.method == "POST":
            worker = "w0" if "/g1/w0/" in name else "w1"
            last = newest(worker) + (2 if worker == "w0" else 3)
            until(lambda: newest(worker) >= last, f"save {last} of {worker}", 60, pause=0.02)

    lab.fault = slowly
    code = lab.put_bundle({"train.py": IN_STEP.encode()})
    changes = {"_BEGIN": time.time(), "BUNDLE": code, "HEARTBEAT_SECONDS": 0.1}
    for worker in (0, 1):
        lab.machine(f"w{worker}", WORKER_ID=worker, WORKERS=2, **changes).start()

    parts: tuple[set[int], set[int]] = set(), set()

    def complete() -> set[int]:
        # Collected, since worker 0 deletes old ones.
        for name in lab.manifests():
            parts[int(name.endswith("/w1.manifest.json"))].add(int(name.split("/")[1]))
        return parts[0] & parts[1]

    lab.machines[0].until(lambda: len(complete()) >= 4, "four complete checkpoints")
    alone = [step for step in parts[0] ^ parts[1] if step < max(complete())]
    assert len(alone) <= 3, (sorted(parts[0]), sorted(parts[1]))


def test_a_save_that_the_job_deletes_while_it_is_uploaded_is_committed(lab: AgentLab) -> None:
    """It is linked before, so a job that keeps few saves gets them into the bucket all the same."""
    machine = lab.machine()
    context = machine.context()
    folder = context.local.folder / "step-10"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * 5000)
    (folder / "COMPLETE").write_text("")
    context.committer.begin(1, None)

    def delete(request: Request) -> None:
        if request.query.get("name", "").endswith("/weights"):
            shutil.rmtree(folder, ignore_errors=True)

    lab.fault = delete
    assert context.committer.commit()
    assert lab.read("checkpoints/00000010/g1/w0/weights") == b"w" * 5000
    assert lab.json("checkpoints/00000010/g1/w0.manifest.json")["step"] == 10
    assert not (machine.root / "copy").exists()


def test_a_set_of_files_is_linked_if_its_format_proves_that_none_is_missing(lab: AgentLab) -> None:
    """TensorFlow's index names its shards; of `model_10.npz` and `optimizer_10.npz` one may be gone already."""
    machine = lab.machine(CHECKPOINT_FORMAT="tf")
    context = machine.context()
    for name, data in tf(10):
        (context.local.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (context.local.folder / name).write_bytes(data)
    context.committer.begin(1, None)

    def delete(request: Request) -> None:
        if "/ckpt-10" in request.query.get("name", ""):
            for path in context.local.folder.glob("ckpt-10*"):
                path.unlink()

    lab.fault = delete
    assert context.committer.commit()
    names = [one["name"] for one in lab.json("checkpoints/00000010/g1/w0.manifest.json")["files"]]
    assert len(names) == 2

    other = lab.machine("m1", CHECKPOINT_FORMAT="auto")
    local = other.context().local
    for step in (10, 20):
        for name in ("model", "optimizer"):
            (local.folder / f"{name}_{step}.npz").parent.mkdir(parents=True, exist_ok=True)
            (local.folder / f"{name}_{step}.npz").write_bytes(npz(step))
    [older] = [one for one in local.checkpoints() if one.step == 10]
    with pytest.raises(OSError, match="several files"):
        local.link(older)


def test_a_save_that_the_job_was_deleting_already_is_not_committed(lab: AgentLab) -> None:
    """Its marker may be the last file to go; what is left of it then is no whole save."""
    machine = lab.machine()
    context = machine.context()
    folder = context.local.folder / "step-10"
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "weights").write_bytes(b"w" * 5000)
    (folder / "COMPLETE").write_text("")
    assert not lost_files(folder)
    time.sleep(2 * CLOCK_TICKS)  # the kernel stamps files and folders; no call sets those times
    (folder / "part" / "weights").unlink()
    assert lost_files(folder)
    context.committer.begin(1, None)

    def delete(request: Request) -> None:
        if request.query.get("name", "").endswith("/COMPLETE"):
            shutil.rmtree(folder, ignore_errors=True)

    lab.fault = delete
    with pytest.raises(DamagedError):
        context.committer.commit()
    assert lab.manifests() == []


def pair(lab: AgentLab) -> tuple[AgentContext, AgentContext]:
    """Return the contexts of both workers of a slice, whose jobs have just been started."""
    both = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2)
        both.append(machine.context())
        both[-1].local.folder.mkdir(parents=True, exist_ok=True)
        both[-1].committer.begin(1, None, starting=True)
        both[-1].local.forget()
    return both[0], both[1]


def save(step: int, *workers: AgentContext) -> None:
    """Write a save of *step* on each of the workers' disks."""
    for context in workers:
        (context.local.folder / f"step-{step}").mkdir()
        (context.local.folder / f"step-{step}" / "shard").write_text(str(step))
        (context.local.folder / f"step-{step}" / "COMPLETE").write_text("")


def committed(context: AgentContext) -> list[int]:
    """Return what one more look commits, newest first in the order of the report."""
    before = context.heartbeat.get("committed_steps")
    context.committer.commit()
    return [step for step in context.heartbeat.get("committed_steps") if step not in before]


def test_all_workers_commit_their_first_save_from_the_named_step_on(lab: AgentLab) -> None:
    """Worker 0 names the next one before it exists: one that is there may be gone before others read its name."""
    zero, one = pair(lab)
    assert committed(zero) == []
    save(10, zero, one)
    assert (committed(zero), committed(one)) == ([10], [10])
    save(20, zero, one)
    assert committed(zero) == []
    named = lab.json(".tpuctl/gang/1/save-000001.json")["from"]
    assert named > 20
    for step in (named, named + 10):
        save(step, zero, one)
    assert committed(zero) == [named], "not its newest one"
    one.clock.wait(one.settings.poll)
    assert committed(one) == [named], "not its newest one"


class AgreeingWorkers:
    """What two workers of a gang agree on, in a time that the test sets."""

    def __init__(self, lab: AgentLab) -> None:
        self.clock = VirtualClock()
        contexts = pair(lab)
        self.poll = contexts[0].settings.poll
        self.workers = [SaveAgreement(one.settings, one.bucket, self.clock) for one in contexts]
        for one in self.workers:
            one.begin(1)

    def named(self, worker: int, floor: int, *saves: int) -> int | None:
        """Return the named step as a worker knows it after one more look at its saves."""
        return self.workers[worker].step(floor, saves, lambda: None)


def test_worker_0_waits_for_the_others_but_not_for_ever(lab: AgentLab) -> None:
    """A worker that cannot commit a save takes part again in the next round."""
    gang = AgreeingWorkers(lab)
    assert gang.named(0, -1) == 0
    assert gang.named(0, -1, 10) == 0
    gang.workers[0].committed(10, seconds=4.0)
    assert gang.named(0, 10) == 0, "the other one may still upload step 10"
    gang.clock.advance(WAIT_FACTOR * 4.0)
    assert gang.named(0, 10) == 0
    gang.clock.advance(WAIT_FACTOR * gang.poll + 0.01)
    assert gang.named(0, 10) == 11
    assert gang.named(1, -1) is None, "nothing to commit, so nothing is read"
    assert gang.named(1, -1, 10) == 11


def test_as_soon_as_all_have_a_save_the_next_one_is_named(lab: AgentLab) -> None:
    """It lies beyond what is saved until all workers have read its name, by the interval of the last saves."""
    gang = AgreeingWorkers(lab)
    assert gang.named(0, -1) == 0
    gang.clock.advance(2)
    gang.named(0, -1, 10)
    gang.workers[0].committed(10, seconds=400.0)
    for save in (20, 30):
        gang.clock.advance(2)
        assert gang.named(0, 10, save) == 0
    gang.clock.advance(0.1)
    assert gang.named(0, 10, 31) == 0, "saved twice in a row"
    for worker in (0, 1):
        lab.put(f"checkpoints/00000010/g1/w{worker}.manifest.json", b"{}")
    assert gang.named(0, 10, 31) == pytest.approx(32 + 5 * WAIT_FACTOR * gang.poll, abs=1), "5 steps a second"


def test_a_save_after_which_none_comes_for_long_is_named_itself(lab: AgentLab) -> None:
    """The last save of a job that does not end, or the one before a long evaluation, is no less whole."""
    gang = AgreeingWorkers(lab)
    named = gang.named(0, -1, 10, 20)
    assert named is not None
    assert named > 20
    gang.clock.advance(WAIT_FACTOR * gang.poll + 0.01)
    assert gang.named(0, -1, 10, 20) == 20
    assert gang.named(1, -1, 10, 20) == 20


def test_looks_are_quick_only_while_saves_come_quickly_and_the_named_one_is_awaited(lab: AgentLab) -> None:
    """A save that the job deletes after a second must be found in that time; others cost no listing."""
    gang = AgreeingWorkers(lab)
    zero = gang.workers[0]
    gang.named(0, -1)
    assert zero.pause is None
    gang.clock.advance(600)
    gang.named(0, -1, 100)
    assert zero.pause is None, "it is there"
    zero.committed(100, seconds=1.0)
    gang.clock.advance(60)
    assert (gang.named(0, 100, 200) or 0) > 200
    assert zero.pause is None, "60 s apart"
    gang.clock.advance(0.4)
    gang.named(0, 100, 201)
    assert zero.pause == pytest.approx(0.1)
    gang.clock.advance(30)
    assert zero.pause is None, "none for 30 s"


def test_a_fenced_worker_0_names_no_save(lab: AgentLab) -> None:
    """Whatever a newer TPU has begun, this one writes nothing more to the bucket."""
    zero, _one = pair(lab)
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    save(10, zero)
    with pytest.raises(FencedError):
        zero.committer.commit()
    assert lab.names(".tpuctl/gang/1/") == []


def test_when_the_jobs_have_ended_the_last_two_saves_are_committed_newest_first(lab: AgentLab) -> None:
    """The jobs may have been killed while only one of them had written its last save."""
    zero, one = pair(lab)
    for step in (10, 20, 30):
        save(step, zero, one)
    save(40, zero)
    for context in (zero, one):
        context.local.rest()
    lab.writes.clear()
    assert (committed(zero), committed(one)) == ([40, 30], [30, 20])
    order = [name for name in lab.writes if "w0.manifest" in name]
    assert "00000040" in order[0]
    assert "00000030" in order[1]
    assert zero.heartbeat.get("committed_step") == 40
    newest = zero.checkpoints.newest()
    assert newest is not None
    assert newest.step == 30
    assert (committed(zero), committed(one)) == ([], [])


def test_an_agent_of_an_earlier_version_as_worker_0_names_nothing_and_delays_no_worker(lab: AgentLab) -> None:
    """During a push the agents of a gang may differ for a moment."""
    _zero, one = pair(lab)
    save(10, one)
    save(20, one)
    assert committed(one) == [20, 10]


def test_a_file_that_is_replaced_before_its_copy_is_committed_as_what_was_copied(lab: AgentLab) -> None:
    """The job may be writing the file while its step is read from it: then only the copy has one."""
    machine = lab.machine(CHECKPOINT_FORMAT="auto")
    context = machine.context()
    path = context.local.folder / "ckpt.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(npz(None))
    context.committer.begin(1, None)

    def save(_request: Request) -> None:
        path.write_bytes(npz(10))

    lab.fault = save
    assert context.committer.commit()
    manifest = lab.json("checkpoints/00000010/g1/w0.manifest.json")
    assert (manifest["step"], context.committer.proven) == (10, 10)
    assert context.heartbeat.get("committed_step") == 10
    assert not context.heartbeat.get("committed_counted")


def test_a_worker_of_a_gang_does_not_commit_another_step_than_it_agreed_on(lab: AgentLab) -> None:
    """The file is replaced while the agreement is read: the other workers have no part of the later step."""
    machine = lab.machine(CHECKPOINT_FORMAT="auto", WORKERS="2", WORKER_ID="1")
    context = machine.context()
    path = context.local.folder / "ckpt.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    context.committer.begin(1, None)
    path.write_bytes(npz(10))
    lab.put(f"{GANG}1/save-000001.json", b'{"from": 10}')
    context.local.forget()

    def save(request: Request) -> None:
        if "save-000001" in request.path:
            path.write_bytes(npz(20))

    lab.fault = save
    assert not context.committer.commit(), "it may still be written"
    context.clock.wait(context.settings.poll)
    with pytest.raises(DamagedError, match="replaced before its copy"):
        context.committer.commit()
    assert lab.manifests() == []
