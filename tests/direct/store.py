"""Objects straight on the model."""

import hashlib
import mimetypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.domain.ports import LARGEST, MOST_OBJECTS, StoredObject
from orchestrator.emulator.state.storage import stored as model
from orchestrator.emulator.state.storage.blobs import BLOCK
from orchestrator.emulator.state.storage.listing import Query
from orchestrator.emulator.state.storage.objects import checksums
from orchestrator.emulator.state.storage.stored import Preconditions, check_object_name
from orchestrator.errors import NotFoundError, PreconditionError, TransientError
from orchestrator.google.error_mapping import too_many
from tests.direct.door import Door
from tests.direct.times import millis

T = TypeVar("T")

READ_TRIES = 5
_BYTES = "application/octet-stream"
_AT_ONCE = 8 << 20  # the client sends larger files in a session of their own
_CHUNK = 100 << 20  # bytes that the client sends at a time in a session


class DirectStore:
    """Read and write objects of one bucket."""

    def __init__(self, door: Door, bucket: str) -> None:
        self._door = door
        self._objects = door.store.objects
        self._name = bucket

    def read(self, name: str, offset: int = 0, limit: int = LARGEST) -> StoredObject | None:
        """
        Return an object with its data from *offset* on, *limit* bytes at most; None when it is not there.

        A whole object is one call, and *updated* is to the second then, as in the answer's header.
        """
        if offset:
            return self._from(name, offset, limit)

        def act() -> StoredObject:
            held = self._get(name)
            data = self._objects.read(held, 0, min(held.size, limit))
            return StoredObject(held.name, held.size, held.generation, float(int(held.updated)), data)

        try:
            return self._call(f"read {self._url(name)}", "get", act)
        except NotFoundError:
            return None

    def _from(self, name: str, offset: int, limit: int) -> StoredObject | None:
        for _ in range(READ_TRIES):
            held = self._look(name)
            if held is None:
                return None
            try:
                return _stored(held, self._data(held, offset, limit))
            except NotFoundError:
                continue
        raise TransientError(f"read {self._url(name)}: it changes faster than it can be read")

    def sha256(self, name: str) -> str | None:
        """Read an object of any size and return the sha256 of its bytes in hex, None when it is not there."""
        return self._stream(name, lambda _: None)

    def download(self, name: str, path: Path, sized: Callable[[int], object] | None = None) -> str | None:
        """
        Write an object of any size to a file; return the sha256 of its bytes in hex, None: it is not there.

        *sized* is told the size before any byte comes, and ends it by what it raises.
        """
        with path.open("wb") as file:
            return self._stream(name, file.write, sized)

    def _stream(
        self, name: str, take: Callable[[bytes], object], sized: Callable[[int], object] | None = None
    ) -> str | None:
        digest = hashlib.sha256()
        held = self._look(name)
        if held is None:
            return None
        if sized is not None:
            sized(held.size)

        def act() -> None:
            found = self._get(name, held.generation)
            for start in range(0, found.size, BLOCK):
                data = self._objects.read(found, start, min(start + BLOCK, found.size))
                digest.update(data)
                take(data)

        if held.size:
            self._media(name, act)
        return digest.hexdigest()

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """Write an object, return its generation; 0 means "must not exist"."""
        return self._insert(name, data, _BYTES, if_generation, f"write {self._url(name)}")

    def upload(self, name: str, path: Path) -> int:
        """Write a file unless an object of that name exists; return the object's generation."""
        what = f"upload {path.name} to {self._url(name)}"
        kind = mimetypes.guess_type(path.name)[0] or _BYTES
        try:
            if path.stat().st_size <= _AT_ONCE:
                return self._insert(name, path.read_bytes(), kind, 0, what)
            return self._session(name, path, kind, what)
        except PreconditionError:
            held = self._look(name)
            if held is None or held.crc32c != _crc32c(path):
                raise
        return held.generation

    def list(self, prefix: str, most: int = MOST_OBJECTS) -> list[StoredObject]:
        """List all objects under *prefix*, without data. Raise UnknownCloudError for more than *most*."""
        found: list[StoredObject] = []
        token = ""
        while True:
            query = Query(prefix=prefix, page_token=token)
            held, token = self._call(f"list {self._url(prefix)}", "list", partial(self._page, query))
            found += held
            if len(found) > most:
                raise too_many(self._url(prefix), most)
            if not token:
                return found

    def checksums(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return size and crc32c of all objects under *prefix* by name."""
        found: dict[str, tuple[int, str]] = {}
        for one in self.list(prefix):
            held = self._look(one.name)
            if held is not None:
                found[one.name] = (held.size, held.crc32c)
        return found

    def delete(self, name: str, if_generation: int | None = None, *, patient: bool = True) -> None:
        """Delete an object; one that is gone is fine. No refusal for a rate is waited for, *patient* or not."""

        def act() -> None:
            self._bucket("delete")
            self._objects.delete(self._name, name, None, Preconditions(if_generation))

        try:
            self._call(f"delete {self._url(name)}", "delete", act)
        except NotFoundError:
            return

    def _look(self, name: str) -> model.StoredObject | None:
        try:
            return self._call(f"look at {self._url(name)}", "get", lambda: self._get(name))
        except NotFoundError:
            return None

    def _data(self, held: model.StoredObject, offset: int, limit: int) -> bytes:
        if offset >= held.size:
            return b""

        def act() -> bytes:
            return self._objects.read(
                self._get(held.name, held.generation), offset, min(held.size, offset + limit)
            )

        return self._media(held.name, act)

    def _media(self, name: str, act: Callable[[], T]) -> T:
        """Read the bytes of one generation; one that is gone was replaced meanwhile."""
        try:
            return self._call(f"read {self._url(name)}", "get", act)
        except NotFoundError as gone:
            raise NotFoundError(f"read {self._url(name)}: replaced meanwhile") from gone

    def _get(self, name: str, generation: int | None = None) -> model.StoredObject:
        self._bucket("get")
        return self._objects.get(self._name, name, generation)

    def _page(self, query: Query) -> tuple[tuple[StoredObject, ...], str]:
        self._bucket("list")
        found, page = self._objects.page(self._name, query)
        return tuple(_stored(held) for held in found), page.next_token

    def _insert(self, name: str, data: bytes, kind: str, if_generation: int | None, what: str) -> int:
        def act() -> int:
            self._bucket("create")
            asked = Preconditions(if_generation)
            body = {"contentType": kind}
            return self._objects.insert(self._name, check_object_name(name), data, body, asked).generation

        return self._call(what, "insert", act)

    def _session(self, name: str, path: Path, kind: str, what: str) -> int:
        """Send a large file in the calls that the client makes: one to begin, one for each chunk."""
        uploads, size = self._door.store.uploads, path.stat().st_size

        def begin() -> str:
            self._bucket("create")
            asked, body = Preconditions(0), {"contentType": kind, "name": name}
            return uploads.start(self._name, check_object_name(name), body, asked).id

        def send(start: int, chunk: bytes) -> int:
            self._bucket("create")
            held = uploads.append(session, start, chunk)
            return uploads.finish(session, size, {}).generation if held >= size else 0

        session, generation = self._call(what, "insert", begin), 0
        with path.open("rb") as file:
            for start in range(0, size, _CHUNK):
                generation = self._call(what, "insert", partial(send, start, file.read(_CHUNK)))
        return generation

    def _bucket(self, verb: str) -> None:
        self._door.store.buckets.get(self._name, f"storage.objects.{verb}")

    def _call(self, what: str, verb: str, act: Callable[[], T]) -> T:
        return self._door.storage(what, f"storage.objects.{verb}", act)

    def _url(self, name: str) -> str:
        return f"gs://{self._name}/{name}"


def _stored(held: model.StoredObject, data: bytes = b"") -> StoredObject:
    return StoredObject(held.name, held.size, held.generation, millis(held.updated), data)


def _crc32c(path: Path) -> str:
    with path.open("rb") as file:
        return checksums(iter(partial(file.read, BLOCK), b""))[0]
