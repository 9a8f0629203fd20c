"""Real agents as processes, against the local Cloud Storage over HTTP and a small metadata server."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.agent.context import AgentContext, wire
from orchestrator.agent.settings import read_settings
from orchestrator.clock import Clock, SystemClock, VirtualClock
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.http.storage_json import route, storage_routes
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.emulator.http_fixture import serve
from tests.kit.waiting import until

BUCKET = "lab-bucket"
TIMEOUT = 120.0
TRAIN = Path(__file__).with_name("train_script.py")


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie that nobody has collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class MetadataStandIn(ThreadingHTTPServer):
    """Serve tokens and instance/preempted, with wait_for_change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MetadataRequests)
        self.preempted = threading.Event()
        self.tokens = 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed while they waited."""


class _MetadataRequests(BaseHTTPRequestHandler):
    server: MetadataStandIn

    def do_GET(self) -> None:
        if self.headers.get("Metadata-Flavor") != "Google":
            return self._answer(403, "", "")
        if self.path.endswith("/token"):
            self.server.tokens += 1
            return self._answer(
                200, "t", json.dumps({"access_token": "lab", "expires_in": 3600, "token_type": "B"})
            )
        if "/instance/preempted" not in self.path:
            return self._answer(404, "", "")
        if "wait_for_change=true" in self.path and "last_etag=no" in self.path:
            self.server.preempted.wait(20)
        gone = self.server.preempted.is_set()
        return self._answer(200, "yes" if gone else "no", "TRUE" if gone else "FALSE")

    def _answer(self, status: int, etag: str, body: str) -> None:
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


def lines_of_the_job(log: str) -> list[str]:
    """Return the lines of a log without those of the agent."""
    return [line for line in log.splitlines() if not line.startswith("--- ")]


class AgentLab:
    """Hold one bucket and the machines that use it."""

    def __init__(self, folder: Path, storage: Storage, metadata: MetadataStandIn) -> None:
        self.folder = folder
        self.storage = storage
        self.metadata = metadata
        self.url = ""
        self.proxies: set[str] = set()
        self.fault: Callable[[Request], Response | None] = lambda _request: None
        self.writes: list[str] = []
        self.machines: list[AgentMachine] = []
        self.code = self.put_bundle({"train.py": TRAIN.read_bytes()})

    def put_bundle(self, files: dict[str, bytes]) -> str:
        """Store a bundle and return its sha256."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        self.put(f"bundles/{digest}.tar.gz", buffer.getvalue())
        return digest

    def put(self, name: str, data: bytes) -> None:
        """Store an object, past any fault."""
        with self.storage.lock:
            self.storage.objects.insert(BUCKET, name, data, {}, Preconditions())

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects under a prefix."""
        with self.storage.lock:
            return sorted(one.name for one in self.storage.objects.all() if one.name.startswith(prefix))

    def read(self, name: str) -> bytes:
        """Return an object's bytes."""
        with self.storage.lock:
            return self.storage.objects.read(self.storage.objects.get(BUCKET, name))

    def json(self, name: str) -> dict[str, Any]:
        """Return an object's JSON, empty when it is not there."""
        return json.loads(self.read(name)) if name in self.names(name) else {}

    def attempts(self, incarnation: int = 1) -> list[dict[str, Any]]:
        """Return the gang's attempts in order."""
        names = self.names(f".tpuctl/gang/{incarnation}/0")
        return [self.json(name) for name in names]

    def log(self, incarnation: int = 1, worker: int = 0) -> str:
        """Return the job's log as the bucket has it."""
        return b"".join(self.read(name) for name in self.names(f"logs/g{incarnation}/w{worker}/")).decode()

    def manifests(self) -> list[str]:
        """Return the names of all manifests."""
        return [name for name in self.names("checkpoints/") if name.endswith(".manifest.json")]

    def answer(self, router: Router, request: Request) -> Response:
        """Answer one request, unless the fault of the moment does."""
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.query.get('name') or request.path}")
        return self.fault(request) or route(router, request)

    def machine(self, name: str = "m0", **changes: object) -> "AgentMachine":
        """Make a machine; *changes* are keys of job.env without TPUCTL_, or `_KEY` of the user's environment."""
        machine = AgentMachine(self, self.folder / name, changes)
        self.machines.append(machine)
        return machine


