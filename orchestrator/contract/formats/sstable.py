"""
Read the index of a TensorFlow checkpoint: how long each data file must be.

It is a sorted table as LevelDB writes it (a footer of 48 bytes with a magic number, blocks of entries with
shared key prefixes) whose values are BundleEntryProto messages: shard 3, offset 4, size 5.
"""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from orchestrator.contract.protobuf import fields, varint

FOOTER = 48
MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")


def shard_sizes(data: bytes) -> Optional[Dict[int, int]]:
    """
    Return the least size of each shard in bytes, None if the table is torn.

    Empty if its blocks are compressed, which TensorFlow's writer does not do.
    """
    if len(data) < FOOTER or data[-8:] != MAGIC:
        return None
    try:
        return _sizes(data)
    except (IndexError, ValueError):
        return None


def _sizes(data: bytes) -> Dict[int, int]:
    footer = data[-FOOTER:]
    _, place = _handle(footer, 0)
    (offset, size), _ = _handle(footer, place)
    sizes: Dict[int, int] = {}
    for _key, value in _entries(data, offset, size):
        (start, length), _ = _handle(value, 0)
        for key, entry in _entries(data, start, length):
            if key:  # The entry with an empty key is the header.
                numbers = {number: value for number, value in fields(entry) if isinstance(value, int)}
                shard = numbers.get(3, 0)
                sizes[shard] = max(sizes.get(shard, 0), numbers.get(4, 0) + numbers.get(5, 0))
    return sizes


def _entries(data: bytes, offset: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
    block = data[offset : offset + size]
    if len(block) < size or size < 4:
        raise ValueError("a block is cut")
    if data[offset + size] != 0:
        return
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    key, place = b"", 0
    while place < end:
        shared, place = varint(block, place)
        own, place = varint(block, place)
        length, place = varint(block, place)
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : place + own + length]
        place += own + length


def _handle(data: bytes, place: int) -> Tuple[Tuple[int, int], int]:
    offset, place = varint(data, place)
    size, place = varint(data, place)
    return (offset, size), place
