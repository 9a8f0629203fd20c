"""The script that runs sidecars on a machine: real bash, flock and the agent's guard; the servers are small."""

import json
import os
import shlex
import subprocess
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.spec import JupyterSpec, SidecarsSpec, TensorboardSpec
from orchestrator.scripts import agent_zipapp
from orchestrator.scripts.render import machine_scripts, sidecar_script
from tests.kit.sidecar_kit import fake_environments, free_port
from tests.kit.waiting import until
from tests.scripts.render_kit import ScriptMachine, a_job_spec, a_target, serve


def wanted(board: int = 0, jupyter: int = 0):
    """Return a deployment with sidecars on the ports that are given."""
    both = SidecarsSpec(
        TensorboardSpec(port=board, logdir="it's $(here)") if board else "none",
        JupyterSpec(port=jupyter) if jupyter else "none",
    )
    return replace(a_job_spec(), sidecars=both)


class SidecarMachine(ScriptMachine):
    """A VM with sidecars, in a folder whose name needs quoting."""

    def up(self, cloud, spec, **environment: str) -> subprocess.CompletedProcess:
        """Boot it with the real agent."""
        digest = agent_zipapp.build(self.folder / "agent.pyz")
        cloud.objects = {f"bundles/agent-{digest}.pyz": (self.folder / "agent.pyz").read_bytes()}
        target = a_target(role="vm", runs_job=False, agent=digest)
        cache = str(fake_environments(self.folder / "venvs"))
        return self.boot(machine_scripts(spec, target), TPUCTL_VENV_CACHE=cache, **environment)

    def change_settings(self, spec) -> None:
        """Bring other settings, as `up` does over SSH."""
        script = self.root / "run-sidecars.local"
        script.write_text(sidecar_script(spec, "vm", "bucket"))
        script.chmod(0o700)
        done = self.run([str(script), "apply"])
        assert (done.returncode, done.stderr) == (0, "")

    def state(self, name: str) -> dict:
        """Return what the machine says of a sidecar."""
        return json.loads(self.run([str(self.root / "run-sidecars"), "state", name]).stdout)

    def until(self, name: str, word: str, seconds: float = 90) -> dict:
        """Wait until the state of a sidecar begins so."""

        def found() -> dict | None:
            state = self.state(name)
            return state if state["state"].startswith(word) else None

        return until(found, f"{name} is {word}", seconds, log=lambda: f"{self.state(name)}\n{self.log(name)}")

    def log(self, name: str) -> str:
        """Return the log of a sidecar."""
        return (self.root / f"log/sidecar-{name}.log").read_text()

    def ask(self, port: int, path: str = "/", seconds: float = 90) -> dict:
        """Return what a server says of itself, when it answers."""

        def said() -> list[dict]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                    return [json.load(answer)]
            except urllib.error.HTTPError as error:
                return [{"status": error.code}]
            except OSError:
                return []

        return until(said, f"an answer at {port}", seconds)[0]

    def processes(self) -> list[int]:
        """Return the processes of the machine's sidecars."""
        mark = f":{self.root}\0".encode()
        return [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environ(p)]  # noqa: PTH208


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def cloud():
    """Offer a small cloud."""
    with serve() as server:
        yield server


@pytest.fixture
def machine(tmp_path, cloud):
    """Offer a machine; its sidecars end with the test."""
    one = SidecarMachine(tmp_path, cloud)
    yield one
    if (one.root / "machine.env").exists():
        one.change_settings(a_job_spec())
    assert one.processes() == []


