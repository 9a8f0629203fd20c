"""
Move large files between disk and bucket in parts, several at a time and in bounded memory.

Protocol: Cloud Storage JSON API, ranged reads of one generation, and `compose` (docs/facts.md 3.1).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, Generator, List, Optional, Protocol, Sequence, Tuple, TypeVar

from orchestrator.agent.cloud.transport import Reply, seconds_of
from orchestrator.contract.machine_errors import AgentError, PreconditionError, TornError, TransientError

SMALLEST_PART, LARGEST_PART = 8 << 20, 32 << 20
MOST_STREAMS = 16
AHEAD = 2
"""Parts in memory beside those that travel: one is read or hashed while the others are sent."""
SOURCES = 32
"""Objects that one compose takes (docs/facts.md 3.1)."""
PARTS = ".tpuctl-parts/"
"""What the names of an upload's parts have behind the name of the file that they become."""
REPLACED = 3
"""How often a download begins anew because the object was replaced meanwhile."""
POLYNOMIAL = 0x82F63B78
"""That of CRC-32C, its lowest power first."""

PART_SECONDS, SWEEP_SECONDS = 90.0, 10.0
"""How long one part is tried, and how long each step of tidying up."""
ABANDONED = 24 * 3600.0

T = TypeVar("T")


def part_size(size: int) -> int:
    """Return the bytes of one part of a file of *size* bytes: large files have larger parts, not more memory."""
    return min(LARGEST_PART, max(SMALLEST_PART, -(-size // SOURCES)))


class Streams:
    """Make the calls that move parts: of all files together *most* at a time, in threads that begin as needed."""

    def __init__(self, most: int = 0) -> None:
        self._most = most or min(MOST_STREAMS, max(4, os.cpu_count() or 1))
        self._room = threading.BoundedSemaphore(self._most + AHEAD)
        self._queue: SimpleQueue[Tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def in_order(self, count: int, prepared: Callable[[int], Callable[[], T]]) -> Generator[T, None, None]:
        """
        Yield what the calls return that *prepared* makes of 0 to *count* - 1, in this order; raise what one raises.

        A call is prepared when there is room for its part, which is held until the next result is asked for.
        When it ends early, what has begun is waited for.
        """
        waiting: Deque[Future[T]] = deque()
        try:
            for number in range(count):
                # Who has a part under way lets it out before he waits for room: so nobody waits for another.
                while not self._room.acquire(blocking=not waiting):
                    yield waiting[0].result()
                    self._let_out(waiting)
                try:
                    call = prepared(number)
                except BaseException:
                    self._room.release()
                    raise
                waiting.append(self._begin(call))
                # Else the part would stay in memory here too.
                del call
            while waiting:
                yield waiting[0].result()
                self._let_out(waiting)
        finally:
            for future in waiting:
                future.cancel()
            while waiting:
                with contextlib.suppress(BaseException):
                    waiting[0].result()
                self._let_out(waiting)

    def _let_out(self, waiting: Deque[Future[T]]) -> None:
        waiting.popleft()
        self._room.release()

    def _begin(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((future, call))
        with self._lock:
            if self._threads < self._most:
                self._threads += 1
                # The end of the process does not wait for them: a notice leaves no time to end a transfer.
                threading.Thread(target=self._work, name="stream", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, call = self._queue.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            # Else the part would stay in memory until the next call comes.
            del future, call


class ReplacedError(AgentError):
    """Say that the generation which is read is gone."""


class BucketCalls(Protocol):
    """What transfers need of a bucket: calls that retry within their time."""

    def stat(self, name: str) -> Optional[Dict[str, Any]]:
        """Return the object's resource, or None when it is not there."""

    def read_range(self, name: str, generation: str, start: int, end: int, size: int) -> bytes:
        """Return bytes of one generation of an object of *size* bytes. Raises ReplacedError when it is gone."""

    def insert(self, name: str, data: bytes, if_generation: Optional[int], seconds: float) -> Dict[str, Any]:
        """Write an object, check what the bucket says of it, and return its resource."""

    def compose(self, name: str, body: Dict[str, Any], if_generation: int) -> Optional[Dict[str, Any]]:
        """Join objects and return what has become of them; None when one is not there."""

    def objects(self, prefix: str, seconds: float) -> List[Dict[str, Any]]:
        """Return the resources of all objects under *prefix*."""

    def delete(self, name: str, if_generation: Optional[int], seconds: float) -> None:
        """Delete an object; one that is gone is fine."""


def download(bucket: BucketCalls, streams: Streams, name: str, path: Path, size: int, kind: str) -> str:
    """
    Write an object of *size* bytes to a file and return its digest; *kind* is a name that hashlib knows.

    All bytes are of one generation: when the object is replaced meanwhile, all begins anew. Raises TornError
    when it is not there or has another size.
    """
    for _ in range(REPLACED):
        held = bucket.stat(name)
        if held is None:
            raise TornError(f"{name} is not there")
        if int(held["size"]) != size:
            raise TornError(f"{name} has {held['size']} bytes, not {size}")
        try:
            return _of_generation(bucket, streams, name, str(held["generation"]), path, size, kind)
        except ReplacedError:
            continue
    raise TornError(f"{name} changes faster than it can be read")


def _of_generation(
    bucket: BucketCalls, streams: Streams, name: str, generation: str, path: Path, size: int, kind: str
) -> str:
    digest, part = hashlib.new(kind), part_size(size)
    with path.open("wb") as file:

        def prepared(number: int) -> Callable[[], bytes]:
            start = number * part

            def bring() -> bytes:
                data = bucket.read_range(name, generation, start, min(start + part, size), size)
                _write_at(file.fileno(), data, start)
                return data

            return bring

        # Closed before the file is: nothing may be written under a number that another file has by then.
        with contextlib.closing(streams.in_order(-(-size // part), prepared)) as parts:
            for data in parts:
                digest.update(data)
        # The caller renames the file: without it the name could outlive a loss of power, and the bytes not.
        os.fsync(file.fileno())
    return digest.hexdigest()


def check_range(reply: Reply, generation: str, start: int, end: int, size: int) -> None:
    """Raise ReplacedError or TransientError unless the answer holds just these bytes of this generation."""
    if reply.status == 404 or reply.headers.get("x-goog-generation", generation) != generation:
        raise ReplacedError(f"generation {generation} is gone")
    shown = reply.headers.get("content-range", "")
    if reply.status != 206 or shown != f"bytes {start}-{end - 1}/{size}":
        raise TransientError(f"a range was requested, and the answer is {reply.status} {shown}")
    if len(reply.body) != end - start:
        raise TransientError(f"{len(reply.body)} of the {end - start} bytes of a range came")


def _write_at(file: int, data: bytes, start: int) -> None:
    view, at = memoryview(data), start
    while at < start + len(data):
        at += os.pwrite(file, view[at - start :], at)


@dataclass(frozen=True)
class StoredPart:
    """Name a part that lies in the bucket; *crc* is the bucket's CRC-32C of it, None where it shows none."""

    name: str
    generation: str
    size: int
    crc: Optional[int]

    @classmethod
    def of(cls, name: str, resource: Dict[str, Any]) -> StoredPart:
        """Read the part's resource."""
        shown = resource.get("crc32c")
        crc = int.from_bytes(base64.b64decode(shown), "big") if shown else None
        return cls(name, str(resource["generation"]), int(resource["size"]), crc)


def upload(bucket: BucketCalls, streams: Streams, name: str, path: Path, size: int) -> str:
    """
    Send a file in parts, let the bucket join them, and return the sha256 of what was sent.

    The object appears whole or not at all. A process that is killed leaves parts, which count for nothing: a
    later upload of that name removes them, and so does whatever removes the object's folder.
    """
    # Never two uploads under one name: the parts of another process are not taken for ours.
    mine = f"{name}{PARTS}{uuid.uuid4().hex[:12]}/"
    held = bucket.stat(name)
    before = int(held["generation"]) if held is not None else 0
    try:
        parts, digest = _send(bucket, streams, mine, path, size)
        level = 0
        while len(parts) > SOURCES:
            level += 1
            parts = _joined(bucket, streams, f"{mine}{level}-", parts)
        _join(bucket, name, parts, before)
    finally:
        # The bucket itself removes the parts that it has joined; this is for the rest.
        with contextlib.suppress(AgentError):
            _sweep(bucket, f"{name}{PARTS}", mine)
    return digest


def _send(
    bucket: BucketCalls, streams: Streams, mine: str, path: Path, size: int
) -> Tuple[List[StoredPart], str]:
    digest, part = hashlib.sha256(), part_size(size)
    with path.open("rb") as file:

        def prepared(number: int) -> Callable[[], StoredPart]:
            # Read once: what is hashed is what is sent, though the file may change meanwhile.
            wanted = min(part, size - number * part)
            data = file.read(wanted)
            if len(data) != wanted:
                raise TornError(f"{path} changed while it was read")
            digest.update(data)
            name = f"{mine}{number:06d}"
            return lambda: StoredPart.of(name, bucket.insert(name, data, None, PART_SECONDS))

        return list(streams.in_order(-(-size // part), prepared)), digest.hexdigest()


def _joined(bucket: BucketCalls, streams: Streams, start: str, parts: List[StoredPart]) -> List[StoredPart]:
    """Join each group of as many parts as one call takes."""

    def prepared(number: int) -> Callable[[], StoredPart]:
        group = parts[number * SOURCES : (number + 1) * SOURCES]
        return lambda: _join(bucket, f"{start}{number:06d}", group, 0)

    return list(streams.in_order(-(-len(parts) // SOURCES), prepared))


def _join(bucket: BucketCalls, name: str, parts: List[StoredPart], before: int) -> StoredPart:
    """Compose an object whose generation was *before*. A call that is repeated may meet its own success."""
    sources = [{"name": one.name, "generation": one.generation} for one in parts]
    # The parts go with the call that makes them needless: killed after it, nothing of them is left.
    body = {"sourceObjects": sources, "destination": {}, "deleteSourceObjects": True}
    refused: AgentError = TransientError(f"{name}: a part of it is gone")
    try:
        made = bucket.compose(name, body, before)
    except PreconditionError as error:
        made, refused = None, error
    found = made or bucket.stat(name)
    size, crc = sum(one.size for one in parts), joined_crc(parts)
    if found is not None:
        one = StoredPart.of(name, found)
        # Composed objects have no md5; where the bucket shows no sums at all, the size has to do.
        if one.size == size and (one.crc == crc or (made and None in (crc, one.crc))):
            return one
    if made is None:
        raise refused
    raise TornError(f"{name}: the bucket has joined other bytes than were sent")


def _sweep(bucket: BucketCalls, prefix: str, mine: str) -> None:
    """Delete our parts, and those of an upload that nobody can be at any more."""
    for item in bucket.objects(prefix, SWEEP_SECONDS):
        if item["name"].startswith(mine) or time.time() - seconds_of(item["updated"]) > ABANDONED:
            bucket.delete(item["name"], int(item["generation"]), SWEEP_SECONDS)


def joined_crc(parts: Sequence[StoredPart]) -> Optional[int]:
    """Return the CRC-32C of all parts together, None when that of one is not known."""
    total = 0
    for one in parts:
        if one.crc is None:
            return None
        total = _times(_power_of_x(8 * one.size), total) ^ one.crc
    return total


def _times(one: int, other: int) -> int:
    """Multiply two polynomials over GF(2), modulo that of CRC-32C; the lowest power is the highest bit."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = (other >> 1) ^ (POLYNOMIAL if other & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    power, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            power = _times(power, square)
        square = _times(square, square)
        exponent >>= 1
    return power
