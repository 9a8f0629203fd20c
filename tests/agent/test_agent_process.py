"""The agent as a real process: from a fresh start to done, through every kind of end."""

import json
import signal
import subprocess
import sys
from typing import Any

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.emulator.http.router import Request
from orchestrator.scripts import agent_zipapp
from orchestrator.scripts.agent_zipapp import build
from tests.agent.agent_lab import AgentLab, is_alive


def test_fresh_run_ends_done_with_every_checkpoint_committed(lab: AgentLab) -> None:
    """A fresh machine fetches the bundle, trains, commits, reports done and holds cron back."""
    machine = lab.machine(TARGET_STEPS=40).run_to_end()

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["committed_step"], heartbeat["step"], heartbeat["failures"]) == (
        "done",
        40,
        40,
        0,
    )
    assert lab.manifests()[-1] == "checkpoints/00000040/g1/w0.manifest.json"
    assert (machine.root / "state" / "stop").read_text().startswith("step 40 is saved in the bucket")
    assert (machine.root / "current").resolve().name == lab.code
    assert "attempt 1: start from the beginning" in lab.log()
    assert "trained" in lab.log()
    assert machine.job_processes() == []
    assert not (machine.root / "state" / "agent.pid").exists()


def test_the_log_of_a_job_that_trains_past_its_target_says_how_long_it_may(lab: AgentLab) -> None:
    """Its grace counts from the save of the target; what it saves until then is kept."""
    changes = {"TARGET_STEPS": 20, "GRACE_SECONDS": 1, "_STEPS": 100000}
    machine = lab.machine(**changes).run_to_end()
    heartbeat = machine.heartbeat()
    assert heartbeat["phase"] == "done"
    assert heartbeat["committed_step"] >= 20
    assert "is saved in the bucket, the target is 20: the job has 1 s to end by itself" in lab.log()


def test_a_job_that_saves_less_than_it_trained_reports_what_its_model_lacks(lab: AgentLab) -> None:
    """Its target is reached, so it is done; what it has not saved nobody can have."""
    message = lab.machine(_STEPS=25, TARGET_STEPS=25, _NO_LAST_SAVE=1).run_to_end().heartbeat()["message"]
    unsaved = "the program saved none of its last 5 steps: the model is step 20"
    assert message == f"step 25 is reached, the target is 25; {unsaved}"


def test_heartbeat_has_exactly_the_fields_of_the_engine(lab: AgentLab) -> None:
    """
    The heartbeat object holds the engine's fields, plus three of the agent's.

    The bucket tells when it was updated, the startup script alone that the report is its own.
    """
    heartbeat = lab.machine().run_to_end().heartbeat()

    names = set(Heartbeat.__dataclass_fields__) - {"updated", "script"}
    assert set(heartbeat) == names | {"at", "deployment", "schema"}
    assert Phase(heartbeat["phase"]) is Phase.DONE
    times = {"boot", "restore_began", "unpack_began", "fetched", "restored", "spawned", "first_step"}
    assert set(heartbeat["timings"]) == times


def test_built_zipapp_runs_alike(lab: AgentLab) -> None:
    """The zipapp needs nothing of the package, and is the same each time it is built."""
    first, second = lab.folder / "agent.pyz", lab.folder / "again.pyz"
    digest = build(first)
    agent_zipapp._archive.cache_clear()
    assert build(second) == digest
    machine = lab.machine()
    del machine.env["PYTHONPATH"]

    assert machine.start([sys.executable, str(first), "run"]).wait() == 0, machine.agent_log()

    assert machine.heartbeat()["phase"] == "done"


def test_a_process_builds_one_agent_although_its_package_is_upgraded(tmp_path, monkeypatch):
    """A loop of the version before goes on with the agent that it knows, and never with half of a new one."""
    before = build(tmp_path / "before.pyz")
    monkeypatch.setattr(agent_zipapp, "PACKAGE", tmp_path)
    assert build(tmp_path / "after.pyz") == before


