"""
Copy HTTP/1.1 requests as they are, but for one header.

TensorFlow sends `Transfer-Encoding: identity`. RFC 2616 had it, RFC 9112 has not, and h11 refuses it.
"""

import asyncio

BLOCK = 64 * 1024
IDENTITY = b"identity"


async def copy_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the client ends. Raises ValueError or LimitOverrunError for what is no HTTP/1.1 request."""
    while head := await _line(reader, b"\r\n\r\n"):
        lines = head.split(b"\r\n")
        headers = [(_name(line), line.partition(b":")[2].strip().lower()) for line in lines[1:]]
        found = dict(headers)
        coding = found.get(b"transfer-encoding", IDENTITY)
        kept = [lines[0], *(line for line in lines[1:] if _name(line) != b"transfer-encoding")]
        if coding != IDENTITY:
            kept = lines
        writer.write(b"\r\n".join(kept))
        await writer.drain()
        if coding == IDENTITY:
            await _copy(reader, writer, int(found.get(b"content-length", b"0")))
        else:
            await _copy_chunks(reader, writer)


async def _copy_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy a chunked body with its trailers."""
    size = 1
    while size:
        line = await _line(reader, b"\r\n")
        size = int(line.partition(b";")[0], 16)
        writer.write(line)
        await _copy(reader, writer, size + 2 if size else 0)
    while (line := await _line(reader, b"\r\n")) not in (b"\r\n", b""):
        writer.write(line)
    writer.write(line)
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size > 0 and (data := await reader.read(min(size, BLOCK))):
        writer.write(data)
        await writer.drain()
        size -= len(data)


async def _line(reader: asyncio.StreamReader, end: bytes) -> bytes:
    """Return what comes up to *end*, nothing when the client has left before."""
    try:
        return await reader.readuntil(end)
    except asyncio.IncompleteReadError:
        return b""


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
