"""A machine boots with the rendered scripts: real bash, real cron line, real flock."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.ports import StoredObject
from orchestrator.engine.bucket.heartbeats import parse_heartbeat
from orchestrator.scripts.render import machine_scripts
from orchestrator.scripts.shipped import begin_script
from tests.kit.waiting import until
from tests.scripts.render_kit import AGENT, DIGEST, ScriptMachine, a_job_spec, a_target, cloud

__all__ = ["cloud"]


@pytest.fixture
def machine(tmp_path, cloud) -> ScriptMachine:
    """Offer a machine without anything on it."""
    return ScriptMachine(tmp_path, cloud)


def started_with(part: str) -> list[int]:
    """Return the processes whose command line contains *part*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if part.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def scratch() -> Iterator[list[str]]:
    """Offer a list of command lines whose processes are killed at the end."""
    parts: list[str] = []
    yield parts
    for pid in [pid for part in parts for pid in started_with(part)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_boot_prepares_the_machine_and_starts_the_job(machine, cloud):
    """One boot: files with their modes, the agent verified, the job started with all of its settings."""
    endpoints = "a:1:10.0.0.1,b:2:10.0.0.2,c:3:10.0.0.3"
    cloud.attributes = {"agent-worker-number": "2", "worker-network-endpoints": endpoints}
    hostile = "'; touch C #\n$(touch C)"
    done = machine.boot(machine_scripts(a_job_spec(env={"X": hostile}, command=hostile), a_target()))
    assert (done.returncode, done.stderr) == (0, "")
    observed = machine.ran()
    facts = [
        observed[key] for key in ("WORKER_ID", "TPUCTL_WORKER_ID", "TPUCTL_WORKERS", "TPUCTL_WORKER_HOSTS")
    ]
    assert facts == ["2", "2", "3", "10.0.0.1,10.0.0.2,10.0.0.3"]
    assert observed["X"] == observed["TPUCTL_COMMAND"] == hostile
    assert (observed["TPUCTL_ROOT"], observed["TPUCTL_CHECKPOINT_DIR"]) == (
        str(machine.root),
        f"{machine.root}/checkpoints",
    )
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in machine.root.iterdir() if path.is_file()}
    assert [modes[name] for name in ("job.env", "run-job", "start-job")] == ["0o600", "0o700", "0o700"]
    assert machine.status()["phase"] == "boot"
    assert not list(machine.folder.rglob("C"))
    assert not list(machine.folder.rglob("*.new"))


REPORT = ".tpuctl/heartbeat/3/2"


def test_the_first_act_of_a_boot_is_a_report(machine, cloud):
    """It is there though nothing else works: no agent, no folder for cron; and it reads as a report does."""
    cloud.attributes = {"agent-worker-number": "2", "worker-network-endpoints": "a:1:1,b:2:2,c:3:3"}
    cloud.objects = {}
    machine.cron.write_text("a file where a folder should be")
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 1
    until(lambda: REPORT in cloud.written, "the first report", 90)
    heartbeat = parse_heartbeat(StoredObject(REPORT, 1, 1, 5.0, cloud.written[REPORT]))
    assert (heartbeat.phase, heartbeat.script, heartbeat.bundle) == (Phase.BOOT, True, "")
    assert (heartbeat.incarnation, heartbeat.worker, heartbeat.workers) == (3, 2, 3)


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_boot_goes_on_while_its_first_report_is_refused(machine, cloud, status):
    """A role that does not count yet, a bucket that is not there yet: it is written as soon as it can be."""
    cloud.refuses = status
    done = machine.boot(machine_scripts(a_job_spec(), a_target()))
    assert (done.returncode, done.stderr) == (0, "")
    machine.ran()
    assert not cloud.written
    cloud.refuses = 0
    until(lambda: bool(cloud.written), "the first report", 90)


def test_a_later_boot_leaves_the_last_report_alone(machine, cloud):
    """That of the agent says where the job was; a machine that lost its disk learns its past from it."""
    cloud.written[".tpuctl/heartbeat/3/0"] = b"the agent's"
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    until(lambda: not started_with("first_heartbeat\0bucket"), "the end of the first report", 90)
    assert cloud.written == {".tpuctl/heartbeat/3/0": b"the agent's"}


def test_a_machine_without_the_job_reports_nothing(machine, cloud):
    """Nor does the VM: nobody waits for it."""
    for target in (a_target(runs_job=False), a_target(role="vm")):
        assert "first_heartbeat '" not in machine_scripts(a_job_spec(), target).startup


def test_cron_gets_the_same_environment(machine):
    """The crontab line alone, in cron's bare environment, runs the job with what the boot knew."""
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    machine.ran()
    line = (machine.cron / "tpuctl").read_text().splitlines()[-1]
    assert line.startswith("* * * * * root flock -n -E 75 ")
    command = line.split("root ", 1)[1].replace("\\%", "%")
    bare = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    subprocess.run(["/bin/sh", "-c", command], env=bare, cwd="/", check=True)
    observed = machine.ran()
    boots = {"UNRELATED", "TPUCTL_FETCH_SECONDS", "TPUCTL_APT_DIR", "TPUCTL_HAS_CRON"}
    retained = {key: machine.environment[key] for key in machine.environment.keys() - boots}
    assert {key: observed.get(key) for key in retained} == retained
    assert "UNRELATED" not in observed


