"""Serve the metadata of every machine on its own address, including wait_for_change."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11

from orchestrator.emulator.http.guard import from_browser, from_page
from orchestrator.emulator.http.metadata_tree import MachineView, answer
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.machines.socket_owner import Inside, listening

MAX_WAIT = 3600.0  # seconds, when a long-poll names no timeout_sec
NAMES = ("metadata.google.internal", "metadata", "169.254.169.254")  # docs/facts.md 5.1
Lookup = Callable[[str], MachineView | None]


class MetadataServer:
    """
    A metadata server on many addresses in one event loop; *lookup* finds an address's machine.

    An address without a machine answers 404. All methods belong to the loop's thread, except `changed`, which
    is safe from any.
    """

    def __init__(self, lookup: Lookup, inside: Inside | None = None) -> None:
        self._lookup = lookup
        self._inside = inside
        self._servers: dict[str, list[asyncio.AbstractServer]] = defaultdict(list)
        self._connections: dict[str, set[asyncio.Task[Any]]] = defaultdict(set)
        self._waiters: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, address: str, *ports: int) -> None:
        """Listen on *ports* of *address*. Raise OSError, with no port held, if one is taken."""
        self._loop = asyncio.get_running_loop()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(address, reader, writer)

        try:
            for port in ports:
                listener = listening(address, port, self._inside)
                self._servers[address].append(await asyncio.start_server(serve, sock=listener))
        except OSError:
            await self.stop(address)
            raise

    async def stop(self, address: str) -> None:
        """Close the address: its listeners and waiting connections."""
        for server in self._servers.pop(address, []):
            server.close()
        tasks = self._connections.pop(address, set())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        for address in list(self._servers):
            await self.stop(address)

    def changed(self, machine_id: str) -> None:
        """Wake the long-polls of a machine after a change, such as of an attribute or the preempted flag."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, machine_id)

    def _wake(self, machine_id: str) -> None:
        for waiter in self._waiters.pop(machine_id, set()):
            if not waiter.done():
                waiter.set_result(None)

    async def _serve(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client closes it or violates the protocol."""
        task = asyncio.current_task()
        if task is not None:
            self._connections[address].add(task)
        connection = h11.Connection(h11.SERVER)
        try:
            while (request := await _read(connection, reader)) is not None:
                response = await self._answer(address, request)
                writer.write(_encode(connection, response))
                await writer.drain()
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
        except (h11.ProtocolError, ConnectionError, asyncio.CancelledError):
            pass  # the client disconnected or violated the protocol, or `stop` closed the connection
        finally:
            self._connections[address].difference_update({task})
            writer.close()

    async def _answer(self, address: str, request: Request) -> Response:
        """Answer at once or, with wait_for_change, when the etag changes or the time is over."""
        # Reading the model runs due events, and one of them may stop a machine and wait for this event loop;
        # so it is read in a thread. The waiter is created before, to catch a change in between.
        if message := _foreign(address, request):
            return Response(403, f"{message}\n".encode())
        view = await asyncio.to_thread(self._lookup, address)
        deadline = time.monotonic() + _seconds(request.query.get("timeout_sec", ""))
        last = request.query.get("last_etag")
        while view is not None:
            waiter = self._waiter(view.machine.id)
            response = await asyncio.to_thread(answer, view, request)
            last = last or response.headers.get("etag")
            waits = request.query.get("wait_for_change", "").lower() == "true" and response.status == 200
            remaining = deadline - time.monotonic()
            if not waits or response.headers["etag"] != last or remaining <= 0:
                self._waiters[view.machine.id].discard(waiter)
                return response
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(waiter, remaining)
            self._waiters[view.machine.id].discard(waiter)
            view = await asyncio.to_thread(self._lookup, address)
        return Response(404, b"No machine has this address.\n")

    def _waiter(self, machine_id: str) -> "asyncio.Future[None]":
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[machine_id].add(waiter)
        return waiter


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> Request | None:
    """Read one request; None if the client has closed the connection."""
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            return Request.parse(head.method.decode(), head.target.decode(), headers, body)
        else:
            return None


def _encode(connection: h11.Connection, response: Response) -> bytes:
    headers = [*response.headers.items(), ("content-length", str(len(response.body)))]
    reason = HTTPStatus(response.status).phrase
    parts = [
        connection.send(h11.Response(status_code=response.status, reason=reason, headers=headers)),
        connection.send(h11.Data(data=response.body)),
        connection.send(h11.EndOfMessage()),
    ]
    return b"".join(part for part in parts if part)


def _foreign(address: str, request: Request) -> str:
    """Return why a request cannot be a machine's, "" if it may be."""
    host = request.headers.get("host", address).lower().partition(":")[0].rstrip(".")
    if host not in (address, *NAMES):
        return f"This metadata server has no name {host[:100]!r}."
    # A page's origin could be this address only if this server had pages, and it has none.
    page = from_page(request.headers) or (host != address and from_browser(request.headers))
    return f"A metadata server answers no web page: {page}." if page else ""


def _seconds(text: str) -> float:
    """Parse timeout_sec; anything but a number counts as no limit."""
    return float(text) if text.isdigit() else MAX_WAIT
