"""Define the manifest of a cache: a cache exists for later machines once its manifest is written."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Tuple

from orchestrator.contract.bucket.manifest import MAX_NAME, MAX_PATH, SHA256, is_plain, size_of
from orchestrator.contract.bucket.object_names import CACHES
from orchestrator.contract.machine_errors import DamagedError

SCHEMA = 1
ENVIRONMENT = "environment"
COMPILED = "compiled"
FOLDER = "folder-"
"""Prefix of the names of caches that hold a folder of `job.caches`."""
PIECES = f"{CACHES}pieces/"
KINDS = ("zst", "gz")
MAX_BYTES = 50 << 30
"""Largest cache in bytes, unpacked; a larger one is not kept."""
MAX_FILES = 500_000
MAX_PIECES = 2_000
MAX_NAMES = 100_000
RETAINED = 2
"""Keys of one cache that stay in the bucket: that of the present environment, and the one before."""
_NAME = re.compile(rf"{CACHES}([a-z]+(?:-[0-9a-f]{{16}})?)/([0-9a-f]{{32}})\.json")


@dataclass(frozen=True)
class Piece:
    """One archive: its sha256 in hex, size in bytes, content and compression."""

    sha256: str
    size: int
    unpacked: int
    files: int
    kind: str

    @property
    def object(self) -> str:
        """Return the name of its object, which is derived from its content."""
        return f"{PIECES}{self.sha256}.tar.{self.kind}"


@dataclass(frozen=True)
class CacheManifest:
    """
    One cache as it was on the machine that saved it.

    *places* maps the first part of a member's name to a folder; *facts* are what another machine must have in
    common. *removed* are files of the image that no longer exist. *naming* are text files that contain a path
    of *places*; *fixed* is a binary that contains one and so works nowhere else, empty if there is none.
    """

    key: str
    places: Mapping[str, str]
    facts: Mapping[str, str]
    pieces: Tuple[Piece, ...]
    removed: Tuple[str, ...] = ()
    naming: Tuple[str, ...] = ()
    fixed: str = ""
    schema: int = field(default=SCHEMA)

    @property
    def unpacked(self) -> int:
        """Return the size of all files, unpacked, in bytes."""
        return sum(one.unpacked for one in self.pieces)

    @property
    def stored(self) -> int:
        """Return the size of all archives in bytes."""
        return sum(one.size for one in self.pieces)

    def text(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def manifest_name(cache: str, key: str) -> str:
    """Return the object name of a manifest."""
    return f"{CACHES}{cache}/{key}.json"


def cache_of(name: str) -> str:
    """Return the cache of a manifest's object name, empty for any other name."""
    found = _NAME.fullmatch(name)
    return found[1] if found else ""


def parse(data: bytes, where: str) -> CacheManifest:
    """Parse a manifest. Raise DamagedError if it is not valid, because any machine may have written it."""
    try:
        value: Dict[str, Any] = json.loads(data)
        found = CacheManifest(
            schema=int(value["schema"]),
            key=_text(value["key"]),
            places=_table(value["places"]),
            facts=_table(value["facts"]),
            pieces=tuple(_piece(one) for one in value["pieces"]),
            removed=_names(value["removed"]),
            naming=_names(value["naming"]),
            fixed=_text(value["fixed"]),
        )
        _check(found)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{where} is not a manifest of a cache: {error}") from error
    return found


def _check(found: CacheManifest) -> None:
    if found.schema != SCHEMA:
        raise ValueError(f"schema {found.schema} is not {SCHEMA}")
    many = len(found.pieces) > MAX_PIECES or sum(one.files for one in found.pieces) > MAX_FILES
    if many or found.unpacked > MAX_BYTES:
        raise ValueError("it is larger than a cache may be")


def check_member(name: str) -> None:
    """Raise ValueError for a file name that leads out of its folder, or that no file system allows."""
    data = name.encode("utf-8", "surrogateescape")
    if not is_plain(name) or len(data) > 4 * MAX_PATH:
        raise ValueError(f"member {name[:200]!r}")
    if any(len(part) > MAX_NAME or part in (b"", b".") for part in data.split(b"/")):
        raise ValueError(f"member {name[:200]!r}")


def _piece(value: Dict[str, Any]) -> Piece:
    if not SHA256.fullmatch(value["sha256"]) or value["kind"] not in KINDS:
        raise ValueError(f"piece {value['sha256']!r}")
    size, unpacked, files = (size_of(value[name]) for name in ("size", "unpacked", "files"))
    return Piece(value["sha256"], size, unpacked, files, value["kind"])


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_PATH:
        raise TypeError("not a string, or too long")
    return value


def _table(value: Any) -> Dict[str, str]:
    if not isinstance(value, dict) or len(value) > 20:
        raise TypeError("not an object, or too large")
    return {_text(key): _text(one) for key, one in value.items()}


def _names(value: Any) -> Tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise TypeError("not a list, or too long")
    for one in value:
        check_member(one)
    return tuple(value)
