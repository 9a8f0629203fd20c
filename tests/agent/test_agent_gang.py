"""Slices with several workers, and machines that nobody needs any more."""

import json
import os
import shutil
import time

import pytest

from orchestrator.agent.checkpoints.local import CLOCK_TICKS, lost_files
from orchestrator.agent.gang import PATIENCE, SaveAgreement
from orchestrator.agent.parts import Parts, wire
from orchestrator.agent.settings import read_settings
from orchestrator.contract.machine_errors import FencedError, TornError
from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import TRAIN, Lab, Machine
from tests.agent.format_trees import archive
from tests.formats.layouts import accelerate, hugging_face

VERDICT = ".tpuctl/gang/1/verdict.json"


def two_workers(lab: Lab, **changes: object) -> tuple[Machine, Machine]:
    """Start both workers of a slice."""
    first = lab.machine("w0", WORKER_ID=0, WORKERS=2, **changes)
    second = lab.machine("w1", WORKER_ID=1, WORKERS=2, **changes)
    return first.start(), second.start()


def test_one_dead_job_restarts_the_gang_at_one_attempt_and_one_step(lab: Lab) -> None:
    """When one worker's job dies, both play the next attempt from the same complete checkpoint."""
    first, second = two_workers(lab, _STEPS=60, _STEP_SECONDS=0.05)
    for machine in (first, second):
        machine.until_committed(20)
    for pid in second.job_processes():
        os.kill(pid, 9)
    assert (first.wait(), second.wait()) == (0, 0)

    attempts = lab.attempts()
    assert len(attempts) == 2
    step = attempts[1]["resume_step"]
    assert step >= 20
    assert attempts[1]["failures"] == 0
    for worker, machine in enumerate((first, second)):
        beat = machine.heartbeat()
        assert (beat["phase"], beat["attempt"], beat["resumed_from"]) == ("done", 2, step)
        assert f"begin after {step}, asked for {step}" in lab.log(worker=worker)


def test_a_done_worker_waits_for_the_others(lab: Lab) -> None:
    """A worker that is done stays ready to follow the gang until every worker is done."""
    first = lab.machine("w0", WORKER_ID=0, WORKERS=2, _STEPS=10).start()
    first.until(lambda: first.heartbeat().get("phase") == "ended", "worker 0 ended")
    second = lab.machine("w1", WORKER_ID=1, WORKERS=2, _STEPS=10, _CRASH_AT="5", _CRASHES=1)
    assert first.process is not None
    assert first.process.poll() is None

    second.start()

    assert (first.wait(), second.wait()) == (0, 0)
    assert first.heartbeat()["attempt"] == second.heartbeat()["attempt"] == 2


def test_a_part_of_one_worker_is_no_checkpoint(lab: Lab) -> None:
    """A step that only one of two workers committed is never resumed from."""
    machine = lab.machine("w0", WORKER_ID=0, WORKERS=2, _STEPS=10).start()
    machine.until_committed(10)
    machine.kill_all()

    next_one = lab.machine("n0", WORKER_ID=0, WORKERS=2, INCARNATION=2, _STEPS=10).start()
    next_one.until(lambda: lab.attempts(2), "attempt of incarnation 2")

    assert lab.attempts(2)[0]["resume_step"] is None


def test_zombie_commits_nothing_and_stops(lab: Lab) -> None:
    """Once a higher incarnation has an attempt, the older machine writes no manifest and holds itself."""
    zombie = lab.machine(_STEPS=400, _STEP_SECONDS=0.02).start()
    zombie.until_committed(10)
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    held = lab.manifests()

    assert zombie.wait() == 0

    late = [name for name in lab.manifests() if name not in held]
    assert len(late) <= 1, "at most the manifest that was on its way when incarnation 2 appeared"
    beat = zombie.heartbeat()
    assert beat["phase"] == "stopped"
    assert "TPU #2 exists" in beat["message"]
    assert (zombie.root / "state" / "stop").exists()


def test_zombie_that_wakes_up_late_starts_nothing(lab: Lab) -> None:
    """A machine that boots after its successor has begun does not start its job at all."""
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    machine = lab.machine().run_to_end()

    assert machine.heartbeat()["starts"] == 0
    assert lab.manifests() == []


