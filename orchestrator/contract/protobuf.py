"""Parse the protobuf wire format as far as event files and TensorFlow's indexes need it."""

from __future__ import annotations

from typing import Iterator, Tuple, Union


def fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Yield number and value (int or bytes) of each field of a message. Raise ValueError."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire, -1)
        if wire == 2:
            size, at = varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError("not a protobuf message")
        yield number, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> Tuple[int, int]:
    """Return a varint (7 bits in each byte, lowest first) and the position behind it. Raise ValueError."""
    value = 0
    # Ten bytes hold 64 bits; a longer varint is damage, and could be as long as the file.
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("not a varint")
