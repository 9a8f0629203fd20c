"""
What the job saved and no checkpoint contains: its names in the bucket, and the manifest that tells of it.

    unclaimed/g1/w0/checkpoints/ckpt.pt    a file as it was on worker 0 of TPU #1
    unclaimed/g1/w0.manifest.json          names, sizes, sha256; `complete` when nothing is missing

An object that a manifest names is never overwritten: of another content it gets another name.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Tuple

from orchestrator.contract.bucket.limits import MAX_WORKERS
from orchestrator.contract.bucket.manifest import SHA256, is_plain, size_of, time_of
from orchestrator.contract.bucket.object_names import UNCOMMITTED
from orchestrator.contract.machine_errors import DamagedError

SCHEMA = 1
ENDED = "ended"
"""What manifests call `RescueMoment.UNCOMMITTED`."""
_NAME = re.compile(rf"{UNCOMMITTED}g(\d{{1,9}})/w(\d{{1,4}})\.manifest\.json")


class RescueMoment(enum.Enum):
    """
    The moment at which files were uploaded.

    UNCOMMITTED: the job exited with status 0 and nothing was committed. BESIDE: it is done, and these files lay
    beside its checkpoints. FAILED: it was given up. NOTICE: the machine was preempted.
    """

    UNCOMMITTED = "uncommitted"
    BESIDE = "beside"
    FAILED = "failed"
    NOTICE = "notice"


class FolderKind(enum.Enum):
    """
    The kind of folder in which a file lay; the value is the first folder of its name.

    QUARANTINE is where doubtful checkpoints are moved, WORK the source folder, HOME the job's home.
    """

    CHECKPOINTS = "checkpoints"
    QUARANTINE = "quarantine"
    WORK = "work"
    HOME = "home"


class Skip(enum.Enum):
    """Why a file was not uploaded."""

    SYMLINK = "symlink"
    SPECIAL = "special"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    NAME = "name"
    TOO_MANY = "too many"


@dataclass(frozen=True)
class UncommittedFile:
    """
    One file by kind of folder and path, with its size in bytes, its sha256 in hex and its object.

    *sha256* is empty for an object that the job wrote to the bucket itself.
    """

    name: str
    size: int
    sha256: str
    object: str


@dataclass(frozen=True)
class Skipped:
    """A file that was not uploaded."""

    name: str
    reason: Skip


@dataclass(frozen=True)
class UncommittedManifest:
    """
    What one worker has uploaded; *format* is the one in the deployment file.

    *complete* is False while files may be missing. *bundle* and *settings* identify the job; *attempt* is the
    gang's, *at* is by the worker's clock.
    """

    incarnation: int
    worker: int
    workers: int
    attempt: int
    bundle: str
    settings: str
    format: str
    moment: RescueMoment
    complete: bool
    files: Tuple[UncommittedFile, ...]
    skipped: Tuple[Skipped, ...]
    at: float

    @property
    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(one.size for one in self.files)

    def text(self) -> str:
        """Return the manifest as JSON."""
        skipped = [{"name": one.name, "why": one.reason.value} for one in self.skipped]
        body = {"schema": SCHEMA, **asdict(replace(self, skipped=())), "skipped": skipped}
        # The stored key of both is the older word, which earlier versions read, and so is one value.
        moment = body.pop("moment")
        body["why"] = ENDED if moment is RescueMoment.UNCOMMITTED else moment.value
        return json.dumps(body, sort_keys=True)


def folder_name(incarnation: int, worker: int, try_: int = 1) -> str:
    """Return the prefix of one worker's files; larger *try_* numbers are for names that are taken."""
    return f"{UNCOMMITTED}g{incarnation}/w{worker}{'' if try_ == 1 else f'.{try_}'}/"


def manifest_name(incarnation: int, worker: int) -> str:
    """Return the object name of one worker's manifest."""
    return f"{UNCOMMITTED}g{incarnation}/w{worker}.manifest.json"


def parse_name(name: str) -> Optional[Tuple[int, int]]:
    """Return incarnation and worker from a manifest's object name, None for any other name."""
    match = _NAME.fullmatch(name)
    found = (int(match[1]), int(match[2])) if match else None
    # `w00`, or digits of another script, would be a second manifest of one worker.
    return found if found and manifest_name(*found) == name else None