def test_training_goes_on_while_the_bucket_is_away(lab: Lab) -> None:
    """An outage stops neither the job nor the agent; commits are made up for, and status.json tells."""
    machine = lab.machine(_STEPS=60, _STEP_SECONDS=0.05).start()
    machine.until_committed(10)
    lab.fault = lambda _request: Response(503, b"away")
    before = machine.status()["step"]
    machine.until(lambda: "503" in machine.status()["message"], "the trouble in status.json")
    machine.until(lambda: machine.status()["step"] > before + 10, "more steps")
    assert machine.status()["committed_step"] < machine.status()["step"] - 5
    lab.fault = lambda _request: None

    assert machine.wait(60) == 0

    beat = machine.heartbeat()
    assert (beat["phase"], beat["committed_step"], beat["starts"]) == ("done", 60, 1)


def test_short_faults_are_retried_unseen(lab: Lab) -> None:
    """429 and 500 on every third call change nothing about the outcome."""
    seen: list[float] = []

    def every_third(request: object) -> Response | None:
        seen.append(time.monotonic())
        return Response(429 if len(seen) % 2 else 500, b"busy") if len(seen) % 3 == 0 else None

    lab.fault = every_third
    beat = lab.machine().run_to_end().heartbeat()

    assert (beat["phase"], beat["committed_step"], beat["starts"]) == ("done", 40, 1)


def test_verdict_on_other_code_does_not_bind(lab: Lab) -> None:
    """A gang that gave up on one bundle starts again with another, counting from zero."""
    machine = lab.machine(_CRASH_AT="5", FAILURES=1).run_to_end()
    assert machine.heartbeat()["phase"] == "failed"
    (machine.root / "state" / "stop").unlink()
    machine.run_to_end()
    assert len(lab.attempts()) == 1

    (machine.root / "state" / "stop").unlink()
    del machine.env["CRASH_AT"]
    machine.env["TPUCTL_BUNDLE"] = lab.put_bundle(
        {"train.py": (machine.root / "current" / "train.py").read_bytes() + b"\n"}
    )
    machine.run_to_end()

    assert machine.heartbeat()["phase"] == "done"
    assert lab.attempts()[-1]["failures"] == 0
    assert json.loads((machine.root / "state" / "job.json").read_text())["ended"] == "done"


def test_a_gang_does_not_give_up_while_a_worker_is_missing(lab: Lab) -> None:
    """Jobs that fail because another machine is dead are not at fault; when it lives, they are."""
    broken = {"_CRASH_AT": "3", "_CRASHES": 99, "FAILURES": 2, "_STEPS": 50}
    first, second = two_workers(lab, **broken)
    first.until(lambda: first.heartbeat().get("starts", 0) >= 1, "the first start")
    second.kill_all()
    first.until(lambda: "worker 1 is silent" in first.heartbeat().get("message", ""), "the missing worker")
    assert VERDICT not in lab.names()

    second.start()

    first.until(lambda: VERDICT in lab.names(), "the verdict")
    assert lab.json(VERDICT)["failed"]


ONLY_FIRST = "    if os.environ['TPUCTL_WORKER_ID'] != '0':\n        return\n"


def first_saves(lab: Lab, incarnation: int = 1, **changes: object) -> tuple[Machine, Machine]:
    """Start a slice whose program saves on its first worker only."""
    script = TRAIN.read_text().replace("    folder = FOLDER /", f"{ONLY_FIRST}    folder = FOLDER /", 1)
    code = lab.put_bundle({"train.py": script.encode()})
    first, second = (
        lab.machine(
            f"g{incarnation}w{n}", WORKER_ID=n, WORKERS=2, INCARNATION=incarnation, BUNDLE=code, **changes
        )
        for n in (0, 1)
    )
    return first.start(), second.start()


def test_a_program_that_saves_on_its_first_worker_only_has_whole_checkpoints(lab: Lab) -> None:
    """The others say so with a manifest without files; the next slice has the checkpoint on each machine."""
    first, second = first_saves(lab)
    assert (first.wait(), second.wait()) == (0, 0)
    assert {first.heartbeat()["phase"], second.heartbeat()["phase"]} == {"done"}
    assert first.heartbeat()["committed_step"] == second.heartbeat()["committed_step"] == 40
    part = lab.json("checkpoints/00000040/g1/w1.manifest.json")
    assert (part["files"], part["workers"]) == ([], 2)

    first, second = first_saves(lab, 2, _STEPS=60)
    assert (first.wait(), second.wait()) == (0, 0)
    for worker, machine in enumerate((first, second)):
        assert machine.heartbeat()["resumed_from"] == 40
        assert "begin after 40, asked for 40" in lab.log(2, worker)
        assert machine.heartbeat()["committed_step"] == 60
        assert machine.heartbeat()["committed_steps"][0] == 60
        assert 40 not in machine.heartbeat()["committed_steps"], "an earlier TPU's"
    assert lab.json("checkpoints/00000060/g2/w1.manifest.json")["files"] == []


