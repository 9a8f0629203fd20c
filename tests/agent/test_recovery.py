"""Real agents with jobs that save as each framework does: validate, then launch; never believe a status alone."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.agreement.attempts import EXCUSES, Attempt, next_attempt
from orchestrator.agent.attempt import attempt_record
from orchestrator.agent.attempt.crash_loop import ALIKE, should_go_back
from orchestrator.agent.layout import Layout
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind, outcome_of, settle
from orchestrator.contract.bucket.completeness import CompleteCheckpoint
from orchestrator.contract.formats.choose import format_of
from tests.agent import format_trees as trees
from tests.agent.agent_lab import AgentLab, AgentMachine

HERE = Path(__file__).parent


def machine(lab: AgentLab, kind: str, name: str = "m0", **changes: object) -> AgentMachine:
    """Return a machine whose job saves in one format, with a target of 60 steps."""
    code = {
        "train.py": (HERE / "format_script.py").read_bytes(),
        "format_trees.py": (HERE / "format_trees.py").read_bytes(),
    }
    defaults = {
        "CHECKPOINT_FORMAT": kind,
        "_FORMAT": kind,
        "TARGET_STEPS": 60,
        "BUNDLE": lab.put_bundle(code),
    }
    return lab.machine(name, **{**defaults, **changes})


@pytest.mark.parametrize("kind", ["orbax", "hf", "fairseq", "tf", "keras", "torch"])
def test_killed_machine_is_replaced_by_one_that_resumes(lab: AgentLab, kind: str) -> None:
    """The next machine has an empty disk; its framework picks the committed step by its own rule."""
    first = machine(lab, kind, _KILL_AT=35).start()
    first.until_committed(20)
    first.kill_all()
    committed = max(int(name.split("/")[1]) for name in lab.manifests())

    second = machine(lab, kind, "m1", INCARNATION=2).run_to_end()

    heartbeat = second.heartbeat()
    assert (heartbeat["phase"], heartbeat["resumed_from"], heartbeat["committed_step"]) == (
        "done",
        committed,
        60,
    )
    log = lab.log(incarnation=2)
    assert f"begin after {committed}, resume argument '{second.root}/checkpoints/" in log
    assert "--- checkpoint: $TPUCTL_CHECKPOINT_DIR" in log


def test_torn_save_and_torn_alias_do_not_become_a_crash_loop(lab: AgentLab) -> None:
    """A kill during fairseq's copy: the next start on the same disk finds the alias repaired."""
    first = machine(lab, "fairseq", _KILL_AT=35).start()
    first.until_committed(20)
    # It waits there once; the second start on this disk must not.
    first.until((first.root / "stopped").exists, "the job waits at step 35")
    first.kill_all()
    saves = first.root / "checkpoints"
    last = saves / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:3000])
    (saves / "checkpoint_1_59.pt").write_bytes(trees.files("fairseq", 59)[0][1][:-5])

    first.run_to_end()

    log = lab.log()
    assert "cannot be read" not in log
    assert "checkpoint_last.pt was made from" in log
    assert "checkpoint_1_59.pt is torn" in log
    aside = {path.name.rsplit("-", 1)[0] for path in (first.root / "quarantine").iterdir()}
    assert aside == {"torn-checkpoint_last.pt", "torn-checkpoint_1_59.pt"}
    assert len(lab.attempts()) == 2, [one["reason"] for one in lab.attempts()]


def test_status_zero_of_the_trainer_is_done_only_at_its_last_step(lab: AgentLab) -> None:
    """Without a target in the file, max_steps decides: a stop at 40 goes on, the end at 60 is the end."""
    one = machine(lab, "hf", TARGET_STEPS="", _STOP_AT=40, FAILURES=2).run_to_end()

    attempts = lab.attempts()
    assert [(one["resume_step"], one["failures"]) for one in attempts] == [(None, 0), (40, 0)]
    assert "uses for an early stop too; its work is saved" in attempts[1]["reason"]
    heartbeat = one.heartbeat()
    assert (heartbeat["phase"], heartbeat["committed_step"]) == ("done", 60)


