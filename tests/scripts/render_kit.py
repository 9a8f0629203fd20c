"""What the tests of rendered scripts share: settings, a small cloud, and a folder that stands for a machine."""

import dataclasses
import hashlib
import http.server
import json
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.domain.spec import JobSpec, Spec, TpuSpec
from orchestrator.scripts.render import MachineTarget, Scripts
from tests.kit.waiting import until

AGENT = b"""
import json, os, sys
root = os.environ["TPUCTL_ROOT"]
path = os.path.join(root, "state", "ran-" + sys.argv[1])
with open(path + ".tmp", "w") as file:
    json.dump(dict(os.environ), file)
os.replace(path + ".tmp", path)
"""
DIGEST = hashlib.sha256(AGENT).hexdigest()


def a_job_spec(name: str = "demo", **job) -> Spec:
    """Return a deployment, with *job* settings of its own."""
    values = {"command": "python3 train.py", **job}
    return Spec(name=name, tpu=TpuSpec("v5litepod-8", ("europe-west4-b",)), job=JobSpec(**values))


def a_target(**values) -> MachineTarget:
    """Return a TPU worker, with other *values*."""
    base = MachineTarget(
        "tpu", "proj", "bucket", 3, "a" * 64, DIGEST, True, node="demo-tpu-g3", zone="europe-west4-b"
    )
    return dataclasses.replace(base, **values)


class CloudStandIn(http.server.ThreadingHTTPServer):
    """A metadata server and an object store on one port, as far as a boot needs them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.attributes: dict[str, str] = {}
        self.objects = {f"bundles/agent-{DIGEST}.pyz": AGENT}
        self.failures = 0
        self.refuses = 0
        self.written: dict[str, bytes] = {}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: CloudStandIn

    def log_message(self, *args):
        pass

    def do_GET(self):
        status, body = self.answer()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        allowed = self.headers["Authorization"] == "Bearer secret" and asked["ifGenerationMatch"] == "0"
        assert (path, asked["uploadType"], allowed) == ("/upload/storage/v1/b/bucket/o", "media", True)
        status = self.server.refuses or (412 if asked["name"] in self.server.written else 200)
        if status == 200:
            self.server.written[asked["name"]] = data
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def answer(self) -> tuple[int, bytes]:
        if self.server.failures > 0:
            self.server.failures -= 1
            return 503, b"busy"
        if self.path.startswith("/computeMetadata/v1/instance/"):
            return self.metadata(self.path.removeprefix("/computeMetadata/v1/instance/"))
        for name, data in self.server.objects.items():
            if self.path == f"/storage/v1/b/bucket/o/{name.replace('/', '%2F')}?alt=media":
                return (200, data) if self.headers["Authorization"] == "Bearer secret" else (401, b"")
        return 404, b""

    def metadata(self, path: str) -> tuple[int, bytes]:
        if self.headers["Metadata-Flavor"] != "Google":
            return 403, b""
        if path == "service-accounts/default/token":
            return 200, b'{"access_token": "secret", "expires_in": 3599, "token_type": "Bearer"}'
        value = self.server.attributes.get(path.removeprefix("attributes/"))
        return (404, b"") if value is None else (200, value.encode())


class ScriptMachine:
    """A folder in which rendered scripts run as on a machine."""

    def __init__(self, folder: Path, cloud: CloudStandIn) -> None:
        self.folder = folder
        self.root = folder / "opt 100%/tpuctl"
        self.cron = folder / "cron.d"
        self.environment = {
            "PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "TPUCTL_ROOT": str(self.root),
            "TPUCTL_CRON_DIR": str(self.cron), "TPUCTL_APT_DIR": str(folder / "apt.conf.d"),
            "TPUCTL_HAS_CRON": "yes", "GCE_METADATA_HOST": cloud.address,
            "STORAGE_EMULATOR_HOST": f"http://{cloud.address}", "TPUCTL_FETCH_SECONDS": "20",
            "CLOUDSDK_CORE_PROJECT": "it's mine", "XLA_FLAGS": "--a --b", "UNRELATED": "1",
        }  # fmt: skip

    def boot(self, scripts: Scripts, **environment: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "startup-script"
        path.write_text(scripts.startup)
        path.chmod(0o755)
        return self.run([str(path)], **environment)

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        everything = {**self.environment, **environment}
        return subprocess.run(
            command,
            env=everything,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def ran(self, verb: str = "run", seconds: float = 90) -> dict[str, str]:
        """Wait for the agent's trace and take it away; after a run also until the lock is free again."""
        path = self.root / f"state/ran-{verb}"
        until(path.exists, f"the agent is asked to {verb}", seconds, 0.02)
        observed = json.loads(path.read_text())
        path.unlink()
        if verb == "run":
            subprocess.run(["flock", "-w", "90", self.root / "job.lock", "true"], check=True)
        return observed

    def status(self) -> dict:
        return json.loads((self.root / "state/status.json").read_text())


@contextmanager
def serve() -> Iterator[CloudStandIn]:
    """Serve a cloud until the block ends."""
    server = CloudStandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cloud() -> Iterator[CloudStandIn]:
    """Offer a small cloud."""
    with serve() as server:
        yield server
