"""
Upload a large file to Cloud Storage in parts, with bounded memory; a lost connection costs one part.

Protocol: Cloud Storage JSON API, "Resumable uploads": a session, parts with Content-Range, 308 with the range
that has arrived (docs/facts.md 3.1).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import IO, Any, Callable, Dict, Mapping, Optional

from orchestrator.agent.cloud.transport import Reply, Transport, retrying
from orchestrator.agent.machine_clock import SYSTEM_CLOCK
from orchestrator.contract.clock import Clock
from orchestrator.contract.machine_errors import AgentError, DamagedError, TransientError

PART = 8 << 20
"""Bytes of one request; Cloud Storage requires multiples of 256 KiB."""
SESSIONS = 3
"""Sessions per upload, since the service may forget one."""
STALLS = 5
"""Consecutive parts after which the upload fails if the service has stored nothing of them."""
GONE = (404, 410)
UNFINISHED = 308


class SessionGoneError(AgentError):
    """The service does not know the session any more; everything must be sent again."""


class ResumableUpload:
    """
    An upload of *size* bytes; a POST to *url* starts the session.

    *headers* returns the credentials for each request; *check* raises for an error status.
    """

    def __init__(
        self,
        transport: Transport,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        check: Callable[[Reply, str], None],
        part: int = PART,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._transport = transport
        self._url = url
        self._headers = headers
        self._check = check
        self._part = part
        self._clock = clock

    def send(self, path: Path, size: int, timeout: float) -> str:
        """
        Return the sha256 of what was sent; *timeout* bounds the retries of each part.

        Raise DamagedError if the file changed meanwhile, TransientError, AgentError.
        """
        for _ in range(SESSIONS):
            try:
                return self._once(path, size, timeout)
            except SessionGoneError:
                continue
        raise TransientError(f"{path}: the bucket has forgotten {SESSIONS} uploads of it")

    def _once(self, path: Path, size: int, timeout: float) -> str:
        session = retrying(lambda remaining: self._begin(size, remaining), timeout, self._clock)
        # MD5 is the checksum that the bucket shows.
        sha, md5, hashed, arrived, stalled = hashlib.sha256(), hashlib.md5(), 0, 0, 0  # noqa: S324
        made: Optional[Dict[str, Any]] = None
        with path.open("rb") as file:
            while made is None:
                # Continue where the service is: it may have stored less than the part that was sent.
                data = _read(file, arrived, min(self._part, size - arrived))
                if arrived == hashed:
                    # Bytes are hashed once. If a repeated part differs, the bucket's checksum shows it.
                    sha.update(data)
                    md5.update(data)
                    hashed += len(data)
                reply = self._deliver(session, data, arrived, size, timeout)
                if reply.status == UNFINISHED:
                    before, arrived = arrived, _arrived(reply)
                    stalled = 0 if arrived > before else stalled + 1
                    if stalled == STALLS:
                        raise TransientError(f"{path}: the bucket takes none of what is sent")
                    if arrived > hashed:
                        raise TransientError(f"{path}: the bucket says it has more than was sent")
                else:
                    made = json.loads(reply.body)
        if int(made.get("size", size)) != size or hashed != size:
            raise DamagedError(f"{path} changed while it was sent")
        # Composed objects and some emulators have no md5.
        if made.get("md5Hash") not in (None, base64.b64encode(md5.digest()).decode()):
            raise DamagedError(
                f"{path} changed while it was sent, or was damaged: the bucket holds other bytes"
            )
        return sha.hexdigest()

    def _begin(self, size: int, remaining: float) -> str:
        sized = {"X-Upload-Content-Length": str(size), "Content-Type": "application/json"}
        reply = self._transport.send(
            "POST", self._url, {**self._headers(), **sized}, body=b"{}", timeout=min(30.0, remaining)
        )
        self._check(reply, "begin an upload")
        if reply.status == 404 or "location" not in reply.headers:
            raise TransientError(f"begin an upload: {reply.status} without a session")
        return str(reply.headers["location"])

    def _deliver(self, session: str, data: bytes, start: int, size: int, timeout: float) -> Reply:
        """Send one part and return the answer; after a failure ask first how much has arrived."""
        tries = [0]

        def once(remaining: float) -> Reply:
            # The answer may be lost after the part has arrived; asking first avoids sending it twice.
            tries[0] += 1
            if tries[0] > 1:
                asked = self._put(session, b"", f"bytes */{size}", remaining)
                if asked.status != UNFINISHED or _arrived(asked) != start:
                    return asked
            span = f"bytes {start}-{start + len(data) - 1}/{size}"
            return self._put(session, data, span, remaining)

        return retrying(once, timeout, self._clock)

    def _put(self, session: str, data: bytes, span: str, remaining: float) -> Reply:
        reply = self._transport.send(
            "PUT",
            session,
            {**self._headers(), "Content-Range": span},
            body=data,
            timeout=min(30.0, remaining),
        )
        if reply.status in GONE:
            raise SessionGoneError("the upload's session is gone")
        if reply.status != UNFINISHED:
            self._check(reply, "send a part")
        return reply


def _read(file: IO[bytes], start: int, wanted: int) -> bytes:
    file.seek(start)
    data = file.read(wanted)
    if len(data) != wanted:
        raise DamagedError(f"{file.name} changed while it was read")
    return data


def _arrived(reply: Reply) -> int:
    """Return the number of bytes that the service has: 0 without a Range header. Raise AgentError."""
    match = re.fullmatch(r"bytes=0-(\d+)", reply.headers.get("range", ""))
    if match is None and reply.headers.get("range"):
        raise AgentError(f"an upload's answer tells the range {reply.headers['range']!r}")
    return int(match.group(1)) + 1 if match else 0
