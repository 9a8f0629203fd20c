"""What a client of the proxy asks for, and the answer that says why not."""

import asyncio
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.emulator.http.certificates import STORAGE_HOSTS

LONGEST_HEAD = 32 * 1024  # bytes of request line and headers
HEAD_SECONDS = 30.0
GOOGLE = ("googleapis.com", "cloud.google.com", "google.internal")
METADATA = ("fd20:ce::254", "fd00:ec2::254")
"""Metadata servers by IPv6 (cloud.google.com/compute/docs/metadata/querying-metadata; AWS IMDS)."""
METADATA_NAMES = ("metadata.google.internal", "169.254.169.254")
HOP = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization")


class RefusedError(Exception):
    """Answer with *status* and a *reason* of one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def encode(self) -> bytes:
        """Return the response. The reason is also in the status line: most clients show no more than that."""
        body = f"tpuctl local cloud: {self.reason}\n".encode("ascii", "replace")
        head = f"HTTP/1.1 {self.status} {self.reason}\r\nContent-Type: text/plain\r\n"
        more = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return (head + more).encode("ascii", "replace") + body


@dataclass(frozen=True)
class Target:
    """
    Name where a client wants to go; *host* in lower case, without brackets.

    *head* is the request to send there first; with none the client asks for a tunnel.
    """

    host: str
    port: int
    head: bytes = b""

    @property
    def is_storage(self) -> bool:
        """Say whether the local cloud answers in its place."""
        return self.host in STORAGE_HOSTS and self.port == 443 and not self.head

    @property
    def is_metadata(self) -> bool:
        """Say whether it is the metadata server, by plain HTTP as it is served."""
        return self.host in METADATA_NAMES and self.port == 80 and bool(self.head)

    @property
    def is_google(self) -> bool:
        """Say whether it is one of Google's services, which no rehearsal may reach."""
        return any(self.host == name or self.host.endswith(f".{name}") for name in GOOGLE)

    @property
    def is_loopback(self) -> bool:
        """Say whether it is on this computer: not all clients leave these out as no_proxy says."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def is_link_local(address: str) -> bool:
    """Say whether *address* is where a cloud shows a machine its own metadata and tokens."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_link_local or str(found) in METADATA


async def read_target(reader: asyncio.StreamReader) -> Target | None:
    """Read the request's head and return its target; None when the client has left. Raises RefusedError."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
    except asyncio.LimitOverrunError:
        raise RefusedError(431, f"the request's head is longer than {LONGEST_HEAD} bytes") from None
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        return None
    return target_of(head)


def target_of(head: bytes) -> Target:
    """Return the target of `CONNECT HOST:PORT`, or of plain HTTP with a whole URL. Raises RefusedError."""
    lines = head.split(b"\r\n")
    words = lines[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise RefusedError(400, "this is no HTTP request")
    tunnel = words[0] == "CONNECT"
    try:
        url = urlsplit(f"//{words[1]}" if tunnel else words[1])
        host, port = (url.hostname or "").rstrip("."), url.port or (0 if tunnel else 80)
    except ValueError:
        host, port = "", 0
    if not (host and port) or (not tunnel and url.scheme != "http"):
        raise RefusedError(400, "expected CONNECT HOST:PORT, or a URL that begins with http://")
    if tunnel:
        return Target(host, port)
    path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    first = f"{words[0]} {path} {words[2]}".encode("latin-1")
    passed = [line for line in lines[1:-2] if line.partition(b":")[0].strip().lower() not in HOP]
    # One request for each connection: the next one of this client may be for another host.
    return Target(host, port, b"\r\n".join([first, *passed, b"Connection: close", b"", b""]))
