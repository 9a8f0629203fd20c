"""
The tie between a machine and the daemon of its local cloud: believe nobody else, and do not outlive it.

Loopback is shared by all users: once the daemon is dead, anybody may take its ports. The kernel says who
holds the other end of a connection (`emulator.http.owner`): machines share the computer's network.
"""

import asyncio
import socket

from orchestrator.emulator.http.owner import held_for_us

LOOK_SECONDS = 0.02
RETRY_SECONDS = 0.1
REFUSALS = 2
"""A port that nobody holds is asked once more: the answer may be meant for a connection before."""


class ForeignServerError(ConnectionError):
    """Say that another user of the computer serves where the daemon should."""


async def connected(host: str, port: int) -> socket.socket:
    """Return a connection to a server of this user or of root. Raise ForeignServerError, or another OSError."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
        while (ours := held_for_us(connection)) is None:  # noqa: ASYNC110 - who accepts it sends no event here
            await asyncio.sleep(LOOK_SECONDS)
    except BaseException:
        connection.close()
        raise
    if not ours:
        connection.close()
        raise ForeignServerError(f"another user serves at {host}:{port}")
    return connection


async def the_end(host: str, port: int) -> str:
    """
    Return when the daemon that serves at *port* of *host* is dead, and by what that was seen.

    It serves for as long as the machine lives. It may be slow: what is not answered is no sign.
    """
    refused = 0
    while refused < REFUSALS:
        try:
            connection = await connected(host, port)
            refused = 0
            with connection:
                # Nothing is asked, so nothing comes: the connection lasts as long as the daemon.
                await asyncio.get_running_loop().sock_recv(connection, 1)
            await asyncio.sleep(LOOK_SECONDS)
            continue  # whoever takes the port is to find no program of the machine
        except ForeignServerError as error:
            return str(error)
        except ConnectionRefusedError:
            refused += 1
        except OSError:
            refused = 0
        await asyncio.sleep(RETRY_SECONDS)
    return f"nobody serves at {host}:{port}"
