"""Read and write the deployment's bucket over the JSON API of Cloud Storage."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode

from orchestrator.agent.cloud import transfers
from orchestrator.agent.cloud.metadata import Metadata, Tokens
from orchestrator.agent.cloud.resumable import PART, ResumableUpload
from orchestrator.agent.cloud.transport import Reply, Transport, retrying, seconds_of, time_of
from orchestrator.agent.machine_clock import SYSTEM_CLOCK
from orchestrator.contract.bucket.limits import IN_MEMORY
from orchestrator.contract.clock import Clock
from orchestrator.contract.file_checksum import digest_of
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError, TransientError

DEFAULT_BASE = "https://storage.googleapis.com"
TIMEOUT = 60.0
"""Seconds for which one call is tried again; who can wait longer says so."""
LARGE = 32 << 20
"""Bytes above which a file is uploaded in several streams."""
SLOWEST = 1 << 20
"""Bytes per second of the slowest transfer that the time limits allow for."""
GRANT_SETTLES = 600.0
"""Seconds after which a new role applies everywhere: usually 2 minutes, at worst 7 or more (docs/facts.md 6.2)."""
_LISTED = "name,size,generation,updated,md5Hash,crc32c"
BYTES = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True)
class StoredBytes:
    """An object's bytes and generation."""

    data: bytes
    generation: int


