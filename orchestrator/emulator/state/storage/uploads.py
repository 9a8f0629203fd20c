"""Store resumable uploads: bytes arrive in chunks, and sessions survive a restart."""

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.clock import Clock
from orchestrator.emulator.state.storage.blobs import Blobs
from orchestrator.emulator.state.storage.objects import Checksums, Objects
from orchestrator.emulator.state.storage.refusals import StorageError, invalid
from orchestrator.emulator.state.storage.stored import Preconditions, StoredObject

_SESSION_SECONDS = 7 * 24 * 3600.0  # a session URL is valid for one week


@dataclass(frozen=True)
class UploadSession:
    """One resumable upload, whose blob has the session's *id*; *done* is the record of the object it made."""

    id: str
    bucket: str
    name: str
    body: dict[str, Any]
    asked: Preconditions
    started: float
    done: dict[str, Any] | None = None


class Uploads:
    def __init__(self, clock: Clock, blobs: Blobs, objects: Objects) -> None:
        self._clock = clock
        self._blobs = blobs
        self._objects = objects
        self._sessions: dict[str, UploadSession] = {}
        self._parts: dict[str, set[int]] = {}
        self._busy: dict[str, threading.Lock] = {}
        # A process killed between writing the object and the session left a session that looks open.
        made = {held.blob: held.as_record() for held in objects.all()}
        for record in blobs.records("upload"):
            session = UploadSession(**{**record, "asked": Preconditions(**record["asked"])})
            self._sessions[session.id] = replace(session, done=made.get(session.id, session.done))

    def ids(self) -> list[str]:
        return list(self._sessions)

    def start(self, bucket: str, name: str, body: Mapping[str, Any], asked: Preconditions) -> UploadSession:
        """Start a session. Raise 412 if *asked* already fails."""
        self._objects.check_write(bucket, name, asked)
        self._drop_old()
        session = UploadSession(uuid.uuid4().hex, bucket, name, dict(body), asked, self._clock.now())
        self._keep(session)
        return session

    def busy(self, session_id: str) -> threading.Lock:
        """Return the lock for transferring bytes of one upload; take the storage's lock inside it."""
        return self._busy.setdefault(session_id, threading.Lock())

    def received(self, session_id: str) -> int:
        """Return the number of bytes stored. Raise 404 for an unknown session."""
        return self._blobs.size(self._session(session_id).id)

    def append(self, session_id: str, start: int, *data: bytes) -> int:
        """
        Append a chunk that starts at byte *start*, skipping bytes already stored. Return the bytes stored.

        A chunk beyond the end is ignored: the answer tells the client where to continue.
        """
        held = self.received(session_id)
        if start > held or start + sum(map(len, data)) <= held:
            return held
        return self._objects.extend(
            session_id, *(data if start == held else [b"".join(data)[held - start :]])
        )

    def keep_part(self, session_id: str, part: int, *data: bytes) -> Checksums:
        """
        Store a numbered part of an upload, replacing an earlier one of that number. Return its checksums.

        Parts do not survive a restart; the upload must then start over.
        """
        blob = self._part(self._session(session_id).id, part)
        if part in self._parts.setdefault(session_id, set()):
            self._blobs.remove(blob)
        sums = Checksums()
        for piece in data:
            sums.update(piece)
        self._blobs.append(blob, *data)
        self._parts[session_id].add(part)
        return sums

    def join(self, session_id: str, parts: Sequence[int]) -> int:
        """
        Make the session's bytes from its *parts*, in order; return their number.

        Raise 400 for a missing part.
        """
        session = self._session(session_id)
        if session.done:
            return int(session.done["size"])
        missing = sorted(set(parts) - self._parts.get(session_id, set()))
        if missing:
            raise StorageError(400, "InvalidPart", f"The upload has no part {missing[0]}.")
        self._blobs.join(session_id, [self._part(session_id, part) for part in parts])
        self._drop_parts(session_id)
        return self._blobs.size(session_id)

    def _drop_parts(self, session_id: str) -> None:
        for part in self._parts.pop(session_id, ()):
            self._blobs.remove(self._part(session_id, part))

    @staticmethod
    def _part(session_id: str, part: int) -> str:
        return f"{session_id}.{part}"

    def finish(self, session_id: str, total: int, sums: Mapping[str, str]) -> StoredObject:
        """
        Make the object from *total* bytes; a finished session returns its object again.

        *sums* are checksums from the last request. Raise 400 if bytes are missing.
        """
        session = self._session(session_id)
        if session.done:
            return StoredObject(**session.done)
        held = self._blobs.size(session_id) or self._objects.extend(session_id, b"")
        if held != total:
            raise invalid(f"The upload has {held} bytes where {total} were announced.")
        # Before finishing: after a 429 the upload can be finished later, with its bytes intact.
        self._objects.check_rate(session.bucket, session.name)
        body = {**session.body, **sums}
        if any(session.body.get(name, given) != given for name, given in sums.items()):
            raise invalid("The checksums of the first and the last request of the upload differ.")
        try:
            made = self._objects.put_blob(session.bucket, session.name, session.id, body, session.asked)
        except StorageError:
            self._forget(session_id)
            raise
        # After the object: the next start recognises a kill in between by the blob's name.
        self._keep(replace(session, done=made.as_record()))
        return made

    def finished(self, session_id: str) -> StoredObject | None:
        """Return the object as the session made it, None while it is open."""
        session = self._session(session_id)
        return StoredObject(**session.done) if session.done else None

    def cancel(self, session_id: str) -> None:
        """Close the session and remove its bytes; a finished one keeps its object."""
        session = self._session(session_id)
        self._forget(session_id)
        self._drop_parts(session_id)
        if not session.done:
            self._objects.discard(session_id)

    def _session(self, session_id: str) -> UploadSession:
        if session_id not in self._sessions:
            raise StorageError(404, "notFound", "The upload session does not exist or has ended.")
        return self._sessions[session_id]

    def _drop_old(self) -> None:
        limit = self._clock.now() - _SESSION_SECONDS
        for session in [s for s in self._sessions.values() if s.started < limit]:
            self.cancel(session.id)

    def _keep(self, session: UploadSession) -> None:
        self._blobs.save("upload", session.id, asdict(session))
        self._sessions[session.id] = session

    def _forget(self, session_id: str) -> None:
        self._blobs.forget("upload", session_id)
        del self._sessions[session_id]
        self._busy.pop(session_id, None)
