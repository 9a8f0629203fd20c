"""The loop is installed on a machine and kept alive: real bash, real flock, a folder in place of the machine."""

import json
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from orchestrator.contract.service_state import ServicePhase, ServiceState, service_state
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, STORAGE
from orchestrator.domain.remote import Host, RunResult
from orchestrator.engine.loop import loop_on_vm
from orchestrator.errors import RemoteError, UsageError
from orchestrator.scripts.render import loop_script
from tests.kit.waiting import until
from tests.scripts.render_kit import ScriptMachine, serve

HOST = Host("demo-vm", "10.0.0.1", ())
LOOP = "import os, sys, time\nprint(os.getpid(), *sys.argv[1:], flush=True)\ntime.sleep(600)\n"
SCOPES = "service-accounts/default/?recursive=true"


class VmMachine(ScriptMachine):
    """A prepared machine of the local cloud that is reached without SSH."""

    def put(self, hosts, data, target, mode):
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)

    def run_elevated(self, hosts, script, deadline):
        done = self.run(["bash", "--norc", "-c", script.bash(), "run", str(self.root)])
        return [RunResult(done.returncode, done.stdout, done.stderr)]


@pytest.fixture
def machine(tmp_path):
    """Offer a machine whose account may call every API; at the end nothing of it runs."""
    with serve() as cloud:
        cloud.attributes[SCOPES] = json.dumps({"scopes": [STORAGE, CLOUD_PLATFORM]})
        one = VmMachine(tmp_path, cloud)
        one.cloud = cloud
        one.root.mkdir(parents=True)
        (one.root / "machine.env").write_text(
            f"TPUCTL_LOCAL_CLOUD=http://127.0.0.1:1\nTPUCTL_CRON_DIR={one.cron}\n"
            f"TPUCTL_LOCAL_PYTHON={sys.executable}\n"
        )
        yield one
        loop_on_vm.stop(one, HOST)


def packed(text="first", loop=LOOP):
    """Pack a loop that prints how it was started, and sleeps."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("orchestrator/__init__.py", "")
        archive.writestr("orchestrator/__main__.py", loop)
    script = loop_script(
        fleet=0, wheel="x.whl", lock="x.lock", cloud="local", project="it's", deployment="demo", ssh_port=2222
    )
    files = {"run-watch": (script.encode(), 0o700), "x.whl": (buffer.getvalue(), 0o600)}
    return loop_on_vm.pack(
        {
            **files,
            "tpuctl.yaml": (text.encode(), 0o600),
            "id_ed25519": (b"key", 0o600),
            "record.key": (b"k", 0o600),
        }
    )


def running(machine, but=(), seconds=120.0):
    """Wait for the first words of a loop that is none of the processes *but*, and return them."""
    log = machine.root / "log/watch.log"

    def live():
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        pids = [words for words in lines if words[0].isdigit() and words[0] not in but]
        return [words for words in pids if Path(f"/proc/{words[0]}").exists()]

    return until(live, "another loop's words", seconds, log=lambda: log.exists() and log.read_text())[-1]


def test_the_same_content_has_the_same_name():
    """So the second `watch --on-vm` changes nothing."""
    assert packed() == packed()
    assert packed().digest != packed("second").digest


def test_a_machine_without_the_scope_is_refused_and_keeps_nothing(machine):
    """A loop there could not act."""
    machine.cloud.attributes[SCOPES] = json.dumps({"scopes": [STORAGE]})
    with pytest.raises(UsageError, match="without the scope cloud-platform"):
        loop_on_vm.install(machine, HOST, packed())
    assert list((machine.root / "controller").iterdir()) == []
    del machine.cloud.attributes[SCOPES]
    with pytest.raises(RemoteError, match="404"):
        loop_on_vm.install(machine, HOST, packed())


def test_a_life_of_the_loop(machine):
    """Installed, started once, killed, brought back by cron, replaced, stopped, not revived by a boot."""
    first, base = packed(), machine.root / "controller"
    assert loop_on_vm.observe(machine, HOST) == loop_on_vm.LoopState("", False, ServiceState())
    (base / ".fresh").mkdir(parents=True)
    (base / ".fresh/torn").write_text("what a cut install left")
    loop_on_vm.install(machine, HOST, first)
    assert not loop_on_vm.observe(machine, HOST).running
    loop_on_vm.start(machine, HOST)
    pid, *words = running(machine)
    assert words[:4] == ["watch", "--loop", "--cloud", "local"]
    assert words[-1] == "tpuctl.yaml" or words[-1].endswith(f"controller/{first.digest}/tpuctl.yaml")
    assert loop_on_vm.observe(machine, HOST) == loop_on_vm.LoopState(
        first.digest, True, service_state("running")
    )
    key = base / "home/local/it's/demo/id_ed25519"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("key", 0o600)

    loop_on_vm.start(machine, HOST)
    line = (machine.cron / "tpuctl-watch").read_text().splitlines()[-1]
    assert line.startswith("* * * * * root ")
    command = ["/bin/sh", "-c", line.removeprefix("* * * * * root ").replace("\\%", "%")]
    bare = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    assert subprocess.run(command, env=bare, cwd="/", check=False).returncode == 75, "it runs already"
    assert running(machine)[0] == pid
    subprocess.run(["kill", "-9", pid], check=True)
    with subprocess.Popen(command, env=bare, cwd="/") as cron:
        (later, *_) = running(machine, but={pid})
        second = packed("second")
        loop_on_vm.install(machine, HOST, second)
        assert cron.wait(60) != 0
    assert [p.name for p in base.iterdir() if len(p.name) == 64] == [second.digest]
    assert not loop_on_vm.observe(machine, HOST).running
    loop_on_vm.start(machine, HOST)
    running(machine, but={pid, later})
    loop_on_vm.stop(machine, HOST)
    boot = machine.run([str(base / "current/run-watch"), "boot"])
    assert (boot.returncode, loop_on_vm.observe(machine, HOST)) == (
        0,
        loop_on_vm.LoopState(second.digest, False, service_state("stopped")),
    )
    assert not (machine.cron / "tpuctl-watch").exists()


def test_a_loop_that_ends_says_how(machine):
    """The person who waits for it hears of it."""
    loop_on_vm.install(machine, HOST, packed(loop="import sys\nsys.exit(6)\n"))
    loop_on_vm.start(machine, HOST)
    ended = service_state("ended with status 6")
    assert ended.phase is ServicePhase.ENDED
    until(
        lambda: loop_on_vm.observe(machine, HOST).service == ended,
        "the loop's end",
        90,
        log=lambda: loop_on_vm.observe(machine, HOST),
    )