def test_a_program_that_ends_at_its_own_number_of_steps_takes_no_checkpoint_from_the_choice(
    lab: AgentLab,
) -> None:
    """With a higher target it has nothing to do: its status 0 says nothing against the newest checkpoint."""
    machine(lab, "torch").run_to_end()
    trained = lab.manifests()

    second = machine(lab, "torch", "m1", INCARNATION=2, TARGET_STEPS=90, FAILURES=3).run_to_end()

    assert [one["resume_step"] for one in lab.attempts(2)] == [60, 60, 60]
    assert lab.manifests() == trained
    assert second.heartbeat()["message"] == (
        "3 attempts in a row without progress; the last: the job exited with status 0 without a new step, "
        "before the target 90: is its own number of steps lower?"
    )


@pytest.mark.parametrize("line", ["NameError: name 'grads' is not defined", "SyntaxError: invalid syntax"])
def test_an_error_of_the_code_itself_takes_no_checkpoint_from_the_choice(line: str) -> None:
    """Another error of Python may come from what the program has loaded."""
    newest, last = CompleteCheckpoint(40, 2), Attempt(3, 40, 2, 1, "r", 0, code=1, same=1)
    wanted = next_attempt(last, newest, "r", 0, counted=True, code=1)
    assert not should_go_back(last, replace(wanted, ended_line=line), newest)
    assert should_go_back(last, replace(wanted, ended_line="KeyError: 'optimizer'"), newest)


def test_a_step_that_was_trained_again_is_no_suspect_twice() -> None:
    """What crashes after it from both of its saves does not come from either of them."""
    last = Attempt(4, 40, 2, 4, "r", 0, code=3, same=1, suspects=((40, 1),))
    newest = CompleteCheckpoint(40, 2)
    wanted = next_attempt(last, newest, "r", 0, counted=True, code=3)
    assert wanted.same == ALIKE
    assert not should_go_back(last, wanted, newest)
    assert should_go_back(replace(last, suspects=()), replace(wanted, suspects=()), newest)


def test_checkpoint_that_kills_every_start_is_set_aside_and_the_one_before_taken(lab: AgentLab) -> None:
    """Two attempts from step 40 that end alike: the third goes back to an older one, and trains through."""
    one = machine(lab, "torch", _STOP_AT=42, _STOP_CODE=3, _EACH_COMMITTED=1, _POISON="40", FAILURES=5)
    one.run_to_end()

    steps = [one["resume_step"] for one in lab.attempts()]
    assert steps[:4] == [None, 40, 40, 30]
    assert lab.attempts()[3]["suspects"] == [[40, 1]]
    assert "2 attempts from step 40 ended alike" in lab.attempts()[3]["reason"]
    assert one.heartbeat()["committed_step"] == 60


def test_a_job_that_saves_to_the_bucket_is_given_the_one_before(lab: AgentLab) -> None:
    """What it wrote there stays as it is; only TPUCTL_RESUME changes, and progress ends the going back."""
    for step in (20, 30, 40):
        lab.put(f"checkpoints/{step}/default/array", b"x")
        lab.put(f"checkpoints/{step}/commit_success.txt", b"ok")
    before = lab.names("checkpoints/")
    go = lab.folder / "go"
    wait = f"until [ -e {go} ]; do sleep 0.02; done"
    command = f'echo "from ${{TPUCTL_RESUME##*/}}"; [ $TPUCTL_RESUME_STEP = 30 ] || exit 9; {wait}'
    one = lab.machine(
        CHECKPOINT_FORMAT="orbax", CHECKPOINT_DIR="gs://lab-bucket/checkpoints", COMMAND=command, FAILURES=4
    ).start()
    one.until(lambda: one.status().get("resumed_from") == 30 and one.status()["phase"] == "run", "30 again")
    status = one.status()
    go.touch()
    assert one.wait() == 0

    assert [one["resume_step"] for one in lab.attempts()] == [40, 40, 30]
    reported = status["aside_message"]
    assert reported.startswith(
        "step 40 is set aside, not deleted: 2 attempts in a row from it failed alike. "
    )
    assert (status["failure_line"], status["ended_failures"]) == ("from 40", 2)
    assert (status["ended_message"], status["attempt_message"]) == (
        "the job exited with status 9: from 40",
        "",
    )
    assert "finds step 40 in gs://lab-bucket/checkpoints all the same" in reported
    assert (one.heartbeat()["phase"], one.heartbeat()["committed_step"]) == ("done", 30)
    assert "from 40\n" in lab.log()
    assert "from 30\n" in lab.log()
    assert lab.names("checkpoints/") == before


