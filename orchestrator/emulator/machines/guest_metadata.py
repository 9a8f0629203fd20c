"""
Tie a machine to the daemon of its local cloud: trust no other server, and end with the daemon.

Loopback is shared by all users: once the daemon is dead, any user may take its ports. The kernel reports who
holds the other end of a connection (`socket_owner`). The guest reads its attributes over such connections,
waits for changes, and publishes host keys.
"""

import asyncio
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.emulator.machines.socket_owner import held_for_us

POLL_SECONDS = 0.02
"""Seconds between two checks of a value, or before a lost connection is made again."""
LIFELINE_SECONDS = 0.1
"""Seconds between two tries to connect while nothing listens."""
REFUSALS = 2
"""A port without a listener is tried once more, as the answer may belong to an earlier connection."""
ROOT = "/computeMetadata/v1/"
RETRY_SECONDS = 0.3
"""Seconds before the local cloud is asked again."""


class ForeignServerError(ConnectionError):
    """Another user of the computer serves at the daemon's address."""


async def connected(host: str, port: int) -> socket.socket:
    """Connect to a server of this user or of root. Raise ForeignServerError, or another OSError."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
        while (ours := held_for_us(connection)) is None:  # noqa: ASYNC110 - who accepts it sends no event here
            # The kernel sends no event when the other end accepts.
            await asyncio.sleep(POLL_SECONDS)
    except BaseException:
        connection.close()
        raise
    if not ours:
        connection.close()
        raise ForeignServerError(f"another user serves at {host}:{port}")
    return connection


async def the_end(host: str, port: int) -> str:
    """
    Wait until the daemon at *port* of *host* is dead; return the evidence for it.

    It serves for as long as the machine lives and may be slow, so a missing answer proves nothing.
    """
    refused = 0
    while refused < REFUSALS:
        try:
            connection = await connected(host, port)
            refused = 0
            with connection:
                # No request is sent, so no data arrives; the read returns when the daemon ends.
                await asyncio.get_running_loop().sock_recv(connection, 1)
            # The daemon may be on its way up again; a shorter pause would keep a processor busy.
            await asyncio.sleep(POLL_SECONDS)
            continue  # without the longer pause: another user may take the port now
        except ForeignServerError as error:
            return str(error)
        except ConnectionRefusedError:
            refused += 1
        except OSError:
            refused = 0
        # As above, while no server listens.
        await asyncio.sleep(LIFELINE_SECONDS)
    return f"no server answers at {host}:{port}"


@dataclass(frozen=True)
class Answer:
    status: int
    etag: str
    body: bytes


class MetadataClient:
    """
    A client of one metadata server; every call opens its own connection.

    The answers say who may log in, so another user's server gets no request (`lifeline`).
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def call(self, method: str, path: str, body: bytes = b"", timeout: float = 10.0) -> Answer:
        """Make one request. Raise OSError without a complete answer within *timeout* seconds."""
        head = (
            f"{method} {ROOT}{path} HTTP/1.1\r\nHost: metadata.google.internal\r\n"
            f"Metadata-Flavor: Google\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            return await asyncio.wait_for(self._exchange(head.encode() + body), timeout)
        except (asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            raise OSError(f"no answer of the metadata server at {self._host}:{self._port}") from error

    async def attributes(self, scope: str) -> dict[str, str]:
        """Return all attributes of *scope* ("instance" or "project"); wait until the server answers."""
        answer = await self._patiently(f"{scope}/attributes/?recursive=true&alt=json")
        return _texts(answer) if answer.status == 200 else {}

    async def next_attributes(self, etag: str) -> tuple[dict[str, str], str]:
        """Wait for the instance attributes to differ from *etag*; return them with their new etag."""
        query = f"recursive=true&alt=json&wait_for_change=true&last_etag={etag}&timeout_sec=60"
        answer = await self._patiently(f"instance/attributes/?{query}", timeout=90.0)
        return _texts(answer), answer.etag

    async def publish(self, namespace: str, key: str, value: str) -> bool:
        """Set a guest attribute; False when the server refuses."""
        while True:
            with suppress(OSError):
                path = f"instance/guest-attributes/{namespace}/{key}"
                return (await self.call("PUT", path, value.encode())).status == 200
            # The daemon may be starting; it sends nothing to a machine that it does not know yet.
            await asyncio.sleep(RETRY_SECONDS)

    async def _patiently(self, path: str, timeout: float = 10.0) -> Answer:
        """Repeat a request until it is answered, since the daemon may be slow or still starting."""
        while True:
            with suppress(OSError):
                answer = await self.call("GET", path, timeout=timeout)
                if answer.status < 500:
                    return answer
            # As above.
            await asyncio.sleep(RETRY_SECONDS)

    async def _exchange(self, request: bytes) -> Answer:
        connection = await connected(self._host, self._port)
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            writer.write(request)
            status = int((await reader.readline()).split(b" ", 2)[1])
            headers: dict[str, str] = {}
            while (line := (await reader.readline()).strip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers["content-length"]))
            return Answer(status, headers.get("etag", ""), body)
        except (IndexError, KeyError) as error:
            raise OSError("cut answer") from error
        finally:
            writer.close()


def _texts(answer: Answer) -> dict[str, str]:
    """Return the attributes of a recursive answer, {} for an error."""
    values: dict[str, Any] = json.loads(answer.body) if answer.status == 200 else {}
    return {key: str(value) for key, value in values.items()}
