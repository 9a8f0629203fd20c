"""A client is identified by its connection: by no header."""

import asyncio
import contextlib
import socket

from orchestrator.emulator.http.asgi import asgi_app, server
from orchestrator.emulator.http.router import Response

LINES = ("GET / HTTP/1.1", "Host: x", "Connection: close", "X-Forwarded-For: 10.9.9.9", "", "")
CLAIM = "\r\n".join(LINES).encode()


async def _asked():
    observed = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = server(asgi_app(lambda request: observed.append(request.peer) or Response.of({})))
        task = asyncio.create_task(serving._serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        mine = writer.get_extra_info("sockname")
        writer.write(CLAIM)
        await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        serving.should_exit = True
        await task
    return observed, mine


def test_a_forwarded_address_is_not_believed():
    """A machine's proxy could otherwise name the user's own connection, and act as the user."""
    observed, mine = asyncio.run(_asked())
    assert observed == [mine]