def test_going_back_in_the_bucket_that_does_not_help_is_given_up(lab: AgentLab) -> None:
    """A job that always fails is tried from two older ones, and nothing in its folder is touched."""
    for step in (10, 20, 30, 40):
        lab.put(f"checkpoints/{step}/default/array", b"x")
        lab.put(f"checkpoints/{step}/commit_success.txt", b"ok")
    before = lab.names("checkpoints/")
    one = lab.machine(
        CHECKPOINT_FORMAT="orbax", CHECKPOINT_DIR="gs://lab-bucket/checkpoints", COMMAND="exit 9", FAILURES=6
    ).run_to_end()

    assert [one["resume_step"] for one in lab.attempts()] == [40, 40, 30, 30, 20, 20]
    assert one.heartbeat()["phase"] == "failed"
    assert one.heartbeat()["message"].startswith(
        "6 attempts in a row without progress, also from an older checkpoint; the last: the job exited"
    )
    assert lab.names("checkpoints/") == before


@pytest.mark.parametrize("kind", ["orbax", "hf", "fairseq", "tf", "keras"])
def test_a_newest_save_that_kills_the_next_machine(lab: AgentLab, kind: str) -> None:
    """Only the newest one was restored; when the framework cannot go on from it, the one before comes."""
    first = machine(lab, kind, _KILL_AT=45, CHECKPOINT_KEEP=4).start()
    first.until_committed(40)
    first.kill_all()
    before, newest = sorted(int(name.split("/")[1]) for name in lab.manifests())[-2:]

    second = machine(lab, kind, "m1", INCARNATION=2, _POISON=str(newest), CHECKPOINT_KEEP=4).run_to_end()

    assert [one["resume_step"] for one in lab.attempts(2)] == [newest, newest, before]
    assert (second.heartbeat()["phase"], second.heartbeat()["committed_step"]) == ("done", 60)
    assert [name for name in lab.names("checkpoints/") if name.endswith(".suspect")]


def test_checkpoints_come_back_when_going_back_did_not_help(lab: AgentLab) -> None:
    """A script that always fails is not the fault of its checkpoints: none is lost to the choice."""
    machine(lab, "torch", _STOP_AT=42, _EACH_COMMITTED=1, _STOP_CODE=3, CHECKPOINT_KEEP=4).start()
    lab.machines[0].until_committed(40)
    lab.machines[0].kill_all()
    before = lab.manifests()

    second = machine(lab, "torch", "m1", INCARNATION=2, COMMAND="exit 5", FAILURES=4).run_to_end()

    assert second.heartbeat()["phase"] == "failed"
    assert second.heartbeat()["message"] == (
        "4 attempts in a row without progress, also from an older checkpoint; the last: the job exited with "
        "status 5"
    )
    assert second.heartbeat()["aside_message"] == ""
    assert [one["resume_step"] for one in lab.attempts(2)] == [40, 40, 30, 30]
    assert lab.manifests() == before
    assert not [name for name in lab.names("checkpoints/") if name.endswith(".suspect")]


