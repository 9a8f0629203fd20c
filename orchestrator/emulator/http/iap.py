"""
Serve Identity-Aware Proxy for TCP, as `gcloud compute start-iap-tunnel` uses it.

Path, subprotocol and frames are those of gcloud's source (googlecloudsdk/api_lib/compute/
iap_tunnel_websocket.py and iap_tunnel_websocket_utils.py): each message is a tag of two bytes, then a length
and data, or a count of bytes. Resuming a broken tunnel is not implemented.
"""

import asyncio
import ssl
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from orchestrator.emulator.http.websocket import MAX_HEAD, NORMAL, BrokenError, WebSocket
from orchestrator.emulator.machines.socket_owner import Inside, listening

LOOPBACK = "127.0.0.1"
PATH = "/v4/connect"
PROTOCOL = "relay.tunnel.cloudproxy.app"
ORIGIN = "bot:iap-tunneler"
MAX_READ = 16384
CONNECTED, DATA, ACK = 0x0001, 0x0004, 0x0007
NO_BACKEND, NOT_ALLOWED, NO_INSTANCE = 4003, 4033, 4047
PERMISSION = "iap.tunnelInstances.accessViaIAP"

Find = Callable[[str, str, str], str | None]


class IapRelay:
    """
    Relays gcloud's connections to machines, from an address that private machines accept.

    *find* returns the address of a running instance by project, zone and name, or None. With *denied* every
    connection is refused. All methods belong to the event loop's thread.
    """

    def __init__(
        self, find: Find, source: str, *, denied: bool = False, inside: Inside | None = None
    ) -> None:
        self._find = find
        self._source = source
        self._denied = denied
        self._inside = inside
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, port: int, context: ssl.SSLContext) -> None:
        """Listen with TLS, which gcloud requires. Raise OSError if the port is taken."""
        listener = listening(LOOPBACK, port, self._inside)
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=4 * MAX_HEAD, ssl=context)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        client = WebSocket(reader, writer)
        with suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            try:
                code, reason = await self._tunnel(client)
            except BrokenError as error:
                code, reason = error.code, str(error)
            await client.close(code, reason)
        writer.close()

    async def _tunnel(self, client: WebSocket) -> tuple[int, str]:
        """Relay one connection to its end; return the close code and its reason."""
        asked = await client.accept(PROTOCOL, ORIGIN)
        if asked.path != PATH:
            return NO_BACKEND, "a broken tunnel is not taken up again"
        if self._denied:
            return NOT_ALLOWED, "not authorized"
        wanted = asked.query
        names = (wanted.get(part, "") for part in ("project", "zone", "instance"))
        address = await asyncio.to_thread(self._find, *names)
        if address is None:
            return NO_INSTANCE, "failed to lookup instance"
        try:
            # From the last address of the cloud's network, which represents 35.235.240.0/20: private machines
            # accept connections from their own network only (docs/facts.md 6.3).
            machine = await asyncio.open_connection(
                address, int(wanted.get("port", "22")), local_addr=(self._source, 0)
            )
        except (OSError, ValueError):
            return NO_BACKEND, "failed to connect to backend"
        await client.send(_counted(CONNECTED, uuid.uuid4().hex.encode()))
        await _carry(client, *machine)
        return NORMAL, ""


async def _carry(client: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    copies = [asyncio.create_task(_inward(client, writer)), asyncio.create_task(_outward(reader, client))]
    try:
        done, _ = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except ConnectionError:
        pass  # The machine is gone, which ends its connections.
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        writer.close()


async def _inward(client: WebSocket, writer: asyncio.StreamWriter) -> None:
    """Copy to the machine, and acknowledge: gcloud buffers what is not acknowledged."""
    taken = 0
    while (message := await client.receive()) is not None:
        if len(message) < 6 or struct.unpack_from(">H", message)[0] != DATA:
            continue
        (size,) = struct.unpack_from(">I", message, 2)
        data = message[6 : 6 + size]
        writer.write(data)
        await writer.drain()
        taken += len(data)
        await client.send(struct.pack(">HQ", ACK, taken))


async def _outward(reader: asyncio.StreamReader, client: WebSocket) -> None:
    while data := await reader.read(MAX_READ):
        await client.send(_counted(DATA, data))


def _counted(tag: int, data: bytes) -> bytes:
    return struct.pack(">HI", tag, len(data)) + data