def test_done_job_is_not_started_again(lab: AgentLab) -> None:
    """Cron's next start finds the hold; without it (a reboot removes it), the record says done again."""
    machine = lab.machine().run_to_end()
    writes = len(lab.writes)
    machine.run_to_end()
    assert len(lab.writes) == writes

    (machine.root / "state" / "stop").unlink()
    machine.run_to_end()

    assert machine.heartbeat()["phase"] == "done"
    assert len(lab.attempts()) == 1


def test_killed_machine_resumes_from_the_committed_step(lab: AgentLab) -> None:
    """After SIGKILL of agent and job, a new machine of the next incarnation resumes where the bucket says."""
    first = lab.machine("m0", _STEP_SECONDS=0.03, _STEPS=60, TARGET_STEPS=60).start()
    first.until_committed(20)
    first.kill_all()
    committed = max(int(name.split("/")[1]) for name in lab.manifests())

    second = lab.machine("m1", INCARNATION=2, _STEPS=60, TARGET_STEPS=60).run_to_end()

    heartbeat = second.heartbeat()
    assert (heartbeat["phase"], heartbeat["resumed_from"], heartbeat["attempt"]) == ("done", committed, 1)
    assert f"begin after {committed}, asked for {committed}" in lab.log(incarnation=2)
    assert f"resume from step {committed} (the checkpoint is complete)" in lab.log(incarnation=2)
    assert "checkpoint: $TPUCTL_CHECKPOINT_DIR/" in lab.log(incarnation=2)


def test_killed_agent_is_followed_by_one_that_kills_its_job_first(lab: AgentLab) -> None:
    """A job that outlives its agent is gone before the next agent starts another; the gap counts as an attempt."""
    machine = lab.machine(
        _STEP_SECONDS=0.03, _STEPS=60, COMMAND=f"trap '' PIPE; {sys.executable} train.py | cat"
    )
    machine.start().until_committed(10)
    # A commit is in the bucket before the report that tells of it.
    machine.until(lambda: (machine.heartbeat().get("step") or 0) >= 10, "the step is reported")
    orphans = machine.job_processes()
    assert machine.process is not None
    machine.process.kill()
    machine.process.wait()

    machine.run_to_end()

    assert not [pid for pid in orphans if is_alive(pid)]
    assert [one["attempt"] for one in lab.attempts()] == [1, 2]
    assert "the agent was killed" in lab.attempts()[1]["reason"]
    heartbeat = machine.heartbeat()
    assert heartbeat["attempts"] == 2
    assert heartbeat["ended_message"] == "the agent was killed"
    # The report of an agent that is new, as after a push, still says when the job trained before.
    ((attempt, began, until, start, reached),) = heartbeat["trained"]
    assert (attempt, start) == (1, 0)
    assert reached >= 10
    assert began < until < heartbeat["timings"]["spawned"]
    # As well as the times of its first start, by which a recovery is measured.
    assert heartbeat["first_timings"]["first_step"] == began
    assert set(heartbeat["first_timings"]) == set(heartbeat["timings"])


def test_sigterm_leads_to_a_last_commit(lab: AgentLab) -> None:
    """SIGTERM to the agent reaches the job, whose last save is committed before the agent leaves."""
    machine = lab.machine(_STEP_SECONDS=0.03, _STEPS=400, _SAVE_EVERY=1000).start()
    machine.until(lambda: (machine.heartbeat().get("step") or 0) > 3, "a step")
    assert machine.process is not None
    machine.process.send_signal(signal.SIGTERM)
    assert machine.wait() == 0

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["notice"], heartbeat["exit_code"], heartbeat["failures"]) == (
        "stopped",
        True,
        143,
        0,
    )
    assert not heartbeat["preempted"], "a signal alone may be a reboot"
    assert heartbeat["committed_step"] == heartbeat["step"] > 3
    assert (machine.root / "state" / "stop").exists()
    assert "saved on request" in lab.log()


