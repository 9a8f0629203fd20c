"""A way to a machine that takes its time: a relay on loopback which delays what passes, and loses nothing."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from benchmarks.push.machines import SshdMachine

CHUNK = 65536


@contextmanager
def far_away(machine: SshdMachine, seconds: float) -> Iterator[SshdMachine]:
    """Give the machine a second address, with a round trip of *seconds*; it ends with the block."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(_serve(machine, seconds / 2))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield _moved(machine, server.sockets[0].getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(_hang_up(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(machine: SshdMachine, delay: float) -> asyncio.Server:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_connection(machine.host.address, machine.host.port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_pass_on(reader, there, delay), _pass_on(back, writer, delay))

    return await asyncio.start_server(meet, machine.host.address, 0)


async def _hang_up(server: asyncio.Server) -> None:
    """End what is still open: nobody waits for the last words of a connection."""
    server.close()
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Write each piece *delay* after it was read, while the next ones are read already."""
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        data = b"x"
        while data:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(data)
        writer.close()

    with suppress(ConnectionError):
        arriving = asyncio.ensure_future(arrive())
        data = b"x"
        while data:
            data = await reader.read(CHUNK)
            under_way.put_nowait((time.monotonic() + delay, data))
        await arriving


def _moved(machine: SshdMachine, port: int) -> SshdMachine:
    """Return the machine as it is reached through another port."""
    old, new = str(machine.host.port), str(port)
    known = machine.ssh_config.with_name("known")
    config = machine.ssh_config.with_name("ssh_config_far")
    with known.open("a") as file:
        file.write(known.read_text().replace(f":{old} ", f":{new} "))
    config.write_text(machine.ssh_config.read_text().replace(f"Port {old}", f"Port {new}"))
    return replace(machine, host=replace(machine.host, port=port), ssh_config=config)