def test_a_slice_that_is_killed_has_the_save_before_the_newest_of_its_first_worker(lab: Lab) -> None:
    """While the job runs, a second save of worker 0 tells that the others had no part in the first."""
    first, second = first_saves(lab, _STEPS=100000, _STEP_SECONDS=0.02)
    second.until_committed(10)
    whole = second.heartbeat()["committed_step"]
    for machine in (first, second):
        machine.kill_all()
    reports = [set(machine.heartbeat()["committed_steps"]) for machine in (first, second)]
    for step in (whole, max(set.intersection(*reports))):
        assert {"w0", "w1"} <= {name.split("/")[3][:2] for name in lab.names(f"checkpoints/{step:08d}/g1/")}


IN_STEP = """
import os, shutil, time
from pathlib import Path
folder, saves = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), []
while True:
    step = int((time.time() - float(os.environ["BEGIN"])) / 0.5)
    if step > (saves[-1] if saves else 0):
        saves.append(step)
        (folder / f"step-{step}").mkdir()
        (folder / f"step-{step}" / "shard").write_bytes(bytes(5000))
        (folder / f"step-{step}" / "COMPLETE").write_text("")
        for old in saves[-4:-2]:
            shutil.rmtree(folder / f"step-{old}", ignore_errors=True)
    time.sleep(0.01)
"""


def test_workers_commit_the_same_steps_though_their_uploads_last_longer_than_the_saves_are_kept(
    lab: Lab,
) -> None:
    """Both save at the same moments; one uploads for 1.6 s, the other for 2.4 s, a save is kept for 1 s."""

    def slowly(request: Request) -> None:
        name = request.query.get("name", "")
        if "/g1/w" in name and name.startswith("checkpoints/") and request.method == "POST":
            time.sleep(0.8 if "/g1/w0/" in name else 1.2)

    lab.fault = slowly
    changes = {"_BEGIN": time.time(), "BUNDLE": lab.put_bundle({"train.py": IN_STEP.encode()})}
    two_workers(lab, **changes)

    def complete() -> set[str]:
        parts: list[set[str]] = [
            {name.split("/")[1] for name in lab.manifests() if name.endswith(f"/w{worker}.manifest.json")}
            for worker in (0, 1)
        ]
        return parts[0] & parts[1]

    seen: set[str] = set()
    lab.machines[0].until(lambda: seen.update(complete()) or len(seen) >= 4, "four complete checkpoints")
    last = int(max(lab.manifests()).split("/")[1])
    assert last - int(max(seen)) <= 24, "a complete checkpoint every two rounds, of at most 6 s each"


def test_a_save_that_the_job_deletes_while_it_is_uploaded_is_committed(lab: Lab) -> None:
    """It is linked before, so a job that keeps few saves gets them into the bucket all the same."""
    machine = lab.machine()
    parts = wire(read_settings(machine.env), machine.env)
    folder = parts.local.folder / "step-10"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * 5000)
    (folder / "COMPLETE").write_text("")
    parts.committer.begin(1, None)

    def delete(request: Request) -> None:
        if request.query.get("name", "").endswith("/weights"):
            shutil.rmtree(folder, ignore_errors=True)

    lab.fault = delete
    assert parts.committer.commit()
    assert lab.read("checkpoints/00000010/g1/w0/weights") == b"w" * 5000
    assert lab.json("checkpoints/00000010/g1/w0.manifest.json")["step"] == 10
    assert not (machine.root / "copy").exists()


def test_a_save_that_the_job_was_deleting_already_is_not_committed(lab: Lab) -> None:
    """Its marker may be the last file to go; what is left of it then is no whole save."""
    machine = lab.machine()
    parts = wire(read_settings(machine.env), machine.env)
    folder = parts.local.folder / "step-10"
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "weights").write_bytes(b"w" * 5000)
    (folder / "COMPLETE").write_text("")
    assert not lost_files(folder)
    time.sleep(2 * CLOCK_TICKS)
    (folder / "part" / "weights").unlink()
    assert lost_files(folder)
    parts.committer.begin(1, None)

    def delete(request: Request) -> None:
        if request.query.get("name", "").endswith("/COMPLETE"):
            shutil.rmtree(folder, ignore_errors=True)

    lab.fault = delete
    with pytest.raises(TornError):
        parts.committer.commit()
    assert lab.manifests() == []