def test_boot_starts_both_on_loopback_and_changes_reach_them(machine, cloud):
    """Start, crash, cron, other settings, none at all: each as set, and the other one undisturbed."""
    first, second, third = free_port(), free_port(), free_port()
    done = machine.up(cloud, wanted(first, second))
    assert (done.returncode, done.stderr) == (0, "")
    board, jupyter = machine.ask(first), machine.ask(second)
    words = shlex.join(board["argv"])
    assert "--load_fast=false" in words
    assert board["argv"][board["argv"].index("--logdir") + 1] == "gs://bucket/it's $(here)"
    assert jupyter == {"status": 403}
    state = machine.until("jupyter", "running")
    assert (state["address"], state["port"]) == ("127.0.0.1", second)
    known = machine.ask(second, f"/?token={state['token']}")
    assert known["known"]

    # The token is in its file alone.
    assert len(state["token"]) == 48
    assert oct((machine.root / "sidecars").stat().st_mode & 0o777) == "0o700"
    for pid in machine.processes():
        assert state["token"].encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() + _environ(pid)
    for file in (machine.root / "log").iterdir():
        assert state["token"] not in file.read_text()

    # What dies comes back by cron's line, in cron's bare environment; what runs is left alone.
    os.kill(board["pid"], 9)
    machine.until("tensorboard", "failed: it ended with status")
    # It says so before it lets go of its lock; cron comes again each minute, the test comes once.
    subprocess.run(["flock", machine.root / "sidecars/tensorboard/lock", "true"], check=True, timeout=60)
    lines = (machine.cron / "tpuctl-sidecars").read_text().splitlines()[1:]
    assert len(lines) == 2
    started = [
        subprocess.Popen(
            ["/bin/sh", "-c", line.split("root ", 1)[1].replace("\\%", "%")],
            env={"PATH": "/usr/bin:/bin"}, cwd="/",
        )
        for line in lines
    ]  # fmt: skip
    again = machine.ask(first)
    assert again["pid"] != board["pid"]
    assert started[1].wait(60) == 75, "the lock keeps a second one out"

    # Another port for one of them.
    machine.change_settings(wanted(third, second))
    moved = machine.ask(third)
    assert started[0].wait(60) != 0
    assert machine.ask(second, f"/?token={state['token']}")["pid"] == known["pid"]
    with pytest.raises(AssertionError):
        machine.ask(first, seconds=0)

    # A reboot keeps what came last.
    assert machine.run([str(machine.folder / "startup-script")]).returncode == 0
    assert machine.ask(third)["pid"] == moved["pid"]

    machine.change_settings(wanted(jupyter=second))
    assert len((machine.cron / "tpuctl-sidecars").read_text().splitlines()) == 2
    machine.change_settings(a_job_spec())
    assert not (machine.cron / "tpuctl-sidecars").exists()
    assert machine.processes() == []


def test_a_sidecar_that_fails_says_so_and_the_boot_goes_on(machine, cloud):
    """The boot goes on; state and log say why."""
    port = free_port()
    for folder in fake_environments(machine.folder / "broken").iterdir():
        (folder / "bin/broken").touch()
    digest = agent_zipapp.build(machine.folder / "agent.pyz")
    cloud.objects = {f"bundles/agent-{digest}.pyz": (machine.folder / "agent.pyz").read_bytes()}
    scripts = machine_scripts(wanted(port), a_target(role="vm", runs_job=False, agent=digest))
    done = machine.boot(scripts, TPUCTL_VENV_CACHE=str(machine.folder / "broken"))
    assert (done.returncode, machine.status()["message"]) == (
        0,
        "ready; the job does not run on this machine",
    )
    assert "status 1" in machine.until("tensorboard", "failed")["state"]
    assert "no way" in machine.log("tensorboard")


def test_nothing_starts_that_could_leave_a_rehearsal(machine, cloud):
    """A machine of the local cloud that lacks some of the variables starts no sidecar."""
    machine.up(cloud, wanted(jupyter=free_port()), TPUCTL_LOCAL_CLOUD=f"http://{cloud.address}")
    machine.until("jupyter", "failed")
    assert "nothing was started, because it could reach the real service" in machine.log("jupyter")
    assert "listening" not in machine.log("jupyter")


def test_of_a_slice_worker_0_alone_has_them(machine, cloud):
    """The other workers set up nothing."""
    cloud.attributes = {"agent-worker-number": "1"}
    script = sidecar_script(
        replace(a_job_spec(), sidecars=SidecarsSpec(jupyter=JupyterSpec(on="tpu", port=free_port()))),
        "tpu",
        "b",
    )
    assert machine.up(cloud, a_job_spec()).returncode == 0
    (machine.root / "run-sidecars.local").write_text(script)
    assert machine.run(["bash", str(machine.root / "run-sidecars.local"), "apply"]).returncode == 0
    assert not (machine.cron / "tpuctl-sidecars").exists()
    assert machine.processes() == []