def parse(data: bytes, where: str) -> UncommittedManifest:
    """Parse a manifest. Raise DamagedError if it is not valid, or if a name leads out of its folder."""
    try:
        value: Dict[str, Any] = json.loads(data)
        return _uncommitted(value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{where} is not a manifest: {error}") from error


def _uncommitted(value: Mapping[str, Any]) -> UncommittedManifest:
    if value["schema"] != SCHEMA:
        raise ValueError(f"schema {value['schema']!r} is not {SCHEMA}")
    if not 0 <= int(value["worker"]) < int(value["workers"]) <= MAX_WORKERS:
        raise ValueError("it is of a worker that cannot be")
    files = tuple(_file(one) for one in value["files"])
    if len({PurePosixPath(one.name) for one in files}) < len(files):
        raise ValueError("two files of one name")
    return UncommittedManifest(
        incarnation=int(value["incarnation"]),
        worker=int(value["worker"]),
        workers=int(value["workers"]),
        attempt=int(value["attempt"]),
        bundle=str(value["bundle"]),
        settings=str(value["settings"]),
        format=str(value["format"]),
        moment=RescueMoment.UNCOMMITTED if value["why"] == ENDED else RescueMoment(value["why"]),
        complete=value["complete"] is True,
        files=files,
        skipped=tuple(Skipped(str(one["name"]), Skip(one["why"])) for one in value["skipped"]),
        at=time_of(value["at"]),
    )


def _file(value: Mapping[str, Any]) -> UncommittedFile:
    name, sha256, object_name = value["name"], value["sha256"], str(value["object"])
    if not is_plain(name) or not is_plain(object_name) or (sha256 and not SHA256.fullmatch(sha256)):
        raise ValueError(f"file {name!r}")
    # A lone surrogate (JSON may hold one) is in the name of no object and no file.
    (name + object_name).encode()
    return UncommittedFile(name, size_of(value["size"]), sha256, object_name)


def free_name(incarnation: int, worker: int, name: str, taken: Mapping[str, UncommittedFile]) -> str:
    """Return an object name for a file that no manifest names yet."""
    try_ = 1
    # Never overwrite an object that a manifest names: another agent's manifest may rely on its bytes.
    while folder_name(incarnation, worker, try_) + name in taken:
        try_ += 1
    return folder_name(incarnation, worker, try_) + name


def ended_before(
    manifests: List[UncommittedManifest], incarnation: int, bundle: str, settings: str
) -> Tuple[UncommittedManifest, ...]:
    """
    Return the manifests of the newest earlier incarnation whose job ended with status 0 and is fully saved.

    Empty if there is none, or if it was another job than *bundle* with *settings*.
    """
    earlier = [one for one in manifests if one.incarnation < incarnation]
    newest = max((one.incarnation for one in earlier), default=0)
    found = sorted((one for one in earlier if one.incarnation == newest), key=lambda one: one.worker)
    if not found or not settings:
        return ()
    # A worker that has uploaded nothing might still train, so it is not certain that the job has ended.
    whole = {one.worker for one in found} == set(range(found[0].workers))
    same = all(
        one.complete
        and one.moment is RescueMoment.UNCOMMITTED
        and (one.bundle, one.settings) == (bundle, settings)
        for one in found
    )
    return tuple(found) if whole and same else ()


def outputs_before(
    manifests: List[UncommittedManifest], worker: int, incarnation: int, job: Tuple[str, str, int]
) -> Dict[str, UncommittedFile]:
    """
    Return, by name, what one worker's earlier machines uploaded at a notice, for the same *job* only. Pure.

    *job* is bundle, settings and number of workers. The newest complete manifest names everything that a
    machine had; a later one that was cut short adds what it names. *manifests* are in ascending order.
    """
    found: Dict[str, UncommittedFile] = {}
    for one in manifests:
        if one.worker != worker or one.incarnation >= incarnation:
            continue
        same = (one.bundle, one.settings, one.workers) == job and bool(one.settings)
        # A complete one names all that its machine had. After another job, or an end, nothing earlier counts.
        if not same or one.moment is not RescueMoment.NOTICE or one.complete:
            found = {}
        if same and one.moment is RescueMoment.NOTICE:
            found.update((one_file.name, one_file) for one_file in one.files)
    return found
