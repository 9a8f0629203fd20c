"""
Twenty secrets in a real deployment: up, work, preemption, failure, done, down. Nowhere is one of them found.

The job prints all of them, in several spellings and over two writes. Searched are: every file of the local
cloud (objects, state, disks of machines, logs), of this computer (record, journal, bundles, keys), all that
commands printed, the command lines of processes, and every request body that the local cloud was sent.
"""

import base64
import json
import os
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.security.secret_kit import canaries, spellings

pytestmark = pytest.mark.e2e
STEPS = 24
HOLDS = (4, 6, 12)  # the job stays at these steps until the test opens the gate
HOOK = "T00000000/B1111/canary-of-the-webhook-address"
SPY = """\
import os, sys
if "orchestrator.emulator.daemon" in sys.orig_argv:
    from orchestrator.emulator.http import router
    parse = router.Request.parse.__func__
    def spied(cls, method, target, headers, body, peer=None):
        if not target.startswith("/v1/"):
            with open(os.environ["SPY"], "ab") as file:
                sent = body if isinstance(body, bytes) else b"".join(body)
                file.write(repr((method, target, dict(headers))).encode() + b"\\n" + sent + b"\\n")
        return parse(cls, method, target, headers, body)
    router.Request.parse = classmethod(spied)
"""
JOB = """\
import base64, json, os, shlex, sys, time
from pathlib import Path
from urllib.parse import quote
values = [os.environ[f"CANARY_{n}"] for n in range(20)]
for value in values:
    print("raw", value, "b64", base64.b64encode(value.encode()).decode(), "url", quote(value, safe=""))
    print(repr(value), json.dumps(value), shlex.quote(value), flush=True)
    os.write(1, b"half " + value.encode()[:9]); time.sleep(0.01); os.write(1, value.encode()[9:] + b"\\n")
folder = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
start = max((int(path.parent.name) for path in folder.glob("*/COMPLETE")), default=0)
for step in range(start + 1, STEPS + 1):
    print("step", step, flush=True)
    if step % 2 == 0:
        (folder / str(step)).mkdir(parents=True, exist_ok=True)
        (folder / str(step) / "COMPLETE").write_text("")
    if step == 11 and start < 10:
        raise RuntimeError("failed with " + values[3])
    while step in HOLDS and not os.path.exists(os.path.join(os.environ["GATES"], str(step))):
        time.sleep(0.1)
"""


@pytest.fixture
def lab(tmp_path):
    """Give a lab whose local cloud keeps the bodies that it is sent."""
    from tests.e2e.process_lab import REPO, ProcessLab

    one = ProcessLab(tmp_path / "lab")
    spies = tmp_path / "spies"
    spies.mkdir()
    (spies / "sitecustomize.py").write_text(SPY)
    one.environment |= {"PYTHONPATH": f"{spies}{os.pathsep}{REPO}", "SPY": str(tmp_path / "requests")}
    try:
        yield one
    finally:
        one.close()


@contextmanager
def receiver():
    """Give the address of a webhook and the list of all bodies that it was sent."""
    reported = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            reported.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            assert self.headers["Idempotency-Key"] == reported[-1]["id"]
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", reported
    finally:
        server.shutdown()
        server.server_close()


def store(lab, values: dict[str, str]) -> None:
    """Put every value into Secret Manager, as `tpuctl secret set` does."""
    address = json.loads((lab.cloud / "daemon.json").read_text())["endpoint"]
    for name, value in values.items():
        data = base64.b64encode(value.encode()).decode()
        for tail, body in (
            (f"?secretId={name}", {"replication": {"automatic": {}}}),
            (f"/{name}:addVersion", {"payload": {"data": data}}),
        ):
            url = f"{address}/v1/projects/local-project/secrets{tail}"
            reported = {"Content-Type": "application/json"}
            asked = urllib.request.Request(url, json.dumps(body).encode(), reported)
            urllib.request.urlopen(asked, timeout=30).read()