class JobBucket:
    """
    The objects of one bucket; every call retries for at most its *timeout*, in seconds.

    With *prefix*, all names are relative to it, as several deployments share the bucket. Calls raise
    TransientError when the time is over, PreconditionError for 412, AgentError for a refusal. Roles granted
    at *granted_at* (seconds since the epoch) do not apply everywhere at once, so for GRANT_SETTLES a refusal
    counts as transient.
    """

    def __init__(
        self, name: str, base: str, tokens: Tokens, granted_at: float = 0.0, prefix: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:  # fmt: skip
        self.name = name
        self.prefix = prefix
        self._settled_at = granted_at + GRANT_SETTLES
        self._base = base.rstrip("/")
        self._tokens, self._clock = tokens, clock
        self._transport = Transport()
        self._streams = transfers.Streams()
        self._composes: Optional[bool] = None

    @classmethod
    def from_environ(
        cls, name: str, environ: Mapping[str, str], metadata: Metadata, clock: Clock = SYSTEM_CLOCK
    ) -> JobBucket:
        """Return the bucket in Cloud Storage, or in the emulator of STORAGE_EMULATOR_HOST."""
        emulator = environ.get("STORAGE_EMULATOR_HOST", "")
        base = emulator if "://" in emulator or not emulator else f"http://{emulator}"
        # An emulator requires no token, and a machine of tests may have no metadata server.
        tokens = Tokens(metadata, optional=bool(emulator))
        granted_at = seconds_in(environ.get("TPUCTL_GRANTED_AT", ""))
        return cls(name, base or DEFAULT_BASE, tokens, granted_at, environ.get("TPUCTL_PREFIX", ""), clock)

    @property
    def retry_timeout(self) -> float:
        """Return for how many seconds to retry a call without which the agent cannot continue."""
        return max(TIMEOUT, self._settled_at - self._clock.now())

    def read(self, name: str, timeout: float = TIMEOUT) -> Optional[StoredBytes]:
        """Return an object, None if it does not exist; only the first 32 MiB of a larger one."""
        path = f"/download/storage/v1{self._object(name)}?alt=media"
        reply = self._call("GET", path, timeout, limit=IN_MEMORY)
        return (
            None if reply.status == 404 else StoredBytes(reply.body, int(reply.headers["x-goog-generation"]))
        )

    def read_from(self, name: str, start: int, length: int, timeout: float = TIMEOUT) -> bytes:
        """Return at most *length* bytes from offset *start*; b"" if there are none or the object is missing."""
        asked = {"Range": f"bytes={start}-{start + length - 1}"}
        path = f"/download/storage/v1{self._object(name)}?alt=media"
        reply = self._call("GET", path, timeout, more=asked)
        if reply.status == 200:  # A server without support for ranges sends the whole object.
            return reply.body[start : start + length]
        return reply.body if reply.status == 206 else b""

    def stat(self, name: str, timeout: float = TIMEOUT) -> Optional[Dict[str, Any]]:
        """Return the object's resource, None if it does not exist."""
        reply = self._call("GET", f"/storage/v1{self._object(name)}", timeout)
        return None if reply.status == 404 else json.loads(reply.body)

    def age(self, name: str, timeout: float = TIMEOUT) -> Tuple[Optional[float], float]:
        """
        Return the object's age in seconds (None if it does not exist) and the bucket's time.

        Both are by the bucket's clock. Raise TransientError if the answer has no Date.
        """
        reply = self._call("GET", f"/storage/v1{self._object(name)}", timeout)
        now = time_of(reply)
        if reply.status == 404:
            return None, now
        return now - seconds_of(str(json.loads(reply.body)["updated"])), now

    def write(
        self, name: str, data: bytes, if_generation: Optional[int] = None, timeout: float = TIMEOUT
    ) -> int:
        """Write an object from memory and return its generation; *if_generation* 0 means "must not exist"."""
        return int(self.insert(name, data, if_generation, timeout)["generation"])

    def insert(self, name: str, data: bytes, if_generation: Optional[int], timeout: float) -> Dict[str, Any]:
        """Write an object as `write` does and return its resource."""
        query = {"uploadType": "media", "name": self.prefix + name}
        if if_generation is not None:
            query["ifGenerationMatch"] = str(if_generation)
        path = f"/upload/storage/v1/b/{self.name}/o?{urlencode(query)}"
        made = _resource(self._call("POST", path, timeout, data), path)
        # A proxy or bad memory may corrupt bytes; the service's md5 is that of what it has stored.
        if made.get("md5Hash") not in (None, base64.b64encode(hashlib.md5(data).digest()).decode()):  # noqa: S324
            raise TransientError(f"{name}: the bucket holds other bytes than were sent")
        return made

    def compose(self, name: str, body: Dict[str, Any], if_generation: int) -> Optional[Dict[str, Any]]:
        """Join objects into one that has generation *if_generation* until then; None if a source is missing."""
        path = f"/storage/v1{self._object(name)}/compose?ifGenerationMatch={if_generation}"
        more = {"Content-Type": "application/json"}
        sources = [{**one, "name": self.prefix + one["name"]} for one in body["sourceObjects"]]
        body = {**body, "sourceObjects": sources}
        reply = self._call("POST", path, TIMEOUT, json.dumps(body).encode(), more=more)
        return None if reply.status == 404 else json.loads(reply.body)

    def read_range(self, name: str, generation: str, start: int, end: int, size: int) -> bytes:
        """
        Return the bytes from *start* to before *end* of one generation of an object of *size* bytes.

        Raise ReplacedError if that generation does not exist any more.
        """
        path = f"/download/storage/v1{self._object(name)}?alt=media&generation={generation}"
        asked = {"Range": f"bytes={start}-{end - 1}"}

        def check(reply: Reply) -> None:
            transfers.check_range(reply, generation, start, end, size)

        limit = end - start + 1
        return self._call("GET", path, transfers.PART_TIMEOUT, more=asked, limit=limit, check=check).body

    def delete(self, name: str, if_generation: Optional[int] = None, timeout: float = TIMEOUT) -> None:
        """Delete an object; a missing one is no error."""
        query = "" if if_generation is None else f"?ifGenerationMatch={if_generation}"
        # 404 is no error: a repeated call may find the result of its own first try.
        self._call("DELETE", f"/storage/v1{self._object(name)}{query}", timeout)

    def list(self, prefix: str, timeout: float = TIMEOUT) -> List[str]:
        """Return the names of all objects under *prefix*, over all pages."""
        return [
            item["name"] for page in self._pages({"prefix": prefix}, timeout) for item in self._items(page)
        ]

    def sizes(self, prefix: str, timeout: float = TIMEOUT) -> Dict[str, int]:
        """Return the size in bytes of every object under *prefix*, by name."""
        pages = self._pages({"prefix": prefix}, timeout)
        return {item["name"]: int(item["size"]) for page in pages for item in self._items(page)}

    def level(self, prefix: str, timeout: float = TIMEOUT) -> Tuple[List[str], List[str]]:
        """Return the objects directly under *prefix*, and its folders (names with a closing slash)."""
        pages = list(self._pages({"prefix": prefix, "delimiter": "/"}, timeout))
        names = [item["name"] for page in pages for item in self._items(page)]
        return names, [folder for page in pages for folder in self._folders(page)]

    def first_page(
        self, prefix: str, *, deep: bool, timeout: float = TIMEOUT
    ) -> Tuple[List[Dict[str, Any]], List[str]]:
        """
        Return the first page of objects under *prefix*, and of folders unless *deep*.

        For buckets that may hold millions of objects.
        """
        query = {"prefix": prefix, "maxResults": "1000", **({} if deep else {"delimiter": "/"})}
        page = next(self._pages(query, timeout))
        return self._items(page), self._folders(page)

    def other(self, name: str) -> JobBucket:
        """Return another bucket of the same service and account, without a prefix."""
        if name == self.name and not self.prefix:
            return self
        bucket = JobBucket(name, self._base, self._tokens, clock=self._clock)
        bucket._transport, bucket._streams = self._transport, self._streams
        return bucket

    def objects(self, prefix: str, timeout: float = TIMEOUT) -> List[Dict[str, Any]]:
        """Return the resources of all objects under *prefix*. Raise AgentError if the bucket does not exist."""
        query = {"prefix": prefix, "fields": f"items({_LISTED}),nextPageToken"}
        # Our own bucket may be created any moment; another bucket that is missing has a wrong name.
        missing = AgentError(f"gs://{self.name} is not there")
        return [item for page in self._pages(query, timeout, missing) for item in self._items(page)]

    def upload(self, name: str, path: Path, size: int) -> str:
        """Upload a file of *size* bytes; return the sha256 of what was sent. Raise DamagedError if it shrank."""
        if size <= transfers.SMALLEST_PART:
            data = path.read_bytes()
            if len(data) != size:
                raise DamagedError(f"{path} changed while it was read")
            self.write(name, data, timeout=TIMEOUT + size / SLOWEST)
            return hashlib.sha256(data).hexdigest()
        if size > LARGE and self._may_compose():
            return transfers.upload(self, self._streams, name, path, size)
        return self._upload_in_parts(name, path, size)

    def _may_compose(self) -> bool:
        """Return whether composing is allowed: with soft delete, deleted parts would be billed for days."""
        if self._composes is None:
            path = f"/storage/v1/b/{self.name}?fields=softDeletePolicy,retentionPolicy"
            try:
                held = _resource(self._call("GET", path, TIMEOUT), path)
            except TransientError:
                raise
            except AgentError:
                held = {"retentionPolicy": "not for us to see"}
            retained = held.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)
            self._composes = not int(retained) and "retentionPolicy" not in held
        return self._composes

    def _upload_in_parts(self, name: str, path: Path, size: int) -> str:
        query = urlencode({"uploadType": "resumable", "name": self.prefix + name})
        sender = ResumableUpload(
            self._transport,
            f"{self._base}/upload/storage/v1/b/{self.name}/o?{query}",
            self._tokens.headers,
            lambda reply, what: self._check(reply, f"{what} of gs://{self.name}/{name}"),
            PART,
            self._clock,
        )
        return sender.send(path, size, TIMEOUT + PART / SLOWEST)

    def download(
        self, name: str, path: Path, size: int, kind: str = "sha256", *, durable: bool = True
    ) -> str:
        """
        Download an object to a file; return its digest of *kind*, which the caller compares.

        *durable* files survive a power loss whole, which takes time on a busy disk.
        Raise DamagedError if the object does not exist or has more than *size* bytes.
        """
        if size > transfers.SMALLEST_PART:
            return transfers.download(self, self._streams, name, path, size, kind, durable=durable)
        target = f"/download/storage/v1{self._object(name)}?alt=media"
        with path.open("wb") as file:
            reply = self._call("GET", target, TIMEOUT + size / SLOWEST, sink=file, limit=size)
            file.flush()
            if durable:
                # The caller renames the file; without fsync the name could survive a power loss and the bytes not.
                os.fsync(file.fileno())
        if reply.status == 404:
            raise DamagedError(f"gs://{self.name}/{name} is not there")
        return digest_of(path, kind)

    def _object(self, name: str) -> str:
        return f"/b/{self.name}/o/{quote(self.prefix + name, safe='')}"

    def _items(self, page: Dict[str, Any]) -> List[Dict[str, Any]]:
        cut = len(self.prefix)
        return [{**item, "name": item["name"][cut:]} for item in page.get("items", [])]

    def _folders(self, page: Dict[str, Any]) -> List[str]:
        return [folder[len(self.prefix) :] for folder in page.get("prefixes", [])]

    def _pages(
        self, query: Dict[str, str], timeout: float, missing: Optional[AgentError] = None
    ) -> Iterator[Dict[str, Any]]:
        """Yield the pages of a list; if the bucket does not exist, raise *missing*, by default TransientError."""
        query, token = dict(query, prefix=self.prefix + query["prefix"]), ""
        while True:
            asked = dict(query, pageToken=token) if token else query
            path = f"/storage/v1/b/{self.name}/o?{urlencode(asked)}"
            reply = self._call("GET", path, timeout)
            if reply.status == 404 and missing is not None:
                raise missing
            page = _resource(reply, path)
            yield page
            token = page.get("nextPageToken", "")
            if not token:
                return

    def _call(
        self,
        method: str,
        path: str,
        timeout: float,
        body: Optional[bytes] = None,
        sink: Any = None,
        more: Optional[Dict[str, str]] = None,
        limit: Optional[int] = None,
        check: Callable[[Reply], None] = lambda _reply: None,
    ) -> Reply:
        def once(remaining: float) -> Reply:
            if sink is not None:
                # A failed try has left its first bytes in the file.
                sink.seek(0)
                sink.truncate()
            headers = {**self._tokens.headers(), **(BYTES if body is not None else {}), **(more or {})}
            reply = self._transport.send(
                method,
                self._base + path,
                headers,
                body=body,
                timeout=min(30.0, remaining),
                sink=sink,
                limit=limit,
            )
            self._check(reply, f"{method} gs://{self.name} {path.split('?', maxsplit=1)[0]}")
            check(reply)
            return reply

        return retrying(once, timeout, self._clock)

    def _check(self, reply: Reply, what: str) -> None:
        """Raise for every status but 2xx, 404 and 416 (the requested range starts after the end)."""
        if reply.status < 300 or reply.status in (404, 416):
            return
        if reply.status == 401:
            # A token can be revoked before it expires; the next try requests a new one.
            self._tokens.forget()
        text = f"{what}: {reply.status} {reply.body[:200].decode('utf-8', 'replace')}".strip()
        if reply.status == 412:
            raise PreconditionError(text)
        if reply.status == 403 and self._clock.now() < self._settled_at:
            raise TransientError(f"{text} (the account's role on the bucket may not count yet)")
        raise (TransientError if reply.status in (401, 408, 429) or reply.status >= 500 else AgentError)(text)


def seconds_in(text: str) -> float:
    """Return *text* as seconds since the epoch, 0 if it is not a number."""
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0


def _resource(reply: Reply, what: str) -> Dict[str, Any]:
    """Return the answer's JSON. Raise TransientError for a 404, which here means that the bucket is missing."""
    if reply.status == 404:
        raise TransientError(f"{what.split('?', maxsplit=1)[0]}: 404, the bucket is not there")
    value: Dict[str, Any] = json.loads(reply.body)
    return value
