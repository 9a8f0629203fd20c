"""
Proxy a machine's connections: a CONNECT proxy on loopback behind which storage is the local cloud's.

TensorFlow has Google's host names compiled in, but obeys https_proxy and CURL_CA_BUNDLE (docs/facts.md 6.4).
A tunnel to one of these hosts ends here: its TLS is removed and its bytes go to the local cloud, except one
header, `Transfer-Encoding: identity` from TensorFlow. RFC 2616 had it, RFC 9112 has not, and h11 refuses it.
"""

import asyncio
import ipaddress
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from orchestrator.emulator.http.certificates import STORAGE_HOSTS
from orchestrator.emulator.machines.socket_owner import End, Inside, listening

LOOPBACK = "127.0.0.1"
LINGER_TIMEOUT = 300.0  # for the other direction, after one has ended
BLOCK = 64 * 1024
MAX_HOSTS = 1000
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
CLOSED = "is not reached from a rehearsal; job.env REHEARSAL_NETWORK: open lets the job reach other hosts"
NEVER = "is Google's and never reached from a rehearsal"
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Copy: TypeAlias = Callable[[Reader, Writer], Awaitable[None]]
IDENTITY = b"identity"
MAX_HEAD = 32 * 1024  # bytes of request line and headers
HEAD_TIMEOUT = 30.0
"""Seconds for the head of a request: a client that sends none holds a connection."""
GOOGLE = ("googleapis.com", "cloud.google.com", "google.internal", "pkg.dev", "gcr.io")
METADATA = ("fd20:ce::254", "fd00:ec2::254")
"""IPv6 addresses of metadata servers (cloud.google.com/compute/docs/metadata/querying-metadata; AWS IMDS)."""
METADATA_NAMES = ("metadata.google.internal", "169.254.169.254")
HOP = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization")


class ProxyRefusedError(Exception):
    """A refusal with an HTTP *status* and a *reason* of one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def encode(self) -> bytes:
        """Return the response; the reason is in the status line too, since most clients show only that."""
        body = f"tpuctl local cloud: {self.reason}\n".encode("ascii", "replace")
        head = f"HTTP/1.1 {self.status} {self.reason}\r\nContent-Type: text/plain\r\n"
        more = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return (head + more).encode("ascii", "replace") + body


@dataclass(frozen=True)
class Target:
    """
    Where a client wants to connect; *host* in lower case, without brackets.

    *head* is the request to send there first; "" for a tunnel.
    """

    host: str
    port: int
    head: bytes = b""

    @property
    def is_storage(self) -> bool:
        """Return whether the local cloud answers in its place."""
        return self.host in STORAGE_HOSTS and self.port == 443 and not self.head

    @property
    def is_metadata(self) -> bool:
        """Return whether it is the metadata server, over plain HTTP."""
        return self.host in METADATA_NAMES and self.port == 80 and bool(self.head)

    @property
    def is_google(self) -> bool:
        """Return whether it is a Google service, which no rehearsal may reach."""
        return any(self.host == name or self.host.endswith(f".{name}") for name in GOOGLE)

    @property
    def is_loopback(self) -> bool:
        """Return whether it is on this computer; some clients use the proxy for it despite no_proxy."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def is_link_local(address: str) -> bool:
    """Return whether *address* is one at which clouds give a machine its own metadata and tokens."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_link_local or str(found) in METADATA


async def read_target(reader: asyncio.StreamReader) -> Target | None:
    """Read the request's head and return its target, None if the client disconnected. Raise ProxyRefusedError."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_TIMEOUT)
    except asyncio.LimitOverrunError:
        raise ProxyRefusedError(431, f"the request's head is longer than {MAX_HEAD} bytes") from None
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        return None
    return target_of(head)


