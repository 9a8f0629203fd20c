"""Define the manifest: a worker's checkpoint exists once its manifest is written."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Dict, Iterable, List, Optional, Tuple, TypeVar

from orchestrator.contract.bucket.limits import LATEST_TIME, MAX_INT, MAX_WORKERS
from orchestrator.contract.bucket.object_names import CHECKPOINTS
from orchestrator.contract.machine_errors import DamagedError

SCHEMA = 1
_NAME = re.compile(rf"{CHECKPOINTS}(\d{{8,15}})/g(\d{{1,9}})/w(\d{{1,4}})\.manifest\.json")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_LINKS = 100
MAX_NAME = 255
"""Most bytes of a file's base name."""
MAX_PATH = 1024
"""Most bytes of a path: that of the longest object name."""

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class StoredFile:
    """
    One file of a checkpoint: path relative to its folder, size in bytes, sha256 in hex.

    *modified* is in nanoseconds since the epoch, None in old manifests. It is restored, because Lightning,
    for example, resumes from the younger of `last.ckpt` and `last-v1.ckpt`.
    """

    name: str
    size: int
    sha256: str
    modified: Optional[int] = None


@dataclass(frozen=True)
class Manifest:
    """
    What one worker committed.

    *folder* is the local folder's name, `.` if the files lie directly in the folder of all checkpoints; *at*
    is by the worker's clock. *attempt* separates two tries of one incarnation at the same step. *format* is
    the format of the commit, empty in old manifests. *own_step* is the step in the save itself, None if it
    has none: then *step* is what the job had reported, or a count of saves. *links* are symbolic links to
    files or folders of the checkpoint (`latest`), as name and target, both relative to the folder of all
    checkpoints.
    """

    step: int
    incarnation: int
    worker: int
    workers: int
    attempt: int
    folder: str
    files: Tuple[StoredFile, ...]
    at: float
    format: str = ""
    own_step: Optional[int] = None
    links: Tuple[Tuple[str, str], ...] = ()

    @property
    def proven(self) -> bool:
        """Return whether the save itself shows its step."""
        return self.own_step == self.step

    def text(self) -> str:
        """Return the manifest as JSON."""
        body = asdict(self)
        body["told"] = body.pop("own_step")  # key of schema 1, read by older machines
        return json.dumps({"schema": SCHEMA, **body}, sort_keys=True)


def folder_name(step: int, incarnation: int) -> str:
    """Return the object prefix of one incarnation's checkpoint of *step*."""
    return f"{CHECKPOINTS}{step:08d}/g{incarnation}/"


def file_name(step: int, incarnation: int, worker: int, relative: str) -> str:
    """Return the object name of one file of a checkpoint."""
    return f"{folder_name(step, incarnation)}w{worker}/{relative}"


def manifest_name(step: int, incarnation: int, worker: int) -> str:
    """Return the object name of one worker's manifest."""
    return f"{folder_name(step, incarnation)}w{worker}.manifest.json"


def parse_name(name: str) -> Optional[Tuple[int, int, int]]:
    """Return step, incarnation and worker from a manifest's object name, None for any other name."""
    match = _NAME.fullmatch(name)
    found = (int(match[1]), int(match[2]), int(match[3])) if match else None
    # `w00`, or digits of another script, would be a second manifest of one worker.
    return found if found and manifest_name(*found) == name else None


