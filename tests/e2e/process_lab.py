"""
A lab for real deployments: own folder, own local cloud, public commands, and proof that nothing is left.

Commands run as processes, as a user's do; see warm.py. What the tests wait for is read straight from the
bucket and from /proc, because a command line costs computing time for each look.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.emulator.control import call
from orchestrator.emulator.start_options import Options, save_options
from orchestrator.errors import LocalCloudError
from tests.e2e.warm import RunningCommand, start
from tests.kit.waiting import until

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples" / "numpy-lm"
FOREIGN = ("TPUCTL_", "GOOGLE_", "CLOUDSDK_", "NUMPY_LM_", "GCE_METADATA", "STORAGE_EMULATOR")
SLOWED = """\
# Run train.py slowly, then more slowly, until a file appears. Without it, the job does not end: it stays
# before its last steps, however long a busy computer takes to disturb it. A second file holds it where it is.
import json, os, runpy, time
nap, naps, sign = time.sleep, [], os.environ["E2E_FAST"]
def step():
    with open(os.environ["TPUCTL_PROGRESS_FILE"]) as file:
        return json.load(file)["step"]
def slow(seconds):
    naps.append(seconds)
    nap(0.0 if os.path.exists(sign) else seconds if len(naps) < 25 else 1.0)
    while os.path.exists(sign + ".hold") or step() >= STAYS_AT and not os.path.exists(sign):
        with open(sign + ".at", "w") as file:
            print(step(), file=file)
        nap(0.1)
