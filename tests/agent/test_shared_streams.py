"""Parts of all files share a few streams: in order, in bounded memory, and nobody waits for ever."""

import base64
import hashlib
import http.server
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from orchestrator.agent.cloud import transfers
from orchestrator.agent.cloud.transfers import Streams

ROOT = Path(__file__).parents[2]


def test_results_come_in_order_and_no_more_parts_are_held_than_there_is_room_for():
    """Whoever is slow keeps the others from running ahead without end."""
    streams, alive, most, lock = Streams(3), 0, 0, threading.Lock()
    draw, ended = random.Random(6), [threading.Event() for _ in range(60)]
    # Of each three under way at once, each but the first ends after another: a later one is often done first.
    threes = [draw.sample(range(first, first + 3), 3) for first in range(0, 60, 3)]
    before = {one: earlier for three in threes for earlier, one in itertools.pairwise(three)}

    def ends(number):
        assert number not in before or ended[before[number]].wait(30)
        ended[number].set()
        return number

    def prepared(number):
        nonlocal alive, most
        with lock:
            alive += 1
            most = max(most, alive)
        return lambda: ends(number)

    found = []
    for one in streams.in_order(60, prepared):
        found.append(one)
        with lock:
            alive -= 1
    assert found == list(range(60))
    assert most <= 3 + transfers.AHEAD + 1


def test_files_that_travel_at_once_share_the_streams_and_never_wait_for_each_other_in_a_ring():
    """Twelve files through two streams, each of more parts than there is room for."""
    streams, found = Streams(2), {}

    def travel(file):
        found[file] = list(streams.in_order(20, lambda number: lambda: number))

    threads = [threading.Thread(target=travel, args=(file,), daemon=True) for file in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {file: list(range(20)) for file in range(12)}


def test_the_first_failure_ends_a_transfer_and_leaves_room_for_others():
    """Nothing is prepared after it, and the next file has all the room."""
    streams, begun = Streams(2), []

    def prepared(number):
        begun.append(number)
        return lambda: number if number < 4 else 1 // 0

    with pytest.raises(ZeroDivisionError):
        list(streams.in_order(100, prepared))
    assert max(begun) <= 4 + 2 + transfers.AHEAD
    for _ in range(10):
        assert list(streams.in_order(8, lambda number: lambda: number)) == list(range(8))


def test_a_part_that_cannot_be_prepared_takes_no_room_with_it():
    """A file that shrinks while it is read ends its own transfer only."""
    streams = Streams(2)
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            list(streams.in_order(3, lambda number: 1 // 0 if number else lambda: number))
    assert list(streams.in_order(8, lambda number: lambda: number)) == list(range(8))


class Sink(http.server.BaseHTTPRequestHandler):
    """Take parts without keeping them, join their sizes, and serve zeros."""

    sizes: "dict[str, int]" = {}  # noqa: RUF012 - one bucket for the test

    def _json(self, value: object) -> None:
        self._bytes(200, json.dumps(value).encode())

    def _bytes(self, status: int, data: bytes, headers: "dict[str, str] | None" = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _made(self, name: str, size: int, md5: "str | None" = None) -> None:
        self.sizes[name] = size
        self._json({"name": name, "size": str(size), "generation": "1", **({"md5Hash": md5} if md5 else {})})

    def do_POST(self) -> None:
        length, digest = int(self.headers["Content-Length"]), hashlib.md5(usedforsecurity=False)
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.endswith("/compose"):
            names = [one["name"] for one in json.loads(self.rfile.read(length))["sourceObjects"]]
            name = unquote(path.rpartition("/o/")[2].removesuffix("/compose"))
            return self._made(name, sum(self.sizes.pop(one) for one in names))
        size = length
        while length:
            block = self.rfile.read(min(length, 1 << 20))
            digest.update(block)
            length -= len(block)
        return self._made(query["name"][0], size, base64.b64encode(digest.digest()).decode())

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if "/o/" not in path:
            return self._json({"items": []} if path.endswith("/o") else {})
        size = self.sizes.get(unquote(path.rpartition("/o/")[2]))
        if "Range" not in self.headers:
            return self._json({"size": str(size), "generation": "1"}) if size else self._bytes(404, b"")
        start, end = (int(one) for one in self.headers["Range"].removeprefix("bytes=").split("-"))
        shown = {"Content-Range": f"bytes {start}-{end}/{size}"}
        return self._bytes(206, bytes(end + 1 - start), shown)

    def log_message(self, *_words: object) -> None:
        """Keep the test's output clean."""


MEASURED = """
import resource, sys
from pathlib import Path
from orchestrator.agent.cloud import transfers
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket

url, path, size, limit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
bucket = JobBucket.from_environ("b", {"STORAGE_EMULATOR_HOST": url}, Metadata("127.0.0.1:1"))
bucket._streams = transfers.Streams(4)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
digest = bucket.upload("model", path, size)
print(digest == bucket.download("model", path.with_name("copy"), size))
"""


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """
    A sparse file goes up and comes back under a limit of memory that it would not fit into.

    TPUCTL_LARGE_GB chooses another size: 10 for the ten gigabytes through 256 MB.
    """
    monkeypatch.setattr(Sink, "sizes", {})
    size, limit = int(float(os.environ.get("TPUCTL_LARGE_GB", "0.4")) * (1 << 30)), 256 << 20
    path = tmp_path / "sparse"
    with path.open("wb") as sparse:
        sparse.truncate(size)
    assert size > limit
    assert resource.getrlimit(resource.RLIMIT_DATA)[1] in (resource.RLIM_INFINITY, -1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        words = [f"http://127.0.0.1:{server.server_port}", str(path), str(size), str(limit)]
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=False, cwd=ROOT
        )
    finally:
        server.shutdown()
        server.server_close()
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
    (tmp_path / "copy").unlink()
