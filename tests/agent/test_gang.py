"""Slices with several workers, and machines that nobody needs any more."""

import json
import os
import time

import pytest

from orchestrator.emulator.http.router import Response
from tests.agent.agent_lab import TRAIN, AgentLab, AgentMachine
from tests.agent.format_trees import archive
from tests.formats.layouts import accelerate, hugging_face

VERDICT = ".tpuctl/gang/1/verdict.json"


def two_workers(lab: AgentLab, **changes: object) -> tuple[AgentMachine, AgentMachine]:
    """Start both workers of a slice."""
    first = lab.machine("w0", WORKER_ID=0, WORKERS=2, **changes)
    second = lab.machine("w1", WORKER_ID=1, WORKERS=2, **changes)
    return first.start(), second.start()


def test_one_dead_job_restarts_the_gang_at_one_attempt_and_one_step(lab: AgentLab) -> None:
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
        heartbeat = machine.heartbeat()
        assert (heartbeat["phase"], heartbeat["attempt"], heartbeat["resumed_from"]) == ("done", 2, step)
        assert f"begin after {step}, asked for {step}" in lab.log(worker=worker)


def test_a_done_worker_waits_for_the_others(lab: AgentLab) -> None:
    """A worker that is done stays ready to follow the gang until every worker is done."""
    first = lab.machine("w0", WORKER_ID=0, WORKERS=2, _STEPS=10).start()
    first.until(lambda: first.heartbeat().get("phase") == "ended", "worker 0 ended")
    second = lab.machine("w1", WORKER_ID=1, WORKERS=2, _STEPS=10, _CRASH_AT="5", _CRASHES=1)
    assert first.process is not None
    assert first.process.poll() is None

    second.start()

    assert (first.wait(), second.wait()) == (0, 0)
    assert first.heartbeat()["attempt"] == second.heartbeat()["attempt"] == 2


def test_a_part_of_one_worker_is_no_checkpoint(lab: AgentLab) -> None:
    """A step that only one of two workers committed is never resumed from."""
    machine = lab.machine("w0", WORKER_ID=0, WORKERS=2, _STEPS=10).start()
    machine.until_committed(10)
    machine.kill_all()

    next_one = lab.machine("n0", WORKER_ID=0, WORKERS=2, INCARNATION=2, _STEPS=10).start()
    next_one.until(lambda: lab.attempts(2), "attempt of incarnation 2")

    assert lab.attempts(2)[0]["resume_step"] is None


def test_zombie_commits_nothing_and_stops(lab: AgentLab) -> None:
    """Once a higher incarnation has an attempt, the older machine writes no manifest and holds itself."""
    zombie = lab.machine(_STEPS=400, _STEP_SECONDS=0.02).start()
    zombie.until_committed(10)
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    held = lab.manifests()

    assert zombie.wait() == 0

    late = [name for name in lab.manifests() if name not in held]
    assert len(late) <= 1, "at most the manifest that was on its way when incarnation 2 appeared"
    heartbeat = zombie.heartbeat()
    assert heartbeat["phase"] == "stopped"
    assert "TPU #2 exists" in heartbeat["message"]
    assert (zombie.root / "state" / "stop").exists()


def test_zombie_that_wakes_up_late_starts_nothing(lab: AgentLab) -> None:
    """A machine that boots after its successor has begun does not start its job at all."""
    lab.put(".tpuctl/gang/2/000001.json", b"{}")
    machine = lab.machine().run_to_end()

    assert machine.heartbeat()["attempts"] == 0
    assert lab.manifests() == []


def test_training_goes_on_while_the_bucket_is_away(lab: AgentLab) -> None:
    """An outage stops neither the job nor the agent; commits are made up for, and status.json reports it."""
    machine = lab.machine(_STEPS=60, _STEP_SECONDS=0.05).start()
    machine.until_committed(10)
    lab.fault = lambda _request: Response(503, b"away")
    before = machine.status()["step"]
    machine.until(lambda: "503" in machine.status()["message"], "the trouble in status.json")
    machine.until(lambda: machine.status()["step"] > before + 10, "more steps")
    assert machine.status()["committed_step"] < machine.status()["step"] - 5
    lab.fault = lambda _request: None

    assert machine.wait(60) == 0

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["committed_step"], heartbeat["attempts"]) == ("done", 60, 1)


