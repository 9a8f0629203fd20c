"""Large files go up in parts: in little memory, over broken connections, and as they were or not at all."""

import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.metadata import Metadata
from orchestrator.agent.storage import JobBucket
from orchestrator.contract.machine_errors import AgentError, TornError, TransientError
from orchestrator.emulator.http.router import Request, Response, Router
from tests.agent.agent_lab import BUCKET, Lab

PART = 256 << 10
SIZE = 3 * PART + 1000
DATA = bytes(range(256)) * (SIZE // 256) + b"end" * 400
NAME = "checkpoints/step-1/model.bin"


@pytest.fixture(autouse=True)
def no_gcloud(monkeypatch):
    """The standard library has to do it."""
    monkeypatch.setattr("orchestrator.agent.gcloud.shutil.which", lambda _name: None)


def bucket_of(lab: Lab) -> JobBucket:
    """Return the agent's client of the lab's bucket, with small parts."""
    bucket = JobBucket.from_environ(
        BUCKET, {"STORAGE_EMULATOR_HOST": lab.url}, Metadata(lab.metadata.address)
    )
    bucket.part = PART
    return bucket


def a_file(folder: Path) -> Path:
    """Return a file of several parts, the last one shorter."""
    path = folder / "model.bin"
    path.write_bytes(DATA)
    return path


def puts(lab: Lab) -> list[Request]:
    """Note each part that is sent."""
    seen: list[Request] = []

    def fault(request: Request) -> Response | None:
        if request.method == "PUT":
            seen.append(request)
        return None

    lab.fault = fault
    return seen


def test_a_large_file_goes_up_in_parts(lab: Lab, tmp_path: Path) -> None:
    """The bucket holds its bytes, and no request was larger than one part."""
    seen = puts(lab)
    digest = bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert [len(request.body) for request in seen[:-1]] == [PART] * (len(DATA) // PART)
    assert sum(len(request.body) for request in seen) == len(DATA), "each byte was sent once"


@pytest.mark.parametrize("broken", [0, 1, 3], ids=["first", "second", "last"])
@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "answer lost"])
def test_a_part_that_fails_is_sent_again_and_nothing_else(lab, tmp_path, broken, arrives):
    """After a failure the bucket says how much it has, and all goes on from there."""
    seen: list[Request] = []

    answer = lab.answer

    def answered(router: Router, request: Request) -> Response:
        if request.method != "PUT":
            return answer(router, request)
        seen.append(request)
        if len(seen) - 1 != broken:
            return answer(router, request)
        if arrives:
            answer(router, request)
        return Response(503, b"")

    lab.answer = answered
    digest = bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA
    assert digest == hashlib.sha256(DATA).hexdigest()
    sent = sum(len(request.body) for request in seen)
    again = 0 if arrives else len(seen[broken].body)
    assert sent == len(DATA) + again


def test_a_session_that_is_forgotten_is_begun_anew(lab, tmp_path):
    """A 410 in the middle costs a second session, not the file."""
    told = []

    def fault(request: Request) -> Response | None:
        if request.method == "PUT" and len(told) < 2:
            told.append(request)
            return Response(410, b"") if len(told) == 2 else None
        return None

    lab.fault = fault
    bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA


def test_a_refusal_ends_the_upload(lab, tmp_path):
    """403 will be 403 again."""
    lab.fault = lambda request: Response(403, b"no") if request.method == "PUT" else None
    with pytest.raises(AgentError, match="403") as caught:
        bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert not isinstance(caught.value, TransientError)
    assert NAME not in lab.names()


def test_a_file_that_shrinks_is_torn(lab, tmp_path):
    """No object is made of a file that lost bytes while it was sent."""
    path = a_file(tmp_path)

    def fault(request: Request) -> Response | None:
        if request.method == "PUT":
            os.truncate(path, PART + 10)
        return None

    lab.fault = fault
    with pytest.raises(TornError):
        bucket_of(lab).upload(NAME, path, len(DATA))
    assert NAME not in lab.names()


MEASURED = """
import http.server, resource, sys, threading
from pathlib import Path
from orchestrator.agent import gcloud
from orchestrator.agent.metadata import Metadata
from orchestrator.agent.storage import JobBucket

gcloud.wanted_for = lambda name, size: False
path, size, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
got = 0

class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/session")
        self.send_header("Content-Length", "0")
        self.end_headers()
    def do_PUT(self):
        global got
        length = int(self.headers["Content-Length"])
        while length:
            block = self.rfile.read(min(length, 1 << 20))
            length -= len(block)
            got += len(block)
        body = b"" if got < size else b'{"size": "%d"}' % got
        self.send_response(308 if got < size else 200)
        if got < size:
            self.send_header("Range", f"bytes=0-{got - 1}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}"
bucket = JobBucket.from_environ("b", {"STORAGE_EMULATOR_HOST": base}, Metadata("127.0.0.1:1"))
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
bucket.upload("model", path, size)
print(got)
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    """
    A sparse file goes up under a limit of memory that it would not fit into.

    TPUCTL_LARGE_GB chooses another size: 10 for the ten gigabytes through 256 MB.
    """
    size = int(float(os.environ.get("TPUCTL_LARGE_GB", "0.4")) * (1 << 30))
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
    limit = 256 << 20
    assert size > limit
    assert resource.getrlimit(resource.RLIMIT_DATA)[1] in (resource.RLIM_INFINITY, -1)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(size), str(limit)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, str(size)), done.stderr