class AgentMachine:
    """One machine folder and the agent on it."""

    DEFAULTS: ClassVar[dict[str, object]] = {
        "DEPLOYMENT": "lab", "BUCKET": BUCKET, "INCARNATION": 1, "WORKER_ID": 0, "WORKERS": 1, "RUNS_JOB": 1,
        "CHECKPOINT_FORMAT": "marker", "CHECKPOINT_KEEP": 2, "CHECKPOINT_MARKER": "COMPLETE",
        "TARGET_STEPS": "",
        "FAILURES": 3, "GRACE_SECONDS": 5, "STALL_SECONDS": 60, "HEARTBEAT_SECONDS": 0.2, "SETUP": "",
    }  # fmt: skip

    def __init__(self, lab: AgentLab, root: Path, changes: dict[str, object]) -> None:
        self.lab = lab
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)
        self.env = self._environ(changes)
        self.process: subprocess.Popen[bytes] | None = None

    def _environ(self, changes: dict[str, object]) -> dict[str, str]:
        keys = {**self.DEFAULTS, "BUNDLE": self.lab.code, "COMMAND": f"exec {sys.executable} train.py"}
        user = {key: str(value) for key, value in changes.items() if key.startswith("_")}
        keys.update((key, value) for key, value in changes.items() if not key.startswith("_"))
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "STORAGE_EMULATOR_HOST": self.lab.url,
            "GCE_METADATA_HOST": self.lab.metadata.address,
            "TPUCTL_ROOT": str(self.root),
            **{f"TPUCTL_{key}": str(value) for key, value in keys.items()},
            **{key[1:]: value for key, value in user.items()},
        }

    def command(self, *words: str) -> list[str]:
        """Return the command line of an agent command."""
        return [sys.executable, "-m", "orchestrator.agent", *words]

    def start(self, command: Sequence[str] = ()) -> "AgentMachine":
        """Start the agent."""
        with (self.root / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                list(command) or self.command("run"),
                env=self.env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return self

    def wait(self, seconds: float = TIMEOUT) -> int:
        """Return the agent's exit status."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent still runs\n{self.agent_log()}\n{self.status()}") from None

    def run_to_end(self) -> "AgentMachine":
        """Start the agent, and return when it has exited with status 0."""
        assert self.start().wait() == 0, self.agent_log()
        return self

    def kill_all(self) -> None:
        """End the machine at once: the agent and everything of its job, without a word."""
        pids = self.job_processes()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in {*pids, *self.job_processes()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def job_processes(self) -> list[int]:
        """Return living processes that carry this machine's root and a job mark."""
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                with io.FileIO(f"/proc/{entry.name}/environ") as file:
                    environ = file.readall().split(b"\0")
            except OSError:
                continue
            if f"TPUCTL_ROOT={self.root}".encode() in environ and any(
                e.startswith(b"TPUCTL_JOB=") for e in environ
            ):
                found.append(int(entry.name))
        return found

    def status(self) -> dict[str, Any]:
        """Return state/status.json."""
        path = self.root / "state" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def heartbeat(self) -> dict[str, Any]:
        """Return the heartbeat object."""
        return self.lab.json(
            f".tpuctl/heartbeat/{self.env['TPUCTL_INCARNATION']}/{self.env['TPUCTL_WORKER_ID']}"
        )

    def agent_log(self) -> str:
        """Return what the agent printed."""
        path = self.root / "agent.log"
        return path.read_text() if path.exists() else ""

    def context(self, clock: Clock | None = None) -> AgentContext:
        """Return the context of an agent in this process, by default in time that only its waits let pass."""
        return wire(read_settings(self.env), self.env, clock or VirtualClock())

    def until(self, wanted: Callable[[], object], what: str) -> None:
        """Wait until *wanted* is true."""
        until(wanted, what, TIMEOUT, log=lambda: f"{self.agent_log()}\n{self.status()}")

    def until_reports(self, count: int = 3) -> None:
        """Wait until the agent has reported *count* times more, and so has had time for what it is not to do."""
        reports = lambda: sum(".tpuctl/heartbeat/" in one for one in self.lab.writes)  # noqa: E731
        wanted = reports() + count
        self.until(lambda: reports() >= wanted, f"{count} more reports")

    def until_committed(self, step: int) -> None:
        """Wait until the heartbeat shows this step or a later one as committed."""
        self.until(lambda: (self.heartbeat().get("committed_step") or -1) >= step, f"step {step} committed")


@contextmanager
def running_lab(folder: Path) -> Iterator[AgentLab]:
    """Yield a lab; whatever still runs at its end is killed."""
    storage = Storage(SystemClock())
    storage.buckets.create("p", {"name": BUCKET})
    metadata = MetadataStandIn()
    lab = AgentLab(folder, storage, metadata)
    router = Router()
    storage_routes(router, storage)
    try:
        with serve(router, lambda request: lab.answer(router, request), names=lab.proxies) as url:
            lab.url = url
            try:
                yield lab
            finally:
                for machine in lab.machines:
                    machine.kill_all()
    finally:
        metadata.preempted.set()
        metadata.shutdown()
        metadata.server_close()