def pair(lab: Lab) -> tuple[Parts, Parts]:
    """Return the parts of both workers of a slice, whose jobs have just been started."""
    both = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2)
        both.append(wire(read_settings(machine.env), machine.env))
        both[-1].local.folder.mkdir(parents=True, exist_ok=True)
        both[-1].committer.begin(1, None, starting=True)
        both[-1].local.forget()
    return both[0], both[1]


def save(step: int, *workers: Parts) -> None:
    """Write a save of *step* on each of the workers' disks."""
    for parts in workers:
        (parts.local.folder / f"step-{step}").mkdir()
        (parts.local.folder / f"step-{step}" / "shard").write_text(str(step))
        (parts.local.folder / f"step-{step}" / "COMPLETE").write_text("")


def committed(parts: Parts) -> list[int]:
    """Return what one more look commits, newest first in the order of the report."""
    before = parts.status.get("committed_steps")
    parts.committer.commit()
    return [step for step in parts.status.get("committed_steps") if step not in before]


def test_all_workers_commit_their_first_save_from_the_named_step_on(lab: Lab) -> None:
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
    time.sleep(one.settings.poll)
    assert (committed(zero), committed(one)) == ([named], [named]), "not their newest ones"


class Gang:
    """What two workers of a gang agree on, in a time that the test sets."""

    def __init__(self, lab: Lab) -> None:
        self.now = 100.0
        parts = pair(lab)
        self.poll = parts[0].settings.poll
        self.workers = [SaveAgreement(one.settings, one.bucket, lambda: self.now) for one in parts]
        for one in self.workers:
            one.begin(1)

    def named(self, worker: int, floor: int, *saves: int) -> int | None:
        """Return the named step as a worker knows it after one more look at its saves."""
        return self.workers[worker].step(floor, saves, lambda: None)


def test_worker_0_waits_for_the_others_but_not_for_ever(lab: Lab) -> None:
    """A worker that cannot commit a save takes part again in the next round."""
    gang = Gang(lab)
    assert gang.named(0, -1) == 0
    assert gang.named(0, -1, 10) == 0
    gang.workers[0].committed(10, seconds=4.0)
    assert gang.named(0, 10) == 0, "the other one may still upload step 10"
    gang.now += PATIENCE * 4.0
    assert gang.named(0, 10) == 0
    gang.now += PATIENCE * gang.poll
    assert gang.named(0, 10) == 11
    assert gang.named(1, -1) is None, "nothing to commit, so nothing is read"
    assert gang.named(1, -1, 10) == 11


def test_as_soon_as_all_have_a_save_the_next_one_is_named(lab: Lab) -> None:
    """It lies beyond what is saved until all workers have read its name, by the pace of the last saves."""
    gang = Gang(lab)
    assert gang.named(0, -1) == 0
    gang.now += 2
    gang.named(0, -1, 10)
    gang.workers[0].committed(10, seconds=400.0)
    for save in (20, 30):
        gang.now += 2
        assert gang.named(0, 10, save) == 0
    gang.now += 0.1
    assert gang.named(0, 10, 31) == 0, "saved twice in a row"
    for worker in (0, 1):
        lab.put(f"checkpoints/00000010/g1/w{worker}.manifest.json", b"{}")
    assert gang.named(0, 10, 31) == pytest.approx(32 + 5 * PATIENCE * gang.poll, abs=1), "5 steps a second"


def test_a_save_after_which_none_comes_for_long_is_named_itself(lab: Lab) -> None:
    """The last save of a job that does not end, or the one before a long evaluation, is no less whole."""
    gang = Gang(lab)
    named = gang.named(0, -1, 10, 20)
    assert named is not None
    assert named > 20
    gang.now += PATIENCE * gang.poll + 0.01
    assert gang.named(0, -1, 10, 20) == 20
    assert gang.named(1, -1, 10, 20) == 20


