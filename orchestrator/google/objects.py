"""Read and write objects of the deployment's bucket over Cloud Storage."""

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator import threads
from orchestrator.domain.ports import MAX_BYTES, MAX_OBJECTS, StoredObject
from orchestrator.errors import NotFoundError, PreconditionError, TransientError, UnknownCloudError
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.error_mapping import too_many
from orchestrator.google.lean_imports import imported

READ_TRIES = 5
RANGE = 8 << 20
"""Bytes of one range request of a large download."""
_FIELDS = "items(name,size,generation,updated),nextPageToken"
_SUMS = "items(name,size,crc32c),nextPageToken"


class FullError(Exception):
    """Signal that an object is longer than the limit of its read."""


class LimitedBuffer:
    """Collect a download in memory, up to *limit* bytes; a file object for the client."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        """Append *data*. Raise FullError beyond the limit."""
        if len(self.data) + len(data) > self._limit:
            raise FullError
        self.data += data
        return len(data)


class Digest:
    """Compute the sha256 of a download, and pass the bytes to *copy*; a file object for the client."""

    def __init__(self, copy: BinaryIO | None = None) -> None:
        self._sum = hashlib.sha256()
        self._copy = copy

    def write(self, data: bytes) -> int:
        """Add *data* to the digest and to the copy."""
        self._sum.update(data)
        if self._copy is not None:
            self._copy.write(data)
        return len(data)

    def hex(self) -> str:
        """Return the sha256 of all bytes so far, in hex."""
        return self._sum.hexdigest()


class GcsStore:
    """Read and write objects of one bucket; all names are relative to *prefix*."""

    def __init__(self, clients: Clients, bucket: str, prefix: str = "") -> None:
        self._clients = clients
        self._name = bucket
        self._prefix = prefix
        self._headed = True

    def below(self, prefix: str) -> "GcsStore":
        """Return a store of the same bucket whose names are relative to *prefix*."""
        return GcsStore(self._clients, self._name, self._prefix + prefix)

    def read(self, name: str, offset: int = 0, limit: int = MAX_BYTES) -> StoredObject | None:
        """
        Return an object with its data from *offset* on, at most *limit* bytes; None if it does not exist.

        A whole object is one request, and *updated* has full seconds then; a list is more exact.
        """
        if not offset and self._headed:
            try:
                whole = self._whole(name, limit)
                self._headed = whole is not None
            except NotFoundError:
                return None
            except FullError:
                whole = None
            except UnknownCloudError as error:
                # The 404 of a download may be plain text; only that of the metadata proves that it is Google's.
                if not isinstance(error.__cause__, imported("google.api_core.exceptions").NotFound):
                    raise
                whole = None
            if whole is not None:
                return whole
        return self._from(name, offset, limit)

    def _whole(self, name: str, limit: int) -> StoredObject | None:
        """
        Download an object; None if the answer lacks its generation or its time.

        Raise FullError if it is longer than *limit*.
        """
        blob, answers, buffer = self._blob(name), list[Any](), LimitedBuffer(limit)
        # The client drops the time of the object; the hook sees the whole answer.
        blob._extract_headers_from_download = answers.append  # noqa: SLF001
        with translated(f"read {self._url(name)}"):
            # Raw: a compressed object could expand to a thousand times its size.
            blob.download_to_file(buffer, raw_download=True, **self._clients.reading)
        return _headed(name, bytes(buffer.data), answers[-1].headers if answers else {})

    def _from(self, name: str, offset: int, limit: int) -> StoredObject | None:
        """
        Read an object in two requests.

        Data and generation must belong together, so an object that is replaced between the two is read again.
        """
        for _ in range(READ_TRIES):
            blob = self._blob_if_any(name)
            if blob is None:
                return None
            try:
                return self._stored(blob, self._data(blob, offset, limit))
            # Replaced between the two requests: its old generation no longer exists.
            except NotFoundError:
                continue
        raise TransientError(f"read {self._url(name)}: it changes faster than it can be read")

    def sha256(self, name: str) -> str | None:
        """
        Read an object of any size and return the sha256 of its bytes in hex, None if it does not exist.

        The bytes are not stored. The client also compares them with the bucket's own checksum.
        """
        return self._stream(name, Digest())

    def download(
        self, name: str, path: Path, sized: Callable[[int], object] | None = None, streams: int = 1
    ) -> str | None:
        """
        Download an object of any size; return the sha256 of its bytes in hex, None if it does not exist.

        *sized* is called with the size before the first byte and may raise to stop. A large object is
        downloaded in *streams* parallel parts.
        """
        with path.open("wb") as file:
            return self._stream(name, Digest(file), sized, streams)

    def _stream(
        self,
        name: str,
        digest: Digest,
        sized: Callable[[int], object] | None = None,
        streams: int = 1,
    ) -> str | None:
        blob = self._blob_if_any(name)
        if blob is None:
            return None
        size = int(blob.size or 0)
        if sized is not None:
            # The size belongs to the generation that is downloaded below.
            sized(size)
        if size:
            # By generation: an object that is replaced meanwhile gives a 404, never a mixture.
            pinned = self._clients.storage.bucket(self._name).blob(blob.name, generation=blob.generation)
            with translated(f"read {self._url(name)}"):
                try:
                    if streams > 1 and size > RANGE:
                        self._ranges(blob, digest, streams)
                    else:
                        pinned.download_to_file(digest, raw_download=True, **self._clients.reading)
                except imported("google.api_core.exceptions").NotFound as gone:
                    raise NotFoundError(f"read {self._url(name)}: replaced meanwhile") from gone
        return digest.hex()

    def _ranges(self, blob: Any, digest: Digest, streams: int) -> None:
        """Download an object in ranges, *streams* at a time, and verify its checksum, which the client does not."""
        size, whole = int(blob.size), imported("google_crc32c").Checksum()

        def read(start: int) -> bytes:
            buffer, length = LimitedBuffer(RANGE), min(RANGE, size - start)
            pinned = self._clients.storage.bucket(self._name).blob(blob.name, generation=blob.generation)
            span = {"start": start, "end": start + length - 1, "raw_download": True, "checksum": None}
            pinned.download_to_file(buffer, **span, **self._clients.reading)
            if len(buffer.data) != length:
                raise _damaged(self._url(self._own(blob)))
            return bytes(buffer.data)

        with threads.pool(streams) as pool:
            under_way: deque[Future[bytes]] = deque()
            waiting = deque(range(0, size, RANGE))
            while waiting or under_way:
                # One range more than streams, so that downloads continue while one is written.
                while waiting and len(under_way) <= streams:
                    under_way.append(pool.submit(read, waiting.popleft()))
                data = under_way.popleft().result()
                whole.update(data)
                digest.write(data)
        if base64.b64encode(whole.digest()).decode() != blob.crc32c:
            raise _damaged(self._url(self._own(blob)))

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """
        Write an object and return its generation; *if_generation* 0 means "must not exist".

        Raise PreconditionError if *if_generation* is not the current one. After a TransientError the write
        may have happened: read the object to know.
        """
        # Only a 429 is repeated: after a lost answer, the repetition would meet our own write.
        with translated(f"write {self._url(name)}"):
            blob = self._blob(name)
            blob.upload_from_string(
                data,
                content_type="application/octet-stream",
                if_generation_match=if_generation,
                checksum="crc32c",
                **self._clients.spaced,
            )
            return int(blob.generation)

    def upload(self, name: str, path: Path) -> int:
        """
        Upload a file unless an object of that name exists; return the object's generation.

        Raise PreconditionError if the existing object has other content. A large file is uploaded in parts,
        and a failed part is repeated, which the precondition makes safe.
        """
        try:
            with translated(f"upload {path.name} to {self._url(name)}"):
                blob = self._blob(name)
                blob.upload_from_filename(
                    str(path),
                    if_generation_match=0,
                    checksum="crc32c",
                    **self._clients.uploading,
                )
        except PreconditionError:
            # The object may be from our own upload, whose answer was lost: its content decides.
            blob = self._blob_if_any(name)
            if blob is None or blob.crc32c != _crc32c(path):
                raise
        return int(blob.generation)

    def list(self, prefix: str, most: int = MAX_OBJECTS) -> list[StoredObject]:
        """List all objects under *prefix*, without data. Raise UnknownCloudError if there are more than *most*."""
        with translated(f"list {self._url(prefix)}"):
            storage, limits = self._clients.storage, self._clients.reading
            blobs = storage.list_blobs(
                self._name, prefix=self._prefix + prefix, fields=_FIELDS, max_results=most + 1, **limits
            )
            found = [self._stored(blob) for blob in blobs]
        if len(found) > most:
            raise too_many(self._url(prefix), most)
        return found

    def checksums(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return size and crc32c of all objects under *prefix* by name."""
        with translated(f"list {self._url(prefix)}"):
            storage, limits = self._clients.storage, self._clients.reading
            blobs = storage.list_blobs(self._name, prefix=self._prefix + prefix, fields=_SUMS, **limits)
            return {self._own(blob): (int(blob.size or 0), str(blob.crc32c or "")) for blob in blobs}

    def delete(self, name: str, if_generation: int | None = None, *, patient: bool = True) -> None:
        """
        Delete an object; do nothing if it does not exist.

        Raise PreconditionError if *if_generation* is not the current one. Without *patient*, a refusal
        because of the object's rate limit is raised at once.
        """
        limits = self._clients.spaced if patient else self._clients.mutating
        try:
            with translated(f"delete {self._url(name)}"):
                self._blob(name).delete(if_generation_match=if_generation, **limits)
        except NotFoundError:
            return

    def _blob_if_any(self, name: str) -> Any | None:
        """
        Return the object's metadata, or None.

        `get_blob` is not used: it takes every 404 for an absence, also one that is not Google's.
        """
        blob = self._blob(name)
        try:
            with translated(f"read {self._url(name)}"):
                blob.reload(**self._clients.reading)
        except NotFoundError:
            return None
        return blob

    def _data(self, blob: Any, offset: int, limit: int) -> bytes:
        if offset >= int(blob.size or 0):
            # A range that starts at the end is refused with 416.
            return b""
        pinned = self._clients.storage.bucket(self._name).blob(blob.name, generation=blob.generation)
        with translated(f"read {self._url(self._own(blob))}"):
            try:
                last = offset + limit - 1 if int(blob.size) > offset + limit else None
                data: bytes = pinned.download_as_bytes(
                    start=offset or None, end=last, raw_download=True, **self._clients.reading
                )
            except imported("google.api_core.exceptions").NotFound as gone:
                # A media answer has no JSON; the generation no longer exists, and nothing else matters here.
                raise NotFoundError(f"read {self._url(self._own(blob))}: replaced meanwhile") from gone
        return data

    def _blob(self, name: str) -> Any:
        return self._clients.storage.bucket(self._name).blob(self._prefix + name)

    def _own(self, blob: Any) -> str:
        name: str = blob.name
        return name[len(self._prefix) :]

    def _stored(self, blob: Any, data: bytes = b"") -> StoredObject:
        size, generation = int(blob.size or 0), int(blob.generation)
        return StoredObject(self._own(blob), size, generation, blob.updated.timestamp(), data)

    def _url(self, name: str) -> str:
        return f"gs://{self._name}/{self._prefix}{name}"


def _damaged(url: str) -> TransientError:
    return TransientError(f"read {url}: the bytes that came are not the object's")


def _headed(name: str, data: bytes, headers: Mapping[str, str]) -> StoredObject | None:
    """Return what a download's headers say about the object, None if they lack its generation or time."""
    generation, changed = headers.get("X-Goog-Generation"), headers.get("Last-Modified")
    if not generation or not changed:
        return None
    return StoredObject(name, len(data), int(generation), parsedate_to_datetime(changed).timestamp(), data)


def _crc32c(path: Path) -> str:
    """Return the checksum as Cloud Storage shows it: base64 of the big-endian value."""
    checksum = imported("google_crc32c").Checksum()
    with path.open("rb") as file:
        for _ in checksum.consume(file, 1 << 20):
            pass
    return base64.b64encode(checksum.digest()).decode()