def test_short_faults_are_retried_unseen(lab: AgentLab) -> None:
    """429 and 500 on every third call change nothing about the outcome."""
    observed: list[float] = []

    def every_third(request: object) -> Response | None:
        observed.append(time.monotonic())
        return Response(429 if len(observed) % 2 else 500, b"busy") if len(observed) % 3 == 0 else None

    lab.fault = every_third
    heartbeat = lab.machine().run_to_end().heartbeat()

    assert (heartbeat["phase"], heartbeat["committed_step"], heartbeat["attempts"]) == ("done", 40, 1)


def test_verdict_on_other_code_does_not_bind(lab: AgentLab) -> None:
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
    assert lab.attempts()[-1]["reason"].startswith("new code was installed")
    assert json.loads((machine.root / "state" / "job.json").read_text())["ended"] == "done"


def test_a_gang_does_not_give_up_while_a_worker_is_missing(lab: AgentLab) -> None:
    """Jobs that fail because another machine is dead are not at fault; when it lives, they are."""
    broken = {"_CRASH_AT": "3", "_CRASHES": 99, "FAILURES": 2, "_STEPS": 50}
    first, second = two_workers(lab, **broken)
    first.until(lambda: first.heartbeat().get("attempts", 0) >= 1, "the first start")
    second.kill_all()
    first.until(lambda: "worker 1 is silent" in first.heartbeat().get("message", ""), "the missing worker")
    assert VERDICT not in lab.names()

    second.start()

    first.until(lambda: VERDICT in lab.names(), "the verdict")
    assert lab.json(VERDICT)["failed"]


ONLY_FIRST = "    if os.environ['TPUCTL_WORKER_ID'] != '0':\n        return\n"


def first_saves(lab: AgentLab, incarnation: int = 1, **changes: object) -> tuple[AgentMachine, AgentMachine]:
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


def test_a_program_that_saves_on_its_first_worker_only_has_whole_checkpoints(lab: AgentLab) -> None:
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


def test_a_slice_that_is_killed_has_the_save_before_the_newest_of_its_first_worker(lab: AgentLab) -> None:
    """While the job runs, a second save of worker 0 shows that the others had no part in the first."""
    first, second = first_saves(lab, _STEPS=100000, _STEP_SECONDS=0.02)
    second.until_committed(10)
    whole = second.heartbeat()["committed_step"]
    for machine in (first, second):
        machine.kill_all()
    reports = [set(machine.heartbeat()["committed_steps"]) for machine in (first, second)]
    for step in (whole, max(set.intersection(*reports))):
        assert {"w0", "w1"} <= {name.split("/")[3][:2] for name in lab.names(f"checkpoints/{step:08d}/g1/")}


def test_a_worker_that_has_written_anything_makes_no_empty_part(lab: AgentLab) -> None:
    """Its shard may be late or torn: what worker 0 has saved is no checkpoint then."""
    contexts = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2)
        contexts.append(machine.context())
        contexts[-1].local.folder.mkdir(parents=True, exist_ok=True)
        contexts[-1].committer.begin(1, None, starting=True)
    zero, one = contexts
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
    assert zero.checkpoints.newest() is None
    (one.local.folder / "step-20" / "shard").unlink()
    assert one.committer.commit()
    newest = zero.checkpoints.newest()
    assert newest is not None
    assert newest.step == 30


@pytest.mark.parametrize(
    ("folder", "own"), [("checkpoint-{}", "rng_state_1.pth"), ("checkpoint_{}", "random_states_1.pkl")]
)
def test_random_numbers_of_a_worker_that_saves_nothing_else_hold_no_checkpoint_back(
    lab: AgentLab, folder: str, own: str
) -> None:
    """The Trainer and accelerate save them on each machine, and the model on the first: that is a whole save."""
    contexts = []
    for worker in (0, 1):
        machine = lab.machine(f"p{worker}", WORKER_ID=worker, WORKERS=2, CHECKPOINT_FORMAT="auto")
        contexts.append(machine.context())
        contexts[-1].committer.begin(1, None, starting=True)
    zero, one = contexts
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
    newest = zero.checkpoints.newest()
    assert newest is not None
    assert newest.step == 30
    held = one.checkpoints.part_of(30, 1, 1)
    assert "model.safetensors" in {file.name for file in held.files}, "each machine reads the model"
    (one.local.folder / folder.format(30) / "model.safetensors").write_bytes(b"half of it")
    assert not one.committer.saved_nothing()