def found(lab, values: dict[str, str]) -> list[tuple[str, str]]:
    """Return every artefact that holds a secret in some spelling."""
    forms = {form: name for name, value in values.items() for form in spellings(value)}
    texts = {str(path): _bytes(path) for path in _files(lab.folder.parent)}
    for pid, _ in lab.processes():
        texts[f"command line of {pid}"] = _bytes(Path(f"/proc/{pid}/cmdline"))
    return [(where, name) for where, text in texts.items() for form, name in forms.items() if form in text]


def _files(folder: Path):
    """Return all files; `os.walk` does not mind folders that vanish meanwhile, for everything is at work."""
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return [
        path for path in paths
        if path.is_file() and not path.is_symlink() and path.name != "secrets.json"
    ]  # fmt: skip


def _bytes(path: Path) -> bytes:
    """Return what a file holds; one that is gone meanwhile, or a process that has ended, holds nothing."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_no_secret_is_anywhere_but_in_secret_manager(lab):
    """Searched while the job runs, after each kind of end, and when all is over."""
    values = canaries()
    lab.write(
        command="python3 job.py", target_steps=STEPS, env={"GATES": str(lab.folder / "gates")},
        secrets={name: f"secret://{name}" for name in values},
    )  # fmt: skip
    (lab.work / "job.py").write_text(f"STEPS, HOLDS = {STEPS}, {HOLDS}\n{JOB}")
    with (lab.work / "tpuctl.yaml").open("a") as file:
        file.write("notify: {webhooks: ['env://HOOK'], hooks: {done: './tell.sh'}}\n")
    (lab.work / "tell.sh").write_text(f"#!/bin/sh\ncat >'{lab.folder}/told'\n")
    (lab.work / "tell.sh").chmod(0o755)
    with receiver() as (url, reported):
        address = f"{url}/{HOOK}"
        lab.environment["HOOK"] = address
        use_all(lab, values, {**values, "HOOK": HOOK})
    events = [body["kind"] for body in reported]
    assert events == ["up", "preempted", "resumed", "done"]
    assert len({body["id"] for body in reported}) == 4
    assert json.loads((lab.folder / "told").read_bytes())["kind"] == "done"


def let_go(lab, step: int) -> None:
    """Open the gate at which the job stays after *step*."""
    gates = lab.folder / "gates"
    gates.mkdir(exist_ok=True)
    (gates / str(step)).touch()


def use_all(lab, stored: dict[str, str], values: dict[str, str]) -> None:
    """Go through the whole lifetime, and search for *values* again and again."""
    lab.tpuctl("local", "start", "--notice", "30")
    watch = lab.start("up")
    lab.wait_for(
        "a word on the missing secrets", lambda: [b for b in lab.heartbeats() if "TPU-250" in b["message"]]
    )
    assert "tpuctl secret set CANARY_0" in lab.heartbeats()[0]["message"]
    assert lab.heartbeats()[0]["failures"] == 0
    store(lab, stored)
    lab.end(watch)
    watch = lab.start("watch")
    lab.wait_for("step 4", lambda: lab.at(4))
    assert found(lab, values) == []
    lab.tpuctl("local", "preempt", f"{lab.name}-tpu-g1")
    let_go(lab, 4)
    lab.wait_for("incarnation 2", lambda: lab.at(6, incarnation=2))
    let_go(lab, 6)
    lab.wait_for("a start after the failure", lambda: lab.at(12, incarnation=2, attempt=2))
    assert found(lab, values) == []
    let_go(lab, 12)
    for words in (("plan", "--json"), ("status", "--json"), ("explain",), ("cost",), ("logs",), ("report",)):
        lab.tpuctl(*words)
    assert found(lab, values) == []
    lab.end(watch)
    shown = lab.tpuctl("logs").out
    assert shown.count("[masked: CANARY_7]") >= 12
    assert "failed with [masked: CANARY_3]" in shown
    lab.tpuctl("down", "--yes")
    assert found(lab, values) == []
    requests = (lab.folder.parent / "requests").read_bytes()
    assert b"/upload/storage/v1/" in requests
    assert b"secret://CANARY_0" in requests, "the reference goes into the machine's metadata"