def test_a_preemption_notice_of_the_metadata_server_is_observed_at_once(lab: AgentLab) -> None:
    """The long-poll of instance/preempted ends the job with a last commit."""
    machine = lab.machine(_STEP_SECONDS=0.03, _STEPS=40000, _SAVE_EVERY=100000).start()
    machine.until(lambda: (machine.heartbeat().get("step") or 0) > 3, "a step")
    lab.metadata.preempted.set()
    assert machine.wait() == 0

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["notice"], heartbeat["preempted"]) == ("stopped", True, True)
    assert heartbeat["committed_step"] == heartbeat["step"]
    assert lab.json(".tpuctl/wake/1")["phase"] == "stopped", "the last call, when all is saved"
    last = {write: number for number, write in enumerate(lab.writes)}
    logs = max(number for write, number in last.items() if write.startswith("POST logs/"))
    assert last["POST .tpuctl/wake/1"] > logs, "whoever is called may take the machine away at once"


def test_stop_command_leaves_no_hold_and_the_next_start_goes_on(lab: AgentLab) -> None:
    """`stop` ends the job with a commit; a new start makes a new attempt with no failure counted."""
    machine = lab.machine(_STEP_SECONDS=0.03, _STEPS=100_000).start()
    machine.until_committed(10)
    assert subprocess.run(machine.command("stop"), env=machine.env, check=False).returncode == 0
    assert machine.wait() == 0
    stopped = machine.heartbeat()
    assert (stopped["phase"], stopped["notice"]) == ("stopped", False)
    assert not (machine.root / "state" / "stop").exists()

    machine = lab.machine(_STEPS=stopped["committed_step"] + 10).run_to_end()

    assert machine.heartbeat()["resumed_from"] == stopped["committed_step"]
    assert [one["failures"] for one in lab.attempts()] == [0, 0]


def test_crash_with_progress_does_not_count(lab: AgentLab) -> None:
    """A job that crashes after each save comes back more often than the allowed failures, and ends done."""
    machine = lab.machine(_CRASH_AT="10,20,30", _CRASHES=3, FAILURES=2).run_to_end()

    assert machine.heartbeat()["phase"] == "done"
    assert [one["failures"] for one in lab.attempts()] == [0, 0, 0, 0]
    assert [one["resume_step"] for one in lab.attempts()] == [None, 10, 20, 30]


def test_crash_without_progress_gives_up_after_n(lab: AgentLab) -> None:
    """A job that always crashes at the same step ends failed, with a verdict that says why."""
    machine = lab.machine(_CRASH_AT="5", FAILURES=3).run_to_end()

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["exit_code"]) == ("failed", 7)
    assert [one["failures"] for one in lab.attempts()] == [0, 1, 2]
    assert lab.json(".tpuctl/gang/1/verdict.json")["reason"] in heartbeat["message"]
    assert "the job exited with status 7" in heartbeat["message"]
    assert (machine.root / "state" / "stop").exists()


def test_the_last_failure_stays_in_the_report_until_there_is_progress(lab: AgentLab) -> None:
    """While the next attempt runs, which looks like any other; a new checkpoint ends it."""
    reports: list[dict[str, Any]] = []

    def record(request: Request) -> None:
        """Keep each heartbeat that is written."""
        if ".tpuctl/heartbeat/" in request.query.get("name", "") and request.method == "POST":
            reports.append(json.loads(request.body))

    lab.fault = record
    # Slow enough that a report is written between its first new checkpoint and its end.
    lab.machine(_CRASH_AT="5", _CRASHES=2, _STEP_SECONDS=0.08, TARGET_STEPS=40, FAILURES=5).run_to_end()
    runs = [
        (one["failures"], one["failure_message"])
        for one in reports
        if (one["phase"], one["attempt"]) == ("run", 3)
    ]

    assert runs[0] == (2, "the job exited with status 7: step 5")
    assert runs[-1] == (0, "")


