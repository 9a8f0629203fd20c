"""Kill real processes at each of their steps, and let another one come back; the state is checked on the server."""

import json
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from orchestrator.domain.remote_script import RemoteScript
from orchestrator.emulator.http.router import Request
from tests.crash.crash_lab import HERE
from tests.crash.explore import begun
from tests.crash.remote_commands import CONTROL

ROOT = Path(__file__).parents[2]


class Handler(BaseHTTPRequestHandler):
    """Answer for a lab: Google's calls, and those about time and machines."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        lab = self.server.lab
        if self.path.startswith(CONTROL):
            with lab.cloud.lock:
                said = control(lab, self.path.removeprefix(CONTROL), json.loads(body))
            self._answer(200, {"content-type": "application/json"}, json.dumps(said).encode())
            return
        asked = Request.parse(self.command, self.path, dict(self.headers.items()), body)
        answer = lab.wire.answer(asked)
        self._answer(answer.status, answer.headers, answer.body)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names that the base class looks for

    def _chunks(self):
        """Read a body of unknown length."""
        pieces = []
        if self.headers.get("transfer-encoding", "") == "chunked":
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status not in {204, 304}:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        """Say nothing: a call is no news."""


def control(lab, what, about):
    """Do what another process asks of the lab."""
    if what == "report":
        lab.cloud.tick()
        lab.machines.report()
    elif what == "startup":
        lab.remote.put([], about["text"].encode(), "startup", 0o700)
    elif what == "start":
        script = RemoteScript(**about["script"])
        lab.remote.run_elevated([AddressHost(address) for address in about["addresses"]], script, 0)
    else:
        lab.clock.advance(about["seconds"])
    return {"now": lab.clock.now(), "elapsed": lab.clock.monotonic()}


class AddressHost:
    """Name a host by its address."""

    def __init__(self, address):
        self.address = address


class Quiet(ThreadingHTTPServer):
    """Serve a lab; a client that was killed is no news."""

    daemon_threads = True

    def get_request(self):
        line, address = super().get_request()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line, address

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


@contextmanager
def served():
    """Yield a server that answers for whichever lab it is given."""
    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Far:
    """Request commands from the process that forks, and hear how they end."""

    def __init__(self, server):
        self._server = server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.remote_commands", str(server.server_address[1])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def request(self, lab, *, way=None, place=HERE, at=0):
        """Run one command; return what it said and how it ended."""
        about = {"scenario": lab.scenario.name, "way": way, "place": place, "at": at}
        about |= {"bucket": lab.bucket, "folder": str(lab.folder), "port": self._server.server_address[1]}
        self._server.lab = lab
        self._process.stdin.write(json.dumps(about).encode() + b"\n")
        self._process.stdin.flush()
        said = {}
        while "signal" not in said:
            said |= json.loads(self._process.stdout.readline())
        return said

    def close(self):
        """End the process that forks."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@contextmanager
def far():
    """Yield what requests commands as real processes."""
    with served() as server:
        found = Far(server)
        try:
            yield found
        finally:
            found.close()


def real_singles(folder, scenario, found, requests, *, every=1, first=1, latency="scaled"):
    """Kill a real process at each of *every* so many steps; a fresh one goes on, and all must be well."""
    lab = begun(folder, scenario, latency=latency)
    start = lab.freeze()
    whole = requests.request(lab)
    assert "points" in whole, f"{scenario.name} without a kill: {whole}"
    found.points = whole["points"]
    for at in range(first, whole["points"] + 1, every):
        lab.thaw(start)
        died = requests.request(lab, at=at)
        try:
            # Threads race, so that a run may be over one step earlier than the one before.
            assert died["signal"] == signal.SIGKILL or died.get("points", 0) < at, died
            ended = requests.request(lab, way=0)
            assert "points" in ended, ended
            scenario.ways[0].check(lab, scenario, lab.before)
        except Exception as error:  # each violation is reported with its point, whatever it is
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"SIGKILL {died.get('killed', at)}: {type(error).__name__}: {error}"
            found.violations.append(f"{text} ({where.name}:{where.lineno})")
        found.singles += 1
