"""The manifest: the one object that makes a checkpoint of one worker exist."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Dict, Iterable, List, Optional, Tuple, TypeVar

from orchestrator.contract.limits import LARGEST_INT, LATEST_TIME, MOST_WORKERS
from orchestrator.contract.machine_errors import TornError
from orchestrator.contract.object_names import CHECKPOINTS

SCHEMA = 1
_NAME = re.compile(rf"{CHECKPOINTS}(\d{{8,15}})/g(\d{{1,9}})/w(\d{{1,4}})\.manifest\.json")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_LINKS = 100
LONGEST_NAME = 255
"""Bytes of a file's name without its folders."""
LONGEST_PATH = 1024
"""Bytes of a name with its folders: those of the longest name of an object."""

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class StoredFile:
    """
    Name one file of a checkpoint, relative to its folder, with its size in bytes and sha256 in hex.

    *modified* is when it was written, in nanoseconds since the epoch; None in old manifests. Lightning, for
    one, takes the youngest of `last.ckpt` and `last-v1.ckpt`.
    """

    name: str
    size: int
    sha256: str
    modified: Optional[int] = None


@dataclass(frozen=True)
class Manifest:
    """
    Describe what one worker committed.

    *folder* is the local folder's name, `.` when the files lie directly in the folder of all checkpoints;
    *at* is the worker's clock. *attempt* tells apart two tries of one incarnation at the same step. *format*
    is what it was committed as, empty in old ones. *own_step* is the step that the save itself tells, None where
    it tells none: then *step* is what the job had reported, or only counts the saves. *links* are symbolic
    links to files or folders of the checkpoint (`latest`), as name and target, both from the folder of all
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
        """Say whether the save itself tells that it is of this step."""
        return self.own_step == self.step

    def text(self) -> str:
        """Return the manifest as JSON."""
        body = asdict(self)
        body["told"] = body.pop("own_step")  # Its name since schema 1: machines of older releases read it.
        return json.dumps({"schema": SCHEMA, **body}, sort_keys=True)


def folder_name(step: int, incarnation: int) -> str:
    """Return the prefix under which one incarnation's checkpoint of *step* lies."""
    return f"{CHECKPOINTS}{step:08d}/g{incarnation}/"


def file_name(step: int, incarnation: int, worker: int, relative: str) -> str:
    """Return the object name of one file of a checkpoint."""
    return f"{folder_name(step, incarnation)}w{worker}/{relative}"


def manifest_name(step: int, incarnation: int, worker: int) -> str:
    """Return the object name of one worker's manifest."""
    return f"{folder_name(step, incarnation)}w{worker}.manifest.json"


def parse_name(name: str) -> Optional[Tuple[int, int, int]]:
    """Return step, incarnation and worker of a manifest's object name, None for any other name."""
    match = _NAME.fullmatch(name)
    found = (int(match[1]), int(match[2]), int(match[3])) if match else None
    # `w00`, or digits of another script, would be a second manifest of one worker.
    return found if found and manifest_name(*found) == name else None


def parse(data: bytes, where: str) -> Manifest:
    """Return the manifest in *data*. Raises TornError if it is not valid, or a name leads out of its folder."""
    try:
        value: Dict[str, Any] = json.loads(data)
        _check(value)
        # Whatever runs on a machine can write this object: each name is checked before a restore makes files
        # of them.
        files = tuple(_file(one) for one in value["files"])
        _check_apart(one.name for one in files)
        numbers = {key: int(value[key]) for key in ("step", "incarnation", "worker", "workers")}
        # Manifests of older releases have neither attempt, format, links nor times; their step counts as
        # proven.
        attempt = int(value.get("attempt", 0))
        own_step = value.get("told", numbers["step"])
        return Manifest(
            folder=value["folder"], files=files, at=time_of(value["at"]), attempt=attempt,
            format=_format(value), own_step=None if own_step is None else int(own_step),
            links=_links(value), **numbers,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TornError(f"{where} is no manifest: {error}") from error


def _check(value: Dict[str, Any]) -> None:
    if value["schema"] != SCHEMA:
        # A later schema may mean other things by the same names: half understood is worse than refused.
        raise ValueError(f"schema {value['schema']!r} is not {SCHEMA}")
    if value["folder"] != "." and not is_plain(value["folder"]):
        raise ValueError(f"folder {value['folder']!r}")
    _check_length(value["folder"])
    if not 0 <= int(value["worker"]) < int(value["workers"]) <= MOST_WORKERS:
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
    if len(found) > MOST_LINKS or any(names & {target, *_above(target)} for _name, target in found):
        raise ValueError("links that cannot be made")
    return found


def _check_apart(names: Iterable[str]) -> None:
    """Raise ValueError for names that cannot be beside each other in one folder: a restore would fail for ever."""
    listed = list(names)
    taken = {PurePosixPath(name).as_posix() for name in listed}
    if len(taken) < len(listed) or any(taken.intersection(_above(name)) for name in taken):
        raise ValueError("two files of one name")
    if any(len(part.encode()) > LONGEST_NAME for name in taken for part in name.split("/")):
        raise ValueError("a name that no file has")


def _check_length(*names: str) -> None:
    """Raise ValueError for places that no disk has."""
    for name in names:
        # A name on a disk may be no text at all; Python then writes its bytes as such characters.
        data = name.encode("utf-8", "surrogateescape")
        if len(data) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in data.split(b"/")):
            raise ValueError("a place that no disk has")


def _above(name: str) -> List[str]:
    """Return the folders that a name lies in."""
    return [folder.as_posix() for folder in PurePosixPath(name).parents]


def _file(value: Dict[str, Any]) -> StoredFile:
    if not is_plain(value["name"]) or not SHA256.fullmatch(value["sha256"]):
        raise ValueError(f"file {value['name']!r}")
    modified = value.get("modified")
    if modified is not None and not (isinstance(modified, int) and 0 <= modified < 1 << 63):
        raise ValueError(f"time {modified!r}")
    return StoredFile(value["name"], size_of(value["size"]), value["sha256"], modified)


def size_of(value: Any) -> int:
    """Return *value* as a number of bytes. Raises ValueError, TypeError or OverflowError if it cannot be one."""
    return _within(int(value), LARGEST_INT, "a size that no file has")


def time_of(value: Any) -> float:
    """Return *value* as seconds since the epoch. Raises ValueError, TypeError or OverflowError if it cannot be."""
    return _within(float(value), LATEST_TIME, "a time out of range")


def _within(number: N, most: float, otherwise: str) -> N:
    if not 0 <= number <= most:
        raise ValueError(otherwise)
    return number


def is_plain(name: str) -> bool:
    """Say whether a relative name stays inside its folder."""
    # `.` and double slashes vanish here, so only these three can lead out of a folder.
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
