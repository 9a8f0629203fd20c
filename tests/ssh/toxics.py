"""
A TCP proxy that goes bad on purpose: the eight toxics of the well-known proxies, and a black hole.

A toxic begins at a moment of the SSH talk: at the first byte, after the client's version line, after its
last plain message (from there on all is encrypted), after so many bytes, or when somebody calls `strike`.
It then works in both directions on every connection, until `heal`: that spares new connections only.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

TOXICS = (
    "latency", "down", "bandwidth", "slow_close", "timeout", "reset_peer", "slicer", "limit_data",
    "black_hole",
)  # fmt: skip
HARMLESS = ("latency", "bandwidth", "slow_close", "slicer")
AT_ONCE = ("down", "reset_peer", "timeout")
BANNER, EXCHANGE, LOGIN, LATER = "banner", "exchange", "login", "later"
CHUNK = 64 * 1024
NEW_KEYS = 21
LATENCY, SLOW_CLOSE, TIMEOUT = 0.01, 0.2, 0.2  # seconds
RATE, PIECE = 2_000_000, 16_000  # bytes a second, and at a time
SLICE = 700  # bytes, on the average


@dataclass
class Talk:
    """Find the moment in what one client says: *offset* counts its bytes, *plain* keeps the unread plain ones."""

    moment: "str | int"
    offset: int = 0
    plain: bytearray = field(default_factory=bytearray)
    greeted: bool = False

    def turning_point(self, data: bytes) -> int | None:
        """Return how many of the next bytes pass before the moment, None while it has not come."""
        start, self.offset = self.offset, self.offset + len(data)
        if isinstance(self.moment, int):
            return None if self.offset < self.moment else max(0, self.moment - start)
        if self.moment not in (EXCHANGE, LOGIN):
            return None
        self.plain += data
        rest = self._after_the_moment()
        return None if rest is None else len(data) - rest

    def _after_the_moment(self) -> int | None:
        """Read the version line and then the plain packets (length, padding, kind); return what is left over."""
        if not self.greeted and b"\n" in self.plain:
            del self.plain[: self.plain.index(b"\n") + 1]
            self.greeted = True
        if self.greeted and self.moment == EXCHANGE:
            return len(self.plain)
        while self.greeted and len(self.plain) >= 6:
            length = 4 + struct.unpack(">I", self.plain[:4])[0]
            if len(self.plain) < length:
                break
            kind = self.plain[5]
            del self.plain[:length]
            if kind == NEW_KEYS:
                return len(self.plain)
        return None


class Pipe:
    """One connection: copies both ways, as badly as *toxic* wants once `bad` is set."""

    def __init__(self, toxic: str, talk: Talk, allowed: int, strike: Callable[[], None]) -> None:
        self.toxic = toxic
        self.bad = False
        self.writers: list[asyncio.StreamWriter] = []
        self._talk = talk
        self._allowed = allowed
        self._strike = strike

    def cut(self) -> None:
        """End the connection at once; a reset says so to both sides."""
        for writer in self.writers:
            if self.toxic == "reset_peer":
                with suppress(OSError):
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, forward: bool) -> None:
        """Copy one direction to its end; *forward* is what the client says."""
        allowed = self._allowed
        try:
            while data := await source.read(CHUNK):
                clean = 0 if self.bad else len(data)
                if forward and not self.bad and (point := self._talk.turning_point(data)) is not None:
                    clean = point
                    self._strike()
                sink.write(data[:clean])
                await sink.drain()
                if clean < len(data):
                    allowed -= await self._spoil(data[clean:], sink, allowed)
            await self._end(sink)
        except OSError:
            if not self._swallows():
                self.cut()

    async def _spoil(self, data: bytes, sink: asyncio.StreamWriter, allowed: int) -> int:
        """Do to *data* what the toxic does, and return how many bytes passed of those that are allowed."""
        if self.toxic == "limit_data":
            sink.write(data[:allowed])
            await sink.drain()
            if len(data) >= allowed:
                self.cut()
            return min(allowed, len(data))
        longest = 2 * SLICE if self.toxic == "slicer" else PIECE
        while data and self.toxic in HARMLESS:
            cut = random.randint(1, longest) if self.toxic == "slicer" else longest
            piece, data = data[:cut], data[cut:]
            # The toxic itself: its delay is what is tried.
            await asyncio.sleep({"latency": LATENCY, "bandwidth": len(piece) / RATE}.get(self.toxic, 0))
            sink.write(piece)
            await sink.drain()
        return 0

    async def _end(self, sink: asyncio.StreamWriter) -> None:
        """Pass the end of a direction on; who swallows data swallows that too."""
        if self.bad and self.toxic == "slow_close":
            await asyncio.sleep(SLOW_CLOSE)  # the toxic itself
        if not self._swallows():
            sink.write_eof()

    def _swallows(self) -> bool:
        return self.bad and self.toxic not in HARMLESS


class Proxy:
    """Forward to *target* from a port of *address*; every method runs on one event loop."""

    def __init__(self, target: tuple[str, int], address: str) -> None:
        self.target = target
        self.address = address
        self.port = 0
        self.refused = 0
        self.struck = False
        self._toxic = ""
        self._moment: str | int = LATER
        self._allowed = 0
        self._pipes: list[Pipe] = []
        self._old: list[Pipe] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self.address, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def arm(self, toxic: str, moment: "str | int", allowed: int = 0) -> None:
        """Go bad at *moment*; limit_data then lets *allowed* more bytes pass in each direction."""
        self._toxic, self._moment, self._allowed = toxic, moment, allowed
        if moment == BANNER:
            self._strike()

    async def strike(self) -> None:
        """Go bad now."""
        self._strike()

    async def heal(self) -> None:
        """Treat new connections well; those that stand stay as bad as they are."""
        self._old, self._pipes = self._old + self._pipes, []
        self._toxic, self._moment, self.struck = "", LATER, False
        await self.open()

    async def drop(self) -> None:
        """End every connection."""
        for pipe in self._old + self._pipes:
            pipe.cut()

    async def close(self) -> None:
        """End every connection and stop listening."""
        await self.drop()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _strike(self) -> None:
        self.struck = True
        for pipe in self._pipes:
            self._spoil(pipe)
        if self._toxic == "down" and self._server is not None:
            self._server.close()
            self._server = None

    def _spoil(self, pipe: Pipe) -> None:
        if not pipe.bad:
            pipe.bad = True
            if pipe.toxic in AT_ONCE:
                asyncio.get_running_loop().call_later(TIMEOUT if pipe.toxic == "timeout" else 0, pipe.cut)

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self.refused += self.struck
        pipe = Pipe(self._toxic, Talk(self._moment), self._allowed, self._strike)
        self._pipes.append(pipe)
        with suppress(OSError):
            server, onward = await asyncio.open_connection(*self.target)
            pipe.writers = [back, onward]
            for writer in pipe.writers:
                writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.struck:
                self._spoil(pipe)
            await asyncio.gather(pipe.carry(client, onward, True), pipe.carry(server, back, False))
        for writer in pipe.writers:
            writer.close()