def test_looks_are_quick_only_while_saves_come_quickly_and_the_named_one_is_awaited(lab: Lab) -> None:
    """A save that the job keeps for a second must be seen in that time; others cost no looks."""
    gang = Gang(lab)
    zero = gang.workers[0]
    gang.named(0, -1)
    assert zero.pause is None
    gang.now += 600
    gang.named(0, -1, 100)
    assert zero.pause is None, "it is there"
    zero.committed(100, seconds=1.0)
    gang.now += 60
    assert (gang.named(0, 100, 200) or 0) > 200
    assert zero.pause is None, "60 s apart"
    gang.now += 0.4
    gang.named(0, 100, 201)
    assert zero.pause == pytest.approx(0.1)
    gang.now += 30
    assert zero.pause is None, "none for 30 s"


def test_a_fenced_worker_0_names_no_save(lab: Lab) -> None:
    """Whatever a newer TPU has begun, this one writes nothing more to the bucket."""
    zero, _one = pair(lab)
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    save(10, zero)
    with pytest.raises(FencedError):
        zero.committer.commit()
    assert lab.names(".tpuctl/gang/1/") == []


def test_when_the_jobs_have_ended_the_last_two_saves_are_committed_newest_first(lab: Lab) -> None:
    """The jobs may have been killed while only one of them had written its last save."""
    zero, one = pair(lab)
    for step in (10, 20, 30):
        save(step, zero, one)
    save(40, zero)
    for parts in (zero, one):
        parts.local.rest()
    lab.writes.clear()
    assert (committed(zero), committed(one)) == ([40, 30], [30, 20])
    order = [name for name in lab.writes if "w0.manifest" in name]
    assert "00000040" in order[0]
    assert "00000030" in order[1]
    assert zero.status.get("committed_step") == 40
    newest = zero.catalogue.newest()
    assert newest is not None
    assert newest.step == 30
    assert (committed(zero), committed(one)) == ([], [])


def test_an_agent_of_an_earlier_version_as_worker_0_names_nothing_and_holds_nobody_up(lab: Lab) -> None:
    """During a push the agents of a gang may differ for a moment."""
    _zero, one = pair(lab)
    save(10, one)
    save(20, one)
    assert committed(one) == [20, 10]


def test_a_worker_that_has_written_anything_makes_no_empty_part(lab: Lab) -> None:
    """Its shard may be late or torn: what worker 0 has saved is no checkpoint then."""
    parts = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2)
        parts.append(wire(read_settings(machine.env), machine.env))
        parts[-1].local.folder.mkdir(parents=True, exist_ok=True)
        parts[-1].committer.begin(1, None, starting=True)
    zero, one = parts
    for step in (10, 20, 30):
        whole = zero.local.folder / f"step-{step}"
        whole.mkdir()
        (whole / "COMPLETE").write_text("")
        assert zero.committer.commit()
        if step == 10:
            assert not one.committer.commit(), "the first save of worker 0 proves nothing yet"
            (one.local.folder / "step-20").mkdir()
            (one.local.folder / "step-20" / "shard").write_text("half of it")
        else:
            assert not one.committer.commit()
    assert not one.committer.follow_first()
    assert zero.catalogue.newest() is None
    (one.local.folder / "step-20" / "shard").unlink()
    assert one.committer.commit()
    newest = zero.catalogue.newest()
    assert newest is not None
    assert newest.step == 30


@pytest.mark.parametrize(
    ("folder", "own"), [("checkpoint-{}", "rng_state_1.pth"), ("checkpoint_{}", "random_states_1.pkl")]
)
def test_random_numbers_of_a_worker_that_saves_nothing_else_hold_no_checkpoint_back(
    lab: Lab, folder: str, own: str
) -> None:
    """The Trainer and accelerate save them on each machine, and the model on the first: that is a whole save."""
    parts = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2, CHECKPOINT_FORMAT="auto")
        parts.append(wire(read_settings(machine.env), machine.env))
        parts[-1].committer.begin(1, None, starting=True)
    zero, one = parts
    trainer, accelerated = hugging_face("model.safetensors"), accelerate
    for step in (10, 20, 30):
        saved = trainer(step) if "-" in folder else accelerated(step)
        for name, data in saved:
            path = zero.local.folder / folder.format(step) / name.rpartition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        path = one.local.folder / folder.format(step) / own
        path.parent.mkdir(parents=True)
        path.write_bytes(archive())
        assert zero.committer.commit()
        one.committer.commit()
    newest = zero.catalogue.newest()
    assert newest is not None
    assert newest.step == 30
    held = one.catalogue.part_of(30, 1, 1)
    assert "model.safetensors" in {file.name for file in held.files}, "each machine reads the model"
    (one.local.folder / folder.format(30) / "model.safetensors").write_bytes(b"half of it")
    assert not one.committer.saved_nothing()