def target_of(head: bytes) -> Target:
    """Parse `CONNECT HOST:PORT`, or plain HTTP with a whole URL. Raise ProxyRefusedError."""
    lines = head.split(b"\r\n")
    words = lines[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProxyRefusedError(400, "this is no HTTP request")
    tunnel = words[0] == "CONNECT"
    try:
        url = urlsplit(f"//{words[1]}" if tunnel else words[1])
        host, port = (url.hostname or "").rstrip("."), url.port or (0 if tunnel else 80)
    except ValueError:
        host, port = "", 0
    if not (host and port) or (not tunnel and url.scheme != "http"):
        raise ProxyRefusedError(400, "expected CONNECT HOST:PORT, or a URL that begins with http://")
    if tunnel:
        return Target(host, port)
    path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    first = f"{words[0]} {path} {words[2]}".encode("latin-1")
    passed = [line for line in lines[1:-2] if line.partition(b":")[0].strip().lower() not in HOP]
    # One request for each connection, because the client's next one may be for another host.
    return Target(host, port, b"\r\n".join([first, *passed, b"Connection: close", b"", b""]))


class ConnectProxy:
    """
    Two ports on 127.0.0.1: the closed one leads to storage only, the open one to foreign hosts too.

    *storage* connects to the local cloud's storage. *metadata* returns the metadata server of the machine
    that holds a connection, given its two ends. *refused* counts refused targets. All methods belong to the
    event loop's thread.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        storage: Callable[[], socket.socket],
        inside: Inside | None = None,
        metadata: Callable[[End, End], End | None] = lambda _, __: None,
    ) -> None:
        self._context = context
        self._storage = storage
        self._inside = inside
        self._metadata = metadata
        self._inner_port = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.refused: Counter[str] = Counter()

    async def start(self, closed_port: int, open_port: int) -> None:
        """Listen on both ports. Raise OSError, with neither port held, if one is taken."""
        try:
            await self._listen(0, self._uncover, ssl=self._context, ssl_handshake_timeout=HEAD_TIMEOUT)
            self._inner_port = int(self._servers[0].sockets[0].getsockname()[1])
            await self._listen(closed_port, lambda r, w: self._serve(r, w, outside=False))
            await self._listen(open_port, lambda r, w: self._serve(r, w, outside=True))
        except OSError:
            await self.close()
            raise

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, port: int, serve: Any, **options: Any) -> None:
        async def tracked(reader: Reader, writer: Writer) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await serve(reader, writer)
            writer.close()

        listener = listening(LOOPBACK, port, self._inside)
        server = await asyncio.start_server(tracked, sock=listener, limit=MAX_HEAD, **options)
        self._servers.append(server)

    async def _serve(self, reader: Reader, writer: Writer, *, outside: bool) -> None:
        """Serve one client: a tunnel, or an answer with the reason for the refusal."""
        try:
            target = await read_target(reader)
            if target is None:
                return
            if target.is_metadata:
                host, port = await self._own_metadata(target, writer)
            else:
                host, port = self._route(target, outside=outside)
            there = await _reached(target, host, port)
        except ProxyRefusedError as refusal:
            await _refuse(reader, writer, refusal)
            return
        if target.head:
            there[1].write(target.head)
        else:
            writer.write(ESTABLISHED)
        await _join((reader, writer), there)

    async def _uncover(self, reader: Reader, writer: Writer) -> None:
        """Forward what comes out of the TLS layer to the local cloud."""
        # In a thread: with many tunnels, connecting may have to wait until this event loop accepts.
        there = await asyncio.open_connection(sock=await asyncio.to_thread(self._storage))
        await _join((reader, writer), there, copy_requests)

    async def _own_metadata(self, target: Target, writer: Writer) -> tuple[str, int]:
        """Return the metadata server of the requesting machine. Raise ProxyRefusedError."""
        peer, here = (writer.get_extra_info(name) for name in ("peername", "sockname"))
        found = await asyncio.to_thread(self._metadata, peer[:2], here[:2])
        if found is None:
            raise ProxyRefusedError(403, f"{target.host}:{target.port} {NEVER}")
        return found

    def _route(self, target: Target, *, outside: bool) -> tuple[str, int]:
        """Return the address to connect to. Raise ProxyRefusedError."""
        if target.is_storage:
            return LOOPBACK, self._inner_port
        if target.is_loopback or (outside and not target.is_google):
            return target.host, target.port
        name = f"{target.host}:{target.port}"
        if name not in self.refused:
            print(f"proxy: {name} was refused to a machine", file=sys.stderr, flush=True)  # noqa: T201 - the daemon's log
        if name in self.refused or len(self.refused) < MAX_HOSTS:
            self.refused[name] += 1
        raise ProxyRefusedError(403, f"{name} {NEVER if target.is_google else CLOSED}")


async def _reached(target: Target, host: str, port: int) -> tuple[Reader, Writer]:
    """Connect to a target. Raise ProxyRefusedError."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise ProxyRefusedError(502, f"{target.host}:{target.port}: {error.strerror or error}") from error
    if is_link_local(writer.get_extra_info("peername")[0]):
        # Checked by address, since any host name may resolve to a metadata server.
        writer.close()
        raise ProxyRefusedError(403, f"{target.host}:{target.port} {NEVER}")
    return reader, writer


async def _refuse(reader: Reader, writer: Writer, refusal: ProxyRefusedError) -> None:
    """Answer, then read what the client still sends: closing with unread bytes would cut the answer."""
    writer.write(refusal.encode())
    await writer.drain()
    writer.write_eof()
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_drop(reader), 1.0)