def test_status_zero_before_the_target_is_not_done(lab: AgentLab) -> None:
    """Where a target is declared, an exit status of 0 proves nothing."""
    command = "mkdir -p $TPUCTL_CHECKPOINT_DIR/step-1; touch $TPUCTL_CHECKPOINT_DIR/step-1/COMPLETE"
    machine = lab.machine(COMMAND=command, TARGET_STEPS=40, FAILURES=2).run_to_end()

    assert machine.heartbeat()["phase"] == "failed"
    assert "before the target 40" in machine.heartbeat()["message"]


def test_setup_runs_once_for_a_bundle(lab: AgentLab) -> None:
    """The setup command runs before the first start only, and its output is in the job's log."""
    machine = lab.machine(
        SETUP="echo setting up | tee -a ../../setups", _CRASH_AT="10", _CRASHES=1
    ).run_to_end()

    assert (machine.root / "setups").read_text() == "setting up\n"
    assert lab.log().count("setting up\n") == 1
    assert len(lab.attempts()) == 2


def test_a_changed_setup_runs_once_more(lab: AgentLab) -> None:
    """A push of settings only: the job would miss what the new setup installs."""
    machine = lab.machine(_STEPS=100000)
    for setup in ("one", "one", "two", "one"):
        machine.env["TPUCTL_SETUP"] = f"echo {setup} >> ../../setups"
        attempts = len(lab.attempts())
        machine.start().until(
            lambda before=attempts: len(lab.attempts()) > before and machine.status().get("phase") == "run",
            "the next attempt",
        )
        machine.process.send_signal(signal.SIGUSR1)
        machine.wait()

    assert (machine.root / "setups").read_text().split() == ["one", "two", "one"]
    assert [one["reason"].split(";")[0] for one in lab.attempts()][1:] == ["new settings were installed"] * 3


def test_failing_setup_is_a_failed_attempt(lab: AgentLab) -> None:
    """A setup that fails is retried within the allowed failures, and named in the verdict."""
    setup = "echo there is no such package; exit 3"
    heartbeat = lab.machine(SETUP=setup, FAILURES=2).run_to_end().heartbeat()

    assert heartbeat["phase"] == "failed"
    assert "the setup command exited with status 3: there is no such package" in heartbeat["message"]


def test_stalled_job_is_restarted_as_a_failure(lab: AgentLab) -> None:
    """A job that prints, steps and saves nothing is ended and started again."""
    command = (
        f"if [ -e ../../once ]; then exec {sys.executable} train.py; fi; touch ../../once; exec sleep 100"
    )
    machine = lab.machine(COMMAND=command, STALL_SECONDS=1).run_to_end()

    assert machine.heartbeat()["phase"] == "done"
    assert "stalled" in lab.attempts()[1]["reason"]
    assert lab.attempts()[1]["failures"] == 1


def test_detached_children_do_not_outlive_the_job(lab: AgentLab) -> None:
    """A grandchild with a session of its own is gone before the next start."""
    command = (
        "if grep -q '^State:.[^ZX]' /proc/$(cat ../../pid)/status; then echo BESIDE; fi; "
        "setsid sleep 300 & echo $! > ../../pid; exit 1"
    )
    machine = lab.machine(COMMAND=command, FAILURES=2).run_to_end()

    assert not is_alive(int((machine.root / "pid").read_text()))
    assert machine.heartbeat()["attempts"] == 2
    assert "BESIDE" not in lab.log()


def test_wrong_job_env_names_every_key(lab: AgentLab) -> None:
    """A wrong job.env starts nothing and names all that is wrong at once."""
    machine = lab.machine(INCARNATION="one", COMMAND="")

    assert machine.start().wait() == 2
    assert "TPUCTL_INCARNATION is 'one'" in machine.agent_log()
    assert "TPUCTL_COMMAND is missing" in machine.agent_log()
    assert not (machine.root / "state").exists()