def parse(data: bytes, where: str) -> Manifest:
    """Parse a manifest. Raise DamagedError if it is not valid, or if a name leads out of its folder."""
    try:
        value: Dict[str, Any] = json.loads(data)
        _check(value)
        # Any program on a machine can write this object, so each name is checked before a restore creates files.
        files = tuple(_file(one) for one in value["files"])
        _check_apart(one.name for one in files)
        numbers = {key: int(value[key]) for key in ("step", "incarnation", "worker", "workers")}
        # Manifests of older releases have neither attempt, format, links nor times; their step counts as proven.
        attempt = int(value.get("attempt", 0))
        own_step = value.get("told", numbers["step"])
        return Manifest(
            folder=value["folder"], files=files, at=time_of(value["at"]), attempt=attempt,
            format=_format(value), own_step=None if own_step is None else int(own_step),
            links=_links(value), **numbers,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{where} is not a manifest: {error}") from error


def _check(value: Dict[str, Any]) -> None:
    if value["schema"] != SCHEMA:
        # A later schema may change the meaning of a name, so it is refused, not guessed.
        raise ValueError(f"schema {value['schema']!r} is not {SCHEMA}")
    if value["folder"] != "." and not is_plain(value["folder"]):
        raise ValueError(f"folder {value['folder']!r}")
    _check_length(value["folder"])
    if not 0 <= int(value["worker"]) < int(value["workers"]) <= MAX_WORKERS:
        raise ValueError("it is of a worker that cannot be")


def _format(value: Dict[str, Any]) -> str:
    name = value.get("format", "")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z]{0,20}", name):
        raise ValueError("a format of no such name")
    return name


def _links(value: Dict[str, Any]) -> Tuple[Tuple[str, str], ...]:
    found = tuple((name, target) for name, target in value.get("links", ()))
    if not all(isinstance(one, str) and is_plain(one) for pair in found for one in pair):
        raise ValueError("a link that leads out of its folder")
    names = {name for name, _target in found}
    _check_apart(name for name, _target in found)
    for pair in found:
        _check_length(*pair)
    if len(found) > MAX_LINKS or any(names & {target, *_above(target)} for _name, target in found):
        raise ValueError("links that cannot be made")
    return found


def _check_apart(names: Iterable[str]) -> None:
    """Raise ValueError for names that exclude each other in one folder: a restore would fail for ever."""
    listed = list(names)
    taken = {PurePosixPath(name).as_posix() for name in listed}
    if len(taken) < len(listed) or any(taken.intersection(_above(name)) for name in taken):
        raise ValueError("two files of one name")
    if any(len(part.encode()) > MAX_NAME for name in taken for part in name.split("/")):
        raise ValueError("a name that no file has")


def _check_length(*names: str) -> None:
    """Raise ValueError for paths that are too long for a file system."""
    for name in names:
        # File names on a disk may not be valid text; Python then returns their bytes as surrogates.
        data = name.encode("utf-8", "surrogateescape")
        if len(data) > MAX_PATH or any(len(part) > MAX_NAME for part in data.split(b"/")):
            raise ValueError("a place that no disk has")


def _above(name: str) -> List[str]:
    """Return all folders above *name*, outermost last."""
    return [folder.as_posix() for folder in PurePosixPath(name).parents]


def _file(value: Dict[str, Any]) -> StoredFile:
    if not is_plain(value["name"]) or not SHA256.fullmatch(value["sha256"]):
        raise ValueError(f"file {value['name']!r}")
    modified = value.get("modified")
    if modified is not None and not (isinstance(modified, int) and 0 <= modified < 1 << 63):
        raise ValueError(f"time {modified!r}")
    return StoredFile(value["name"], size_of(value["size"]), value["sha256"], modified)


def size_of(value: Any) -> int:
    """Return *value* as a number of bytes. Raise ValueError, TypeError or OverflowError if it cannot be one."""
    return _within(int(value), MAX_INT, "a size that no file has")


def time_of(value: Any) -> float:
    """Return *value* as seconds since the epoch. Raise ValueError, TypeError or OverflowError if it cannot be."""
    return _within(float(value), LATEST_TIME, "a time out of range")


def _within(number: N, most: float, otherwise: str) -> N:
    if not 0 <= number <= most:
        raise ValueError(otherwise)
    return number


def is_plain(name: str) -> bool:
    """Return whether a relative name stays inside its folder."""
    # `.` and double slashes are normalised away, so only these three can lead out of a folder.
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
