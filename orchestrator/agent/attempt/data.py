"""
Download the job's data once and keep it on the machine.

The file list is part of the bundle. Files from the user's computer are in the deployment's bucket under their
sha256. A folder of another bucket is listed here, and its files are compared with the checksums that the
bucket shows.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

from orchestrator.agent.cloud import gcloud
from orchestrator.agent.cloud.storage import TIMEOUT, JobBucket
from orchestrator.agent.cloud.transport import retrying
from orchestrator.agent.context import AgentContext
from orchestrator.agent.end_requests import AgentMustEnd
from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.agent.side_threads import SideThread, each
from orchestrator.contract.bucket.object_names import DATA, DATA_LIST
from orchestrator.contract.file_checksum import digest_of
from orchestrator.contract.machine_errors import AgentError, DamagedError, FinalError, TransientError
from orchestrator.contract.replacing import write_atomically

PARALLEL = 8
_PART = ".tpuctl-part-"
_KNOWN = Tuple[int, int, str]


@dataclass(frozen=True)
class WantedData:
    """
    One file: its path relative to the data folder, its source, and its checksum.

    *total* is `sha256:` and hex, `md5:` and hex, or `crc32c:` and base64 if the bucket has no other sum.
    """

    relative: str
    size: int
    bucket: str
    name: str
    total: str


class JobData:
    """The data of the bundle in use, on this machine."""

    def __init__(self, layout: Layout, bucket: JobBucket) -> None:
        self._layout = layout
        self._bucket = bucket
        self._known: Dict[str, _KNOWN] = {}
        self._lock = threading.Lock()
        self.done = 0
        self.wanted = 0
        self.stop = threading.Event()

    def wants(self) -> bool:
        """Return whether the bundle in use has a data list."""
        return (self._layout.current / DATA_LIST).is_file()

    def download(self) -> None:
        """
        Download all files, verify them, and link them into the source folder.

        Raise OSError or TransientError for failures that a retry may fix, FinalError for the others.
        """
        sets = self._sets()
        files = [file for name, source, held in sets for file in self._files(name, source, held)]
        self._recall()
        self._drop({file.relative for file in files})
        missing = [file for file in files if not self._has(file)]
        self.wanted = sum(file.size for file in files)
        self.done = self.wanted - sum(file.size for file in missing)
        self._check_room(missing)
        try:
            each(self._fetch, missing, PARALLEL, self.stop)
        finally:
            self._remember()
        for name, _, _ in sets:
            _show(self._layout.data / name, self._layout.current.resolve() / name)

    def _sets(self) -> List[Tuple[str, str, List[Dict[str, object]]]]:
        """Return name, source ("" for the user's computer) and files of each data set. Raise DamagedError."""
        body = read_json(self._layout.current / DATA_LIST)
        try:
            found = [(str(one["name"]), str(one["source"]), list(one["files"])) for one in body["sets"]]
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{DATA_LIST} in the bundle cannot be read") from error
        for name, _, held in found:
            for relative in (name, *(f"{name}/{one['name']}" for one in held)):
                if relative.startswith("/") or {"", ".", ".."} & set(relative.split("/")):
                    raise DamagedError(f"{DATA_LIST} names {relative!r}, which is not a path below a folder")
        return found

    def _files(self, name: str, source: str, held: List[Dict[str, object]]) -> Iterator[WantedData]:
        if not source:
            for one in held:
                total = str(one["sha256"])
                size = int(str(one["size"]))
                yield WantedData(
                    f"{name}/{one['name']}",
                    size,
                    self._bucket.name,
                    self._bucket.prefix + DATA + total,
                    f"sha256:{total}",
                )
            return
        bucket, _, prefix = source[len("gs://") :].partition("/")
        prefix = prefix.rstrip("/")
        found = list(self._listed(name, source, bucket, prefix))
        if not found:
            raise FinalError(f"{source} holds no objects")
        yield from found

    def _listed(self, name: str, source: str, bucket: str, prefix: str) -> Iterator[WantedData]:
        """Yield the objects of a folder of any bucket, or the one object of that name. Raise FinalError."""
        try:
            items = self._bucket.other(bucket).objects(prefix)
        except TransientError:
            raise
        except AgentError as error:
            raise FinalError(f"{source} cannot be listed by the account of this machine: {error}") from error
        for item in items:
            inner = item["name"][len(prefix) :] if prefix else item["name"]
            if inner == "" and item["name"]:
                inner = prefix.rpartition("/")[2]
            elif prefix and not inner.startswith("/"):
                continue
            inner = inner.lstrip("/")
            if item["name"].endswith("/") or {"", ".", ".."} & set(inner.split("/")):
                continue
            yield WantedData(f"{name}/{inner}", int(item["size"]), bucket, item["name"], _sum_of(item))

    def _check_room(self, missing: List[WantedData]) -> None:
        self._layout.data.mkdir(parents=True, exist_ok=True)
        need, free = sum(file.size for file in missing), shutil.disk_usage(str(self._layout.data)).free
        if need > free:
            raise FinalError(
                f"{need / 1e9:.1f} GB are still to come, and the disk has room for {free / 1e9:.1f} GB"
            )

    def _has(self, file: WantedData) -> bool:
        """Return whether the file exists and is right; it is read again only if it changed since the last check."""
        path = self._layout.data / file.relative
        try:
            # lstat: a symlink that the job has placed there may lead anywhere.
            found = path.lstat()
        except OSError:
            return False
        if path.is_symlink() or not path.is_file() or found.st_size != file.size:
            return False
        if self._known.get(file.relative) == (found.st_size, found.st_mtime_ns, file.total):
            return True
        # After a notice, the last seconds must not go into hashing files that are already here.
        if self.stop.is_set() or not _fits(path, file.total):
            return False
        self._known[file.relative] = (found.st_size, found.st_mtime_ns, file.total)
        return True

    def _fetch(self, file: WantedData) -> None:
        path = self._layout.data / file.relative
        # Never through a link: its target is not ours to delete (rmtree refuses links, too).
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder as the file, because a rename cannot cross file systems.
        part = path.with_name(
            _PART + hashlib.sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest()
        )
        address, (kind, _, wanted) = f"gs://{file.bucket}/{file.name}", file.total.partition(":")
        found = wanted
        if kind != "crc32c":
            found = self._bucket.other(file.bucket).download(file.name, part, file.size, kind)
        elif gcloud.wanted_for(file.name, file.size):
            retrying(lambda _remaining: gcloud.copy(address, str(part), file.size), 2 * TIMEOUT)
        else:
            self._bucket.other(file.bucket).download(file.name, part, file.size)
        held = part.stat().st_size
        if held != file.size:
            raise DamagedError(f"{address} has {held} bytes, not {file.size}")
        if found != wanted:
            raise DamagedError(f"{address} is not what its checksum says")
        # Renamed after the checksum. A kill leaves a part, which the next try overwrites from its start.
        part.replace(path)
        status = path.stat()
        with self._lock:
            self._known[file.relative] = (status.st_size, status.st_mtime_ns, file.total)
            self.done += file.size

    def _recall(self) -> None:
        """Load the state of verified files from earlier starts."""
        self._known = {}
        for relative, value in read_json(self._layout.data_state).items():
            if isinstance(value, list) and len(value) == 3:
                self._known[relative] = (int(value[0]), int(value[1]), str(value[2]))

    def _remember(self) -> None:
        with self._lock:
            text = json.dumps(self._known)
        write_atomically(self._layout.data_state, text)

    def _drop(self, wanted: Set[str]) -> None:
        """Delete downloaded files that the present code does not want; files that the job wrote stay."""
        for relative in sorted(set(self._known) - wanted):
            path = self._layout.data / relative
            with contextlib.suppress(OSError):
                # The job may have moved or deleted it.
                path.unlink()
            for folder in path.parents:
                if folder == self._layout.data:
                    break
                try:
                    folder.rmdir()
                except OSError:
                    break  # The folder is not empty.
            del self._known[relative]


def _sum_of(item: Dict[str, str]) -> str:
    if item.get("md5Hash"):
        return "md5:" + base64.b64decode(item["md5Hash"]).hex()
    # Composed objects have no md5. Large ones are downloaded by gcloud, which verifies the crc32c itself.
    return "crc32c:" + item.get("crc32c", "")


def _fits(path: Path, total: str) -> bool:
    """Return whether a file has this checksum; False for a crc32c, which is too slow to compute here."""
    kind, _, wanted = total.partition(":")
    if kind not in ("sha256", "md5"):
        return False
    return digest_of(path, kind) == wanted


def _show(held: Path, code: Path) -> None:
    """Link *code*, a path in the source folder, to *held*; whatever the code itself has there stays."""
    if code.is_symlink():
        return
    if not code.exists():
        code.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # `agent.pyz fetch` of a push may have created the link since the check above.
            code.symlink_to(held)
    elif code.is_dir() and held.is_dir():
        for child in held.iterdir():
            if not child.name.startswith(_PART):
                _show(child, code / child.name)


TICK = 0.1
"""Seconds between two checks of the download; a notice ends the wait at once."""
REPORT_EVERY = 2.0
"""Least seconds between two reports of the bytes that have come, where the heartbeat is faster."""


def download_data(context: AgentContext) -> Optional[JobOutcome]:
    """
    Provide the data that the code asks for; return an outcome if that fails, else None.

    Raise AgentMustEnd as soon as the agent must end; files downloaded by then are kept.
    """
    data = JobData(context.settings.layout, context.shared)
    if not data.wants():
        return None
    context.heartbeat.time("data_began")
    thread = SideThread("data", lambda: context.patiently("download the data", data.download))
    reported_at = 0.0
    try:
        while thread.is_alive():
            context.end_requests.wait(TICK)
            if context.clock.monotonic() - reported_at >= max(
                REPORT_EVERY, context.settings.heartbeat_interval
            ):
                reported_at = context.clock.monotonic()
                context.heartbeat.set(
                    message=f"data: {data.done / 1e9:.2f} of {data.wanted / 1e9:.2f} GB are here"
                )
    except AgentMustEnd:
        data.stop.set()
        raise
    context.heartbeat.set(message="")
    if isinstance(thread.failed, FinalError):
        return JobOutcome(JobOutcomeKind.FAILED, f"data: {thread.failed}")
    thread.result()
    context.heartbeat.time("data_done")
    return None
