"""
Read step and loss from TensorBoard event files as they grow.

A file is a sequence of records: length (8 bytes, little endian), masked CRC-32C of the length, data, CRC of
the data (TensorFlow's tsl/lib/io/record_writer.h). The data is a protobuf Event: step is field 2, summary
field 5; a value of a summary has its tag in field 1 and its number in field 2 or in the tensor of field 8
(tensorboard/compat/proto/event.proto, summary.proto, tensor.proto).
"""

from __future__ import annotations

import os
import re
import struct
import threading
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional, Sequence, Tuple

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.telemetry.progress import ProgressReader
from orchestrator.contract.bucket.object_names import TENSORBOARD
from orchestrator.contract.printed.numbers import usable
from orchestrator.contract.protobuf import fields

PATTERN = "events.out.tfevents."
MAX_RECORD = 64 << 10
"""Bytes; larger records are images or histograms and are skipped."""
MAX_READ = 4 << 20
MAX_FILES = 64
MAX_ENTRIES = 5000
DEEPEST = 5
_HEAD = 12
_LOSS = re.compile(
    r"(?:^|[/_.])(?:(?:train|training|epoch|total|step|batch)[/_]?)?loss(?:_step|_epoch)?$", re.IGNORECASE
)
_EVAL = re.compile(
    r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?:[^a-z]|$)", re.IGNORECASE
)


class EventFiles:
    """The newest training loss below *folders*, from files written since the job started."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._since = 0.0
        self._read: Dict[str, int] = {}
        self.newest = ProgressReader()

    def begin(self, now: float) -> None:
        """Reset for a start of the job at *now*, in seconds since the epoch."""
        with self._lock:
            # Existing content belongs to an earlier start; only what is appended counts.
            self._read = {path: size for path, size, _ in self._files()}
            self._since, self.newest = now, ProgressReader()

    def read_new(self) -> None:
        """Read new records. Never raises: unreadable or malformed files are skipped."""
        with self._lock:
            for path, size, changed in self._files():
                # File system time stamps may lag behind our clock by up to a second.
                if changed >= self._since - 1.0 and size > self._read.get(path, 0):
                    self._tail(path)

    def _files(self) -> Iterator[Tuple[str, int, float]]:
        """Yield path, size and modification time of event files that are not from an evaluation."""
        found = 0
        for folder in self._folders:
            for path in _below(folder):
                if not path.name.startswith(PATTERN) or _EVAL.search(str(path.parent.relative_to(folder))):
                    continue
                try:
                    about = path.stat()
                except OSError:
                    continue
                found += 1
                if found > MAX_FILES:
                    return
                yield str(path), about.st_size, about.st_mtime

    def take(self, name: str, size: int, read: Callable[[int, int], bytes]) -> None:
        """
        Read the new part of a remote file of *size* bytes; *read* gets start and length.

        A file whose name has a time before the job's start is skipped. Raise what *read* raises.
        """
        begun = re.match(rf"{re.escape(PATTERN)}(\d+)\.", name.rpartition("/")[2])
        if begun is None or _EVAL.search(name.rpartition("/")[0]):
            return
        with self._lock:
            fresh = int(begun[1]) >= int(self._since) - 1 and size > self._read.get(name, 0)
        # Outside of the lock: the bucket may be slow, and the follower needs the newest step meanwhile.
        data = read(self._read.get(name, 0), MAX_READ) if fresh else b""
        with self._lock:
            self._walk(name, data)

    def _tail(self, path: str) -> None:
        try:
            with Path(path).open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read(MAX_READ)
        except OSError:
            return
        self._walk(path, data)

    def _walk(self, path: str, data: bytes) -> None:
        used = 0
        while len(data) - used >= _HEAD:
            length, check = struct.unpack_from("<QI", data, used)
            if masked_crc(data[used : used + 8]) != check:
                used = 1 << 62  # Not an event file, or a broken one: never read it again.
                break
            end = used + _HEAD + length + 4
            if end > len(data) and length <= MAX_RECORD:
                break  # The record is incomplete so far, or continues beyond this read.
            if length <= MAX_RECORD:
                self._take_record(data[used + _HEAD : used + _HEAD + length])
            used = end
        self._read[path] = self._read.get(path, 0) + used

    def _take_record(self, record: bytes) -> None:
        try:
            step, values = 0, []
            for number, value in fields(record):
                if number == 2 and isinstance(value, int):
                    step = value
                elif number == 5 and isinstance(value, bytes):
                    values += [part for n, part in fields(value) if n == 1 and isinstance(part, bytes)]
            for part in values:
                loss = scalar(part)
                if loss is not None and step < 10**15 and step >= (self.newest.step or 0):
                    self.newest = ProgressReader(step, loss if usable(loss) is not None else float("nan"))
        except (ValueError, IndexError, struct.error):
            return


def scalar(summary: bytes) -> Optional[float]:
    """Return the number of a Summary.Value with the tag of a training loss, else None. Raise ValueError."""
    found: Optional[float] = None
    tag = ""
    for number, value in fields(summary):
        if number == 1 and isinstance(value, bytes):
            tag = value[:200].decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            found = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            found = _tensor(value)
    return found if _LOSS.search(tag) and not _EVAL.search(tag) else None


def _tensor(data: bytes) -> Optional[float]:
    """Return the number in a TensorProto with a single float or double, else None."""
    kind = 0
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            size = {1: 4, 2: 8}.get(kind, 0)
            if len(value) == size and size:
                return float(struct.unpack("<f" if size == 4 else "<d", value)[0])
    return None


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, limited in depth and number. Never raises."""
    remaining = MAX_ENTRIES
    for here, folders, files in os.walk(folder):
        remaining -= len(folders) + len(files)
        if remaining < 0:
            return
        if here[len(str(folder)) :].count(os.sep) >= DEEPEST:
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in files:
            yield Path(here, name)


def _table() -> Tuple[int, ...]:
    rows = []
    for first in range(256):
        row = first
        for _ in range(8):
            row = (row >> 1) ^ (0x82F63B78 if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_ROWS = _table()


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of a few bytes, masked (rotated and offset) as in event files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _ROWS[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class BucketEvents:
    """Event files in the bucket: below TPUCTL_TENSORBOARD_DIR and, with `dir: bucket`, the checkpoint folder."""

    def __init__(self, settings: Settings, bucket: JobBucket, events: EventFiles) -> None:
        self._bucket = bucket
        self._events = events
        inside = settings.checkpoints.prefix(bucket.prefix) if settings.checkpoints.in_bucket else ""
        self._prefixes = (TENSORBOARD, *([inside] if inside else []))

    def read_new(self) -> None:
        """Read new records. Raise AgentError and OSError."""
        for prefix in self._prefixes:
            sizes = self._bucket.sizes(prefix)
            names = sorted((one for one in sizes if one.rpartition("/")[2].startswith(PATTERN)), key=_begun)
            for name in names[-MAX_FILES:]:
                self._events.take(name, sizes[name], partial(self._bucket.read_from, name))


def _begun(name: str) -> str:
    """Return the time part of a file name, whose digits sort correctly for the next 250 years."""
    return name.rpartition("/")[2]