def test_where_there_is_no_cron_a_process_of_ours_starts_the_job_again(machine, scratch):
    """Each minute, with cron's bare environment; one process, however often the startup script runs."""
    scripts = machine_scripts(a_job_spec(), a_target())
    without = {"TPUCTL_HAS_CRON": "no", "TPUCTL_CRON_MINUTE": "0.1"}
    for _ in range(2):
        done = machine.boot(scripts, **without)
        assert (done.returncode, done.stderr) == (0, "")
    machine.ran()
    scratch.append(f"{machine.root}/minute")
    for _ in range(2):
        observed = machine.ran()  # nobody else starts it
    assert (observed["TPUCTL_INCARNATION"], "UNRELATED" in observed) == ("3", False)
    # The loop and the flock that holds its lock; the second boot's own flock may still be leaving.
    until(lambda: len(started_with(f"{machine.root}/minute\0run")) == 2, "one loop and its flock", 90)


def test_with_cron_no_timer_of_ours_stands_beside_it(machine):
    """Nothing of ours stands beside it."""
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    machine.ran()
    assert not (machine.root / "minute").exists()


def test_apt_is_configured_to_wait_for_its_lock(machine):
    """Where there is an apt; a boot does not fail without it."""
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    assert not (machine.folder / "apt.conf.d").exists()
    (machine.folder / "apt.conf.d").mkdir()
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    assert (machine.folder / "apt.conf.d/90tpuctl").read_text() == 'DPkg::Lock::Timeout "600";\n'


@pytest.mark.parametrize("runs_job", [True, False])
def test_cron_asks_each_minute_whether_the_machine_is_to_delete_itself(machine, runs_job):
    """Also where the job does not run or was stopped; a machine without self-deletion has no such line."""
    target = a_target(self_delete_at=1_800_000_000.0, runs_job=runs_job)
    assert machine.boot(machine_scripts(a_job_spec(), target)).returncode == 0
    if runs_job:
        machine.ran()
    (machine.root / "state/stop").write_text("the job is done")
    line = (machine.cron / "tpuctl-self-delete").read_text().splitlines()[-1]
    assert line.startswith("* * * * * root flock -n -E 75 ")
    command = line.split("root ", 1)[1].replace("\\%", "%")
    subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, cwd="/", check=True)
    observed = machine.ran("self-delete")
    assert (observed["TPUCTL_SELF_DELETE_AT"], observed["TPUCTL_PROJECT"]) == ("1800000000", "proj")
    assert observed["GCE_METADATA_HOST"] == machine.environment["GCE_METADATA_HOST"]


def test_boot_is_repeatable_and_removes_the_stop_mark(machine):
    """A second boot with other settings replaces the first; a stop of the last life is forgotten."""
    machine.boot(machine_scripts(a_job_spec(env={"OLD": "1"}), a_target()))
    machine.ran()
    (machine.root / "state/stop").write_text("preempted")
    subprocess.run([machine.root / "run-job"], check=True)
    assert not (machine.root / "state/ran-run").exists(), "a stop mark keeps cron from starting the job"
    assert (
        machine.boot(machine_scripts(a_job_spec(env={"NEW": "1"}), a_target(incarnation=4))).returncode == 0
    )
    observed = machine.ran()
    assert ("OLD" in observed, observed["NEW"], observed["TPUCTL_INCARNATION"]) == (False, "1", "4")


def test_machine_without_the_job_starts_nothing(machine):
    """The controller VM is prepared, but neither boot nor start-job nor an old crontab runs the job."""
    machine.boot(machine_scripts(a_job_spec(), a_target()))
    machine.ran()
    assert machine.boot(machine_scripts(a_job_spec(), a_target(role="vm", runs_job=False))).returncode == 0
    assert machine.run([str(machine.root / "start-job")]).returncode == 0
    subprocess.run([machine.root / "run-job"], check=True)
    assert not (machine.cron / "tpuctl").exists()
    assert not (machine.cron / "tpuctl-self-delete").exists()
    assert not (machine.root / "state/ran-run").exists()
    assert (machine.root / "agent.pyz").read_bytes() == AGENT


def test_settings_that_came_over_ssh_win(machine):
    """A job on the VM waits for its TPU; job.env.local brings it and goes before what the boot wrote."""
    spec = a_job_spec(run_on="vm")
    assert machine.boot(machine_scripts(spec, a_target(role="vm"))).returncode == 0
    subprocess.run([machine.root / "run-job"], check=True)
    assert not (machine.root / "state/ran-run").exists()
    newer = machine_scripts(spec, a_target(role="vm", incarnation=7, tpu_address="10.0.0.9"))
    (machine.root / "job.env.local").write_text(newer.job_env)
    done = machine.run(["bash", "-c", begin_script(restart=False).bash(), "begin", str(machine.root)])
    assert (done.returncode, done.stderr) == (0, "")
    observed = machine.ran()
    assert (observed["TPUCTL_INCARNATION"], observed["XRT_TPU_CONFIG"]) == ("7", "tpu_worker;0;10.0.0.9:8470")
    assert observed["TPUCTL_ROOT"] == str(machine.root)


