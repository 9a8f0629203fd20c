"""Model objects: generations, preconditions, compose, copy, listing."""

import base64
import hashlib
import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c

from orchestrator.clock import Clock
from orchestrator.emulator.state.storage.blobs import BLOCK, Blobs, OpenBlob, pieces
from orchestrator.emulator.state.storage.listing import Page, Query, page_of
from orchestrator.emulator.state.storage.refusals import StorageError, invalid, known
from orchestrator.emulator.state.storage.stored import (
    Fields,
    Preconditions,
    StoredObject,
    check_object_name,
    merged,
    without_nulls,
)

COMPOSE_LIMIT = 32
_SETTABLE = (
    "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "customTime",
    "metadata", "storageClass",
)  # fmt: skip
_PROTECTIONS = ("temporaryHold", "eventBasedHold", "retention", "contexts")


@dataclass(frozen=True)
class Source:
    """An object to read, at one *generation* or the newest (None)."""

    bucket: str
    name: str
    generation: int | None = None
    asked: Preconditions = field(default_factory=Preconditions)


class Objects:
    """
    The live objects of every bucket; old generations are not kept.

    *interval* is the minimum time in seconds between two changes of one object, 0 for none: the service
    allows about one a second. How large a burst it allows is not published; here, one.
    """

    def __init__(
        self, clock: Clock, blobs: Blobs, next_generation: Callable[[], int], interval: float = 0.0
    ) -> None:
        self._clock = clock
        self._interval = interval
        self._changed: dict[tuple[str, str], float] = {}
        self._blobs = blobs
        self._next_generation = next_generation
        self._sums: dict[str, Checksums] = {}
        self._objects: dict[str, dict[str, StoredObject]] = {}
        self._names: dict[str, list[str]] = {}
        for record in blobs.records("object"):
            held = StoredObject(**record)
            self._objects.setdefault(held.bucket, {})[held.name] = held
        for bucket, objects in self._objects.items():
            self._names[bucket] = sorted(objects)

    def all(self) -> list[StoredObject]:
        return [held for objects in self._objects.values() for held in objects.values()]

    def is_empty(self, bucket: str) -> bool:
        return not self._objects.get(bucket)

    def holds(self, bucket: str, name: str) -> bool:
        return name in self._objects.get(bucket, {})

    def get(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """Return the live object. Raise 404 if there is none, or not of that *generation*."""
        held = self._objects.get(bucket, {}).get(name)
        if held is None or generation not in (None, held.generation):
            raise known("object missing", bucket=bucket, object=name)
        return held

    def read(self, held: StoredObject, start: int = 0, end: int | None = None) -> bytes:
        return self._blobs.read(held.blob, start, held.size if end is None else end)

    def open(self, held: StoredObject, start: int, end: int) -> OpenBlob | None:
        """Return bytes of an object for reading in blocks, even if it is replaced; None if there are few."""
        return self._blobs.open(held.blob, start, end)

    def check_write(self, bucket: str, name: str, asked: Preconditions) -> None:
        """Raise 412 unless *asked* holds for the present object, or for none."""
        held = self._objects.get(bucket, {}).get(name)
        asked.check_write(held.generation if held else 0, held.metageneration if held else 0)

    def insert(
        self, bucket: str, name: str, data: bytes, body: Mapping[str, Any], asked: Preconditions
    ) -> StoredObject:
        """Store *data* as a new generation; see `put_blob`."""
        self.check_write(bucket, name, asked)
        return self.put_blob(bucket, name, self.stage(data), body, asked)

    def stage(self, *data: bytes) -> str:
        """Store bytes in a new blob for `put_blob`; needs no lock, since no other caller knows the blob."""
        blob = uuid.uuid4().hex
        self.extend(blob, *data)
        return blob

    def extend(self, blob: str, *data: bytes) -> int:
        """Append bytes to a blob that belongs to no object yet, and to its checksums; return its size."""
        sums = (
            self._sums.setdefault(blob, Checksums()) if not self._blobs.size(blob) else self._sums.get(blob)
        )
        if sums is not None:
            for piece in data:
                sums.update(piece)
        return self._blobs.append(blob, *data)

    def discard(self, blob: str) -> None:
        """Remove a blob that did not become an object."""
        self._sums.pop(blob, None)
        self._blobs.remove(blob)

    def put_blob(
        self,
        bucket: str,
        name: str,
        blob: str,
        body: Mapping[str, Any],
        asked: Preconditions,
        *,
        components: int | None = None,
        sums: tuple[str, str | None] | None = None,
    ) -> StoredObject:
        """
        Make a finished blob the newest generation of an object; a refused blob is removed.

        *components* is the number of parts of a composed object, which has no MD5. *sums* are its crc32c and
        MD5 if known. Raise 412 if *asked* does not hold, 400 if a checksum in *body* does not match.
        """
        try:
            check_object_name(name)
            self.check_rate(bucket, name)
            wanted = without_nulls(body)
            crc32c, md5 = sums or self.sum_up(blob)
            _check_sums(wanted, crc32c, md5)
            # Checked again: a resumable upload was checked at its start, and the object may have changed since.
            self.check_write(bucket, name, asked)
        except StorageError:
            self.discard(blob)
            raise
        self._sums.pop(blob, None)
        now = self._clock.now()
        return self._keep(
            StoredObject(
                bucket=bucket,
                name=name,
                generation=self._next_generation(),
                size=self._blobs.size(blob),
                crc32c=crc32c,
                md5=None if components else md5,
                blob=blob,
                created=now,
                updated=now,
                components=components,
                fields=_settable(wanted),
            )
        )

    def sum_up(self, blob: str) -> tuple[str, str]:
        """Return the checksums of a blob; one from before a restart, or in parts, is read for it."""
        known = self._sums.get(blob)
        if known is None or known.size != self._blobs.size(blob):
            known = Checksums()
            for piece in pieces(self._blobs, blob):
                known.update(piece)
            self._sums[blob] = known
        return known.shown()

    def check_rate(self, bucket: str, name: str) -> None:
        """Raise 429 if the object was changed less than *interval* ago."""
        since = self._clock.monotonic() - self._changed.get((bucket, name), float("-inf"))
        if since < self._interval:
            raise known("rate of one object", bucket=bucket, object=name)

    def _change(self, bucket: str, name: str) -> None:
        if not self._interval:
            return
        now = self._clock.monotonic()
        self._changed = {key: at for key, at in self._changed.items() if now - at < self._interval}
        self._changed[bucket, name] = now

    def patch(self, bucket: str, name: str, body: Mapping[str, Any], asked: Preconditions) -> StoredObject:
        """Merge *body* into the object's fields, as a new metageneration of the same generation."""
        held = self.get(bucket, name)
        self.check_rate(bucket, name)
        asked.check_write(held.generation, held.metageneration)
        fields = merged(held.fields, _settable(body))
        newer = replace(
            held, fields=fields, updated=self._clock.now(), metageneration=held.metageneration + 1
        )
        return self._keep(newer)

    def delete(
        self, bucket: str, name: str, generation: int | None, asked: Preconditions, *, at_once: bool = False
    ) -> None:
        """
        Delete the object; the record first, so that a kill leaves no record without bytes.

        *at_once*: its rate is not checked.
        """
        held = self.get(bucket, name, generation)
        if not at_once:
            self.check_rate(bucket, name)
        asked.check_write(held.generation, held.metageneration)
        self._change(bucket, name)
        # A kill after this line leaves orphaned bytes, which the next start removes.
        self._blobs.forget("object", f"{bucket}/{name}")
        del self._objects[bucket][name]
        names = self._names[bucket]
        del names[bisect_left(names, name)]
        self._blobs.remove(held.blob)

    def compose(
        self, sources: Sequence[Source], bucket: str, name: str, body: Mapping[str, Any], asked: Preconditions
    ) -> StoredObject:
        """Join up to 32 objects of one bucket into one, which has a component count and no md5Hash."""
        if not 1 <= len(sources) <= COMPOSE_LIMIT:
            raise invalid(f"The number of source components provided ({len(sources)}) must be 1 to 32.")
        parts = [self._source(source) for source in sources]
        components = sum(part.components or 1 for part in parts)
        # gcloud sends the first component's whole resource, whose checksums are not the result's.
        fields = _settable(without_nulls(body))
        return self._joined(parts, bucket, name, fields, asked, components=components)

    def copy(
        self, source: Source, bucket: str, name: str, body: Mapping[str, Any], asked: Preconditions
    ) -> StoredObject:
        """Copy an object; fields in *body* replace those of the source."""
        part = self._source(source)
        fields = {**part.fields, **_settable(without_nulls(body))}
        return self._joined([part], bucket, name, fields, asked, components=part.components)

    def page(self, bucket: str, query: Query) -> tuple[list[StoredObject], Page]:
        page = page_of(self._names.get(bucket, []), query)
        return [self._objects[bucket][name] for name in page.names], page

    def _source(self, source: Source) -> StoredObject:
        held = self.get(source.bucket, source.name, source.generation)
        source.asked.check_write(held.generation, held.metageneration)
        return held

    def _joined(
        self,
        parts: Sequence[StoredObject],
        bucket: str,
        name: str,
        body: Mapping[str, Any],
        asked: Preconditions,
        *,
        components: int | None,
    ) -> StoredObject:
        """Make a new object from the bytes of *parts*; its checksums are computed from theirs."""
        self.check_write(bucket, name, asked)
        blob = uuid.uuid4().hex
        self._blobs.join(blob, [part.blob for part in parts])
        sums = (combined(parts), parts[0].md5 if components is None else None)
        return self.put_blob(bucket, name, blob, body, asked, components=components, sums=sums)

    def _keep(self, newer: StoredObject) -> StoredObject:
        """Save the record, which is the moment of the change, then remove the bytes it replaces."""
        # A kill before this line leaves the old object; after it the new one, and an orphaned blob.
        self._blobs.save("object", f"{newer.bucket}/{newer.name}", newer.as_record())
        self._change(newer.bucket, newer.name)
        held = self._objects.setdefault(newer.bucket, {}).get(newer.name)
        self._objects[newer.bucket][newer.name] = newer
        if held is None:
            insort(self._names.setdefault(newer.bucket, []), newer.name)
        elif held.blob != newer.blob:
            self._blobs.remove(held.blob)
        return newer


def _settable(body: Mapping[str, Any]) -> Fields:
    for key in _PROTECTIONS:
        if body.get(key):
            raise invalid(f"The local cloud does not implement {key}: leave it out.")
    return {key: body[key] for key in _SETTABLE if key in body}


def _check_sums(wanted: Fields, crc32c: str, md5: str | None) -> None:
    for name, given, computed in (
        ("CRC32C", wanted.get("crc32c"), crc32c),
        ("MD5 hash", wanted.get("md5Hash"), md5),
    ):
        if given is not None and given != computed:
            raise invalid(f'Provided {name} "{given}" doesn\'t match calculated {name} "{computed}".')


class Checksums:
    """Computes both checksums of bytes that arrive in pieces."""

    def __init__(self) -> None:
        self.size = 0
        self._crc = google_crc32c.Checksum()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        self.size += len(piece)
        self._crc.update(piece)
        self._md5.update(piece)

    def shown(self) -> tuple[str, str]:
        """Return crc32c and MD5 in the API's form."""
        return base64.b64encode(self._crc.digest()).decode(), base64.b64encode(self._md5.digest()).decode()


_ZEROS = bytes(BLOCK)


def combined(parts: Sequence[StoredObject]) -> str:
    """Return the crc32c of all *parts* joined, without reading them."""
    total = 0
    for part in parts:
        own = int.from_bytes(base64.b64decode(part.crc32c), "big")
        # A CRC is linear: extend the previous one by as many zero bytes as the part has, then add the part's own.
        total = _past_zeros(total, part.size) ^ _past_zeros(0, part.size) ^ own
    return base64.b64encode(total.to_bytes(4, "big")).decode()


def _past_zeros(crc: int, count: int) -> int:
    for start in range(0, count, BLOCK):
        crc = google_crc32c.extend(crc, _ZEROS[: min(BLOCK, count - start)])
    return crc