def test_each_checkpoint_is_reported_with_its_own_time_and_in_the_end_the_newest(lab: AgentLab) -> None:
    """An attempt from an older one does not name the newest one's time; the next start is from the newest."""
    go = lab.folder / "go"
    wait = f"[ $TPUCTL_RESUME_STEP = 40 ] || until [ -e {go} ]; do sleep 0.02; done; exit 5"
    command = f'if [ -n "$TPUCTL_RESUME_STEP" ]; then {wait}; fi; exec {sys.executable} train.py'
    stops = {"_STOP_AT": 42, "_STOP_CODE": 3, "_EACH_COMMITTED": 1}
    one = machine(lab, "torch", COMMAND=command, CHECKPOINT_KEEP=4, FAILURES=4, **stops).start()
    one.until(
        lambda: one.status().get("resumed_from") == 30 and one.status()["phase"] == "run", "an older one"
    )
    older = one.status()
    go.touch()
    one.wait()

    end = one.heartbeat()
    assert (older["committed_step"], end["committed_step"], end["phase"]) == (30, 40, "failed")
    assert older["timings"]["first_step"] < older["committed_at"] < end["committed_at"]


def test_between_two_attempts_the_job_is_not_said_to_run(lab: AgentLab) -> None:
    """The pause grows with each failure, and what comes next is the checkpoint."""
    one = machine(lab, "torch", COMMAND="exit 5", FAILURES=9).start()
    phases: list[str] = []

    def failed() -> list[str]:
        status = one.status()
        phases.extend([status["phase"]] if "exited with status 5" in status.get("message", "") else [])
        return phases

    one.until(failed, "the failure in the report")
    assert phases == ["restore"]


def test_busy_device_is_not_the_job_s_failure(lab: AgentLab) -> None:
    """What libtpu prints when somebody holds the chips is excused, more often than failures are allowed."""
    command = (
        'echo x >> ../../tries; if [ "$(wc -l < ../../tries)" -lt 4 ]; then '
        'echo "RuntimeError: The TPU is already in use by process with pid 7"; exit 1; fi; '
        f"exec {sys.executable} train.py"
    )
    one = machine(lab, "torch", COMMAND=command, FAILURES=2).run_to_end()

    assert one.heartbeat()["phase"] == "done"
    assert [(one["failures"], one["excused"]) for one in lab.attempts()] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert "the machine's fault: 'already in use by process'" in lab.attempts()[1]["reason"]


@pytest.mark.parametrize(
    ("kind", "code", "target", "committed", "expected"),
    [
        ("hf", 0, None, 40, JobOutcomeKind.STOPPED),
        ("hf", 0, 60, 40, JobOutcomeKind.STOPPED),
        ("hf", 0, 60, 60, JobOutcomeKind.DONE),
        ("hf", 1, None, 40, JobOutcomeKind.FAILED),
        ("tf", 42, 60, 40, JobOutcomeKind.STOPPED),
        ("tf", 42, 60, 60, JobOutcomeKind.DONE),
        ("torch", 1, 60, 40, JobOutcomeKind.STOPPED),
        ("torch", -15, 60, 40, JobOutcomeKind.FAILED),
        ("fairseq", 0, None, 40, JobOutcomeKind.DONE),
        ("fairseq", 0, 60, 40, JobOutcomeKind.FAILED),
    ],
)
def test_each_framework_s_statuses(
    kind: str, code: int, target: int | None, committed: int, expected: JobOutcomeKind
) -> None:
    """HF says 0 on preemption, TensorFlow's handler 42, torchrun 1; none of them alone is done."""
    assert outcome_of(code, target, None, committed, format_of(kind, "")).kind is expected


