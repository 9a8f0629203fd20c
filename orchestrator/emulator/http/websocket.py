"""Implement a websocket server (RFC 6455) as far as Google's clients need it: whole binary messages."""

import asyncio
import base64
import hashlib
import struct
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from orchestrator.emulator.http.guard import from_page

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_HEAD = 16 * 1024
MAX_MESSAGE = 1024 * 1024
NORMAL, PROTOCOL_ERROR, TOO_BIG = 1000, 1002, 1009
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class BrokenError(Exception):
    """A client violated the protocol; *code* is the websocket's close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Opening:
    """The client's request to open the websocket."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class WebSocket:
    """A websocket with one client over a stream; messages arrive whole, as binary data."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._closed = False

    async def accept(self, protocol: str, origin: str) -> Opening:
        """
        Answer the opening handshake with the subprotocol *protocol*. Raise BrokenError for other requests.

        A client may send *origin* as its own; any other origin is a web page's.
        """
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        key, offered = headers.get("sec-websocket-key"), headers.get("sec-websocket-protocol", "")
        words = first.split(" ")
        if message := from_page(headers, origin):
            self._writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            raise BrokenError(PROTOCOL_ERROR, f"no web page is answered: {message}")
        if len(words) != 3 or words[0] != "GET" or not key or protocol not in offered.split(", "):
            self._writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            raise BrokenError(PROTOCOL_ERROR, "no websocket of the expected subprotocol was requested")
        digest = hashlib.sha1(key.encode() + GUID).digest()  # noqa: S324 - RFC 6455 wants this one
        answer = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
            "Sec-WebSocket-Protocol": protocol,
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in answer.items())
        self._writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{text}\r\n".encode())
        target = urlsplit(words[1])
        return Opening(target.path, dict(parse_qsl(target.query)), headers)

    async def receive(self) -> bytes | None:
        """Return the next message, None if the client has closed. Raise BrokenError."""
        message = b""
        while True:
            final, kind, data = await self._frame()
            if kind == _CLOSE:
                return None
            if kind == _PING:
                await self._send(_PONG, data)
            elif kind in (_BINARY, _CONTINUATION):
                message += data
                if len(message) > MAX_MESSAGE:
                    raise BrokenError(TOO_BIG, "the message is too long")
                if final:
                    return message
            elif kind != _PONG:
                raise BrokenError(PROTOCOL_ERROR, f"a frame of kind {kind} was not expected")

    async def send(self, message: bytes) -> None:
        await self._send(_BINARY, message)

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send a close frame once; nothing is sent after it."""
        if not self._closed:
            await self._send(_CLOSE, struct.pack(">H", code) + reason.encode()[:120])
            self._closed = True

    async def _frame(self) -> tuple[bool, int, bytes]:
        """Read one frame: whether it is the last of its message, its opcode, and its unmasked data."""
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
        if not second & 0x80:
            raise BrokenError(PROTOCOL_ERROR, "a client must mask its frames")
        if size > MAX_MESSAGE:
            raise BrokenError(TOO_BIG, "the frame is too long")
        mask = await self._reader.readexactly(4)
        return bool(first & 0x80), first & 0x0F, unmasked(await self._reader.readexactly(size), mask)

    async def _send(self, kind: int, data: bytes) -> None:
        if self._closed:
            return
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", 0x80 | kind, size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 127, size)
        self._writer.write(head + data)
        await self._writer.drain()


def unmasked(data: bytes, mask: bytes) -> bytes:
    """Apply the mask of four bytes to all of *data* in one operation."""
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