time.sleep = slow
runpy.run_path("train.py", run_name="__main__")
"""
# A busy computer is slow, which is no fault: the deadlines only end what would never end.
COMMAND_TIMEOUT, LOOK_TIMEOUT = 400.0, 300.0
T = TypeVar("T")


@dataclass(frozen=True)
class ProcessResult:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@dataclass
class ProcessLab:
    """One deployment folder and one local cloud, by default of a project that may have any TPU."""

    folder: Path
    name: str = "e2e"
    fresh_project: bool = False
    running: list[RunningCommand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        self.cloud = self.folder / "cloud"
        self.work.mkdir(parents=True)
        save_options(self.cloud, Options(fresh_project=self.fresh_project))
        retained = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        self.environment = {
            **retained, "PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1",
            "COLUMNS": "200", "TPUCTL_LOCAL_DIR": str(self.cloud), "TPUCTL_CLOUD": "local",
        }  # fmt: skip

    # What a user does.

    def write(self, *, tpu: str = "v5litepod-8", vm: str = "none", watch: str = "", **job: object) -> None:
        """Write tpuctl.yaml with *job* settings of its own."""
        body = {"command": "python3 train.py", **job}
        lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in body.items())
        (self.work / "tpuctl.yaml").write_text(
            f"name: {self.name}\ntpu: {{type: {tpu}, zones: [europe-west4-b, europe-west4-a]}}\nvm: {vm}\n"
            f"job:\n{lines}watch: {{poll: 1s{watch}}}\n"
        )

    def use_example(self, *, steps: int = 150, save_every: int = 5, fast: str = "", **more: Any) -> None:
        """Copy the numpy example here and write a deployment file for a run that lasts until `hurry`."""
        for source in (*EXAMPLE.glob("*.py"), EXAMPLE / "requirements.txt"):
            (self.work / source.name).write_bytes(source.read_bytes())
        env = {
            "NUMPY_LM_STEPS": str(steps),
            "NUMPY_LM_STEP_SECONDS": "0.2",
            "NUMPY_LM_SAVE_EVERY": str(save_every),
            "NUMPY_LM_LOG_EVERY": "1",
            "E2E_FAST": fast or str(self.folder / "fast"),
        }
        (self.work / "slowed.py").write_text(f"STAYS_AT = {steps - 20}\n{SLOWED}")
        setup, run = "tpuctl-venv -r requirements.txt", "exec tpuctl-venv -r requirements.txt -- python"
        self.write(
            **{"env": env, "setup": setup, "command": f"{run} slowed.py", "target_steps": steps, **more}
        )

    def hurry(self) -> None:
        """Let the job run at full speed from now on."""
        (self.folder / "fast").touch()

    def hold(self) -> int:
        """Keep the job at the step where it is, and return that step."""
        (self.folder / "fast.hold").touch()
        at = self.folder / "fast.at"
        return int(self.wait_for("the held job", lambda: at.exists() and at.read_text().strip()))

    def let_go(self) -> None:
        """Let a held job go on."""
        (self.folder / "fast.hold").unlink()

    def start(self, *words: str) -> RunningCommand:
        """Start a command and return its process; what it prints goes to files."""
        number = len(self.running)
        with (
            (self.folder / f"{number}.out").open("wb") as out,
            (self.folder / f"{number}.err").open("wb") as err,
        ):
            self.running.append(start(number, words, self.work, self.environment, out, err))
        return self.running[-1]

    def said(self, process: RunningCommand) -> str:
        """Return what a command has printed to standard error so far."""
        return (self.folder / f"{process.number}.err").read_text(errors="replace")

    def end(
        self, process: RunningCommand, expect: int | None = 0, seconds: float = COMMAND_TIMEOUT
    ) -> ProcessResult:
        """Wait for a command; *expect* is the exit code that it must have."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{process.args} still runs after {seconds:.0f} s\n{self.logs_text()}"
            ) from None
        out = (self.folder / f"{process.number}.out").read_text(errors="replace")
        done = ProcessResult(code, out, self.said(process))
        assert expect is None or code == expect, f"exit code {code}, not {expect}:\n{done.out}\n{done.err}"
        return done

    def tpuctl(self, *words: str, expect: int | None = 0, seconds: float = COMMAND_TIMEOUT) -> ProcessResult:
        """Run a command to its end."""
        return self.end(self.start(*words), expect, seconds)

    def status(self) -> dict[str, Any]:
        """Return what `tpuctl status --json` says."""
        found: dict[str, Any] = json.loads(self.tpuctl("status", "--json").out)
        return found

    # What exists, observed from outside.

    def wait_for(
        self, what: str, look: Callable[[], T], seconds: float = LOOK_TIMEOUT, pause: float = 0.4
    ) -> T:
        """Look until there is something and return it."""
        return until(look, what, seconds, pause, self.logs_text)

    def logs_text(self) -> str:
        """Return what the commands said last, for a failed test."""
        parts = [f"-- {p.args}\n{self.said(p)[-1500:]}" for p in self.running[-3:]]
        return "\n".join([*parts, f"-- heartbeats\n{self.heartbeats()}", f"-- machines\n{self.machines()}"])

    def get(self, path: str) -> bytes:
        """Return what the local cloud's HTTP answers, nothing for a 404 or when it does not run."""
        try:
            address = json.loads((self.cloud / "daemon.json").read_text())
            with urllib.request.urlopen(address["endpoint"] + path, timeout=60) as answer:
                return answer.read()
        except (urllib.error.HTTPError, FileNotFoundError):
            return b""

    def control(self, verb: str) -> dict[str, Any]:
        """Return what a control route of the local cloud says, nothing when it does not run."""
        try:
            return call(verb, folder=self.cloud)
        except LocalCloudError:
            return {}

    def bucket(self) -> str:
        """Return the name of the only bucket, empty when there is none."""
        items = json.loads(self.get("/storage/v1/b?project=local-project") or b"{}").get("items", [])
        return items[0]["name"] if items else ""

    def _known_bucket(self) -> str:
        self._bucket = self._bucket or self.bucket()
        return self._bucket

    def objects(self, prefix: str) -> list[str]:
        """Return the names of the bucket's objects below *prefix*."""
        body = self.get(f"/storage/v1/b/{self._known_bucket()}/o?prefix={quote(prefix, safe='')}")
        return [item["name"] for item in json.loads(body or b"{}").get("items", [])]

    def read(self, name: str) -> bytes:
        """Return an object's content."""
        return self.get(f"/storage/v1/b/{self._known_bucket()}/o/{quote(name, safe='')}?alt=media")

    def heartbeats(self, incarnation: int | None = None) -> list[dict[str, Any]]:
        """Return the heartbeats of one incarnation, the newest when none is named, in order of workers."""
        names = [n for n in self.objects(".tpuctl/heartbeat/") if n.count("/") == 3]
        newest = incarnation or max((int(n.split("/")[2]) for n in names), default=0)
        found = (self.read(n) for n in names if int(n.split("/")[2]) == newest)
        # The startup script's own report has few fields; the agent's takes its place.
        untold = dict.fromkeys(one.name for one in fields(Heartbeat))
        return sorted((untold | json.loads(b) for b in found if b), key=lambda b: b["worker"])

    def at(
        self, step: int, *, incarnation: int = 1, workers: int = 1, attempt: int = 1, committed: int = 0
    ) -> list[dict[str, Any]]:
        """
        Return the heartbeats when all *workers* run and have reached *step*, nothing before.

        A saved step is lost with its machine until it is *committed* to the bucket.
        """
        heartbeats = self.heartbeats()
        far = [
            b for b in heartbeats
            if b["incarnation"] == incarnation and b["phase"] == "run" and (b["step"] or 0) >= step
            and b["attempt"] >= attempt and (b["committed_step"] or 0) >= committed
        ]  # fmt: skip
        return far if len(far) == workers else []

    def logs(self, incarnation: int, worker: int = 0) -> str:
        """Return the log of one incarnation of one worker, from the bucket."""
        names = sorted(self.objects(f"logs/g{incarnation}/w{worker}/"))
        return b"".join(self.read(name) for name in names).decode(errors="replace")

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines of the local cloud."""
        return list(self.control("status").get("machines", []))

    def jobs(self, command: bytes = b"slowed.py") -> dict[int, str]:
        """Return the processes of this cloud that run *command* with the mark of a job: pid and mark."""
        found = {}
        for pid, environ in self.processes():
            mark = re.search(rb"(?:^|\0)TPUCTL_JOB=([^\0]*)", environ)
            if mark and command in _read(pid, "cmdline").split(b"\0"):
                found[pid] = mark[1].decode()
        return found

    def agents(self) -> list[int]:
        """Return the processes of this cloud that are agents at work."""
        lines = ((pid, _read(pid, "cmdline").split(b"\0")) for pid, _ in self.processes())
        return [pid for pid, words in lines if words[0].endswith(b"python3") and words[-2:-1] == [b"run"]]

    def processes(self) -> list[tuple[int, bytes]]:
        """Return every process that carries this local cloud's mark, with its environment."""
        options = self.cloud / "options.json"
        mark = json.loads(options.read_text())["cloud_id"] if options.exists() else self._mark
        self._mark = mark
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        pairs = ((pid, _read(pid, "environ")) for pid in pids)
        return [
            (pid, environ) for pid, environ in pairs if mark and f"TPUCTL_MACHINE={mark}/".encode() in environ
        ]

    _mark: str = ""
    _bucket: str = ""

    # The end.

    def close(self) -> None:
        """End what still runs, reset the local cloud and prove that nothing is left of it."""
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # a rehearsal has a local cloud of its own to take away
            try:
                process.wait(LOOK_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        self.processes()
        if [path.name for path in self.cloud.glob("*")] == ["options.json"]:
            shutil.rmtree(self.cloud)  # It never ran.
        if self.cloud.exists():
            self.tpuctl("local", "reset")
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        assert [m for m in mounts if m.startswith(str(self.folder))] == []
        assert [(pid, _read(pid, "cmdline")) for pid, _ in self.processes()] == []
        daemons = [
            p.name
            for p in Path("/proc").iterdir()
            if p.name.isdigit() and str(self.cloud).encode() in _read(int(p.name), "cmdline")
        ]
        assert daemons == []
        assert not self.cloud.exists()


def kill(pid: int) -> None:
    """SIGKILL a process."""
    os.kill(pid, signal.SIGKILL)


def losses(log: str) -> dict[int, str]:
    """Return the last loss printed for each step."""
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", log, re.MULTILINE)}


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