def test_a_stop_in_good_order_is_believed_when_something_was_saved() -> None:
    """Status 1 of torchrun is a crash as well as a stop: only a new checkpoint tells them apart."""
    stopped = outcome_of(1, 60, None, 40, format_of("torch", ""))
    assert settle(stopped, committed=40, saved=True, output=b"").kind is JobOutcomeKind.EXCUSED
    assert settle(stopped, committed=40, saved=False, output=b"").kind is JobOutcomeKind.FAILED


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"The TPU is already in use by process with pid 1\n", JobOutcomeKind.EXCUSED),
        (b"open /dev/vfio/0: Device or resource busy\n", JobOutcomeKind.EXCUSED),
        (b"Couldn't open iommu group /dev/vfio/0\n", JobOutcomeKind.EXCUSED),
        (b"INTERNAL: No accelerator found.\n", JobOutcomeKind.EXCUSED),
        (b"/dev/vfio/0 opened\nbusy\n", JobOutcomeKind.FAILED),
        (b"ValueError: shapes\n", JobOutcomeKind.FAILED),
    ],
)
def test_signatures_of_a_busy_device(output: bytes, expected: JobOutcomeKind) -> None:
    """The words stand in one line of the job's last output."""
    failed = JobOutcome(JobOutcomeKind.FAILED, "the job exited with status 1", 1)
    assert settle(failed, committed=None, saved=False, output=output).kind is expected


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (
            1,
            b"Traceback:\nModuleNotFoundError: No module named 'numpy'\n\n",
            "r: ModuleNotFoundError: No module named 'numpy'",
        ),
        (1, b"a\x1b[31mred\x07\n--- a line of the agent ---\n", "r: a[31mred"),
        (1, b"x" * 500, "r: " + "x" * 300 + "..."),
        (1, b" \n", "r"),
        (-9, b"step 7\n", "r"),
        (137, b"step 7\n", "r"),
    ],
)
def test_a_failure_names_the_last_line(code: int, output: bytes, reason: str) -> None:
    """Without the log one knows why; of a job that a signal ended, the last line says nothing."""
    failed = JobOutcome(JobOutcomeKind.FAILED, "r", code)
    assert settle(failed, committed=None, saved=False, output=output).message == reason


def test_excuses_are_bounded() -> None:
    """A machine that never gets well counts as failed in the end."""
    at = Attempt(1, 40, 1, 0, "r", 0)
    for _ in range(EXCUSES):
        at = next_attempt(at, CompleteCheckpoint(40, 1), "r", 0, counted=True, excused=True, code=1)
        assert at.failures == 0
    assert (
        next_attempt(at, CompleteCheckpoint(40, 1), "r", 0, counted=True, excused=True, code=1).failures == 1
    )


def test_a_suspect_that_is_made_once_more_is_no_progress() -> None:
    """Else a job that always dies after step 40 would go back to 30 and on to 40 for ever."""
    back = Attempt(4, 30, 1, 2, "r", 0, suspects=((40, 1),))
    again = next_attempt(back, CompleteCheckpoint(40, 1), "r", 0, counted=True, code=3)
    assert (again.resume_step, again.failures, again.suspects) == (40, 3, ((40, 1),))
    beyond = next_attempt(again, CompleteCheckpoint(50, 1), "r", 0, counted=True, code=3)
    assert (beyond.failures, beyond.suspects) == (0, ())


def test_only_ends_alike_count_for_going_back() -> None:
    """Another status starts the count again."""
    at = Attempt(1, 40, 1, 0, "r", 0)
    for code, same in ((5, 1), (5, ALIKE), (6, 1), (6, 2)):
        at = next_attempt(at, CompleteCheckpoint(40, 1), "r", 0, counted=True, code=code)
        assert at.same == same


def test_a_step_of_another_life_on_this_disk_is_no_progress(lab: AgentLab) -> None:
    """A whole save that the bucket never got is moved aside, and does not let status 0 pass for done."""
    one = machine(lab, "torch", COMMAND="exit 0", FAILURES=1)
    trees.save(one.root / "checkpoints", "torch", 99)

    one.run_to_end()

    assert one.heartbeat()["phase"] == "uncommitted"
    assert "told no step that can prove the target 60" in one.heartbeat()["message"]
    assert one.heartbeat()["uncommitted_place"] == "quarantine"
    assert [path.name.rsplit("-", 1)[0] for path in (one.root / "quarantine").iterdir()] == ["step_000099.pt"]


def test_the_number_of_attempts_is_stored_under_its_older_key(tmp_path: Path) -> None:
    """An agent of before may start after one of today, and reads the same file."""
    layout = Layout(tmp_path)
    layout.make()
    stored = attempt_record.save(layout, attempt_record.AttemptRecord(), attempts=3)
    assert json.loads(layout.job.read_text())["starts"] == 3
    assert attempt_record.load(layout) == stored