@pytest.mark.parametrize(
    ("log", "reported"), [("one\ntpuctl: boot failed: 403\n", "boot failed: 403"), (None, "nothing")]
)
def test_a_machine_that_is_not_prepared_says_why(machine, log, reported):
    """Who starts the job over SSH reads the end of the startup script's log, in one line."""
    if log:
        (machine.root / "log").mkdir(parents=True, exist_ok=True)
        (machine.root / "log/startup.log").write_text(log)
    at_once = "sleep() { :; }\n" + begin_script(restart=False).bash()
    done = machine.run(["bash", "-c", at_once, "begin", str(machine.root)])
    assert done.returncode == 75
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip().endswith(reported)


def test_boot_outlives_a_slow_cloud(machine, cloud):
    """Errors of the metadata server and of the bucket are retried."""
    cloud.failures = 3
    assert machine.boot(machine_scripts(a_job_spec(), a_target())).returncode == 0
    machine.ran()


def test_agent_may_come_by_another_way(machine, cloud):
    """When the bucket has no agent yet, one that appears on disk is taken."""
    cloud.objects = {}

    def push() -> None:
        until((machine.root / "job.env").exists, "the boot has come to the agent", 90)
        (machine.root / "agent.tmp").write_bytes(AGENT)
        (machine.root / "agent.tmp").rename(machine.root / "agent.pyz")

    thread = threading.Thread(target=push)
    thread.start()
    done = machine.boot(machine_scripts(a_job_spec(), a_target()))
    thread.join()
    assert done.returncode == 0
    machine.ran()


@pytest.mark.parametrize(("agent", "reason"), [(None, "404"), (b"evil", "sha256")])
def test_boot_fails_loudly_without_the_agent(machine, cloud, agent, reason):
    """A missing or forged agent is never run; status.json and stderr say why; cron waits for a good one."""
    cloud.objects = {} if agent is None else {f"bundles/agent-{DIGEST}.pyz": agent}
    done = machine.boot(machine_scripts(a_job_spec(), a_target()), TPUCTL_FETCH_SECONDS="1")
    assert done.returncode == 1
    assert "boot failed" in done.stderr
    status = machine.status()
    assert (status["phase"], status["incarnation"], status["deployment"]) == ("boot", 3, "demo")
    assert reason in status["message"]
    assert (machine.cron / "tpuctl").exists()
    assert not (machine.root / "state/ran-run").exists()
    assert reason in (machine.root / "log/startup.log").read_text()


def test_boot_fails_loudly_when_a_step_fails(machine):
    """A step that cannot be done is named."""
    machine.cron.write_text("a file where a folder should be")
    done = machine.boot(machine_scripts(a_job_spec(), a_target()))
    assert done.returncode == 1
    assert "mkdir" in machine.status()["message"]


@pytest.mark.parametrize("newer", [True, False])
def test_restart_replaces_only_what_was_started_with_other_files(machine, newer):
    """
    `start-job --restart` asks an old agent to stop, then waits for its lock; one with these files stays.

    The startup script or cron may start the agent in the moment before who sent its files does.
    """
    scripts = machine_scripts(a_job_spec(), a_target())
    machine.boot(scripts)
    machine.ran()
    held = machine.root / "held"
    holder = subprocess.Popen(
        ["flock", machine.root / "job.lock", "sh", "-c", 'touch "$0"; read -r word', held],
        stdin=subprocess.PIPE,
    )
    until(held.exists, "the lock is held", 90)
    if newer:
        (machine.root / "job.env.local").write_text(scripts.job_env)
        # Not `communicate`: it would wait for the end in its thread, and keep `poll` from seeing it.
        threading.Timer(1.0, lambda: (holder.stdin.write(b"end\n"), holder.stdin.close())).start()
    assert machine.run([str(machine.root / "start-job"), "--restart"]).returncode == 0
    assert (holder.poll() is not None) == newer
    if newer:
        machine.ran("run")
        machine.ran("stop")
    else:
        assert not (machine.root / "state/ran-stop").exists()
        holder.communicate(b"end\n")


def test_shutdown_tells_the_agent(machine):
    """The shutdown script hands notice and settings to the agent; before a boot it does nothing."""
    scripts = machine_scripts(a_job_spec(), a_target())
    assert machine.run(["bash", "-c", scripts.shutdown]).returncode == 0
    machine.boot(scripts)
    machine.ran()
    assert machine.run(["bash", "-c", scripts.shutdown]).returncode == 0
    assert machine.ran("notice")["TPUCTL_BUCKET"] == "bucket"