async def _drop(reader: Reader) -> None:
    while await reader.read(BLOCK):
        pass


async def _join(one: tuple[Reader, Writer], other: tuple[Reader, Writer], there: Copy | None = None) -> None:
    """Copy both ways until both have ended or one is broken; *there* copies from *one* to *other*."""
    copies = [
        asyncio.create_task(_to_end(there or _copy, one[0], other[1])),
        asyncio.create_task(_to_end(_copy, other[0], one[1])),
    ]
    try:
        done, _ = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        if all(task.result() for task in done):
            await asyncio.wait(copies, timeout=LINGER_TIMEOUT)
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        one[1].close()
        other[1].close()


async def _to_end(copy: Copy, reader: Reader, writer: Writer) -> bool:
    """Copy to the end; return whether the other direction may continue, which TLS does not allow."""
    try:
        await copy(reader, writer)
        if writer.can_write_eof():
            writer.write_eof()
            return True
    except (ConnectionError, ssl.SSLError, ValueError, asyncio.LimitOverrunError):
        pass
    return False


async def _copy(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(BLOCK):
        writer.write(data)
        await writer.drain()


async def copy_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the client ends. Raise ValueError or LimitOverrunError for anything but HTTP/1.1."""
    while head := await _line(reader, b"\r\n\r\n"):
        lines = head.split(b"\r\n")
        headers = [(_name(line), line.partition(b":")[2].strip().lower()) for line in lines[1:]]
        found = dict(headers)
        coding = found.get(b"transfer-encoding", IDENTITY)
        passed = [lines[0], *(line for line in lines[1:] if _name(line) != b"transfer-encoding")]
        if coding != IDENTITY:
            passed = lines
        writer.write(b"\r\n".join(passed))
        await writer.drain()
        if coding == IDENTITY:
            await _copy_exactly(reader, writer, int(found.get(b"content-length", b"0")))
        else:
            await _copy_chunks(reader, writer)


async def _copy_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = 1
    while size:
        line = await _line(reader, b"\r\n")
        size = int(line.partition(b";")[0], 16)
        writer.write(line)
        await _copy_exactly(reader, writer, size + 2 if size else 0)
    while (line := await _line(reader, b"\r\n")) not in (b"\r\n", b""):
        writer.write(line)
    writer.write(line)
    await writer.drain()


async def _copy_exactly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size > 0 and (data := await reader.read(min(size, BLOCK))):
        writer.write(data)
        await writer.drain()
        size -= len(data)


async def _line(reader: asyncio.StreamReader, end: bytes) -> bytes:
    """Return the bytes up to *end*, b"" if the client disconnected before."""
    try:
        return await reader.readuntil(end)
    except asyncio.IncompleteReadError:
        return b""


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
