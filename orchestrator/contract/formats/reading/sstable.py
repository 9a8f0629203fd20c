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
    _, position = _handle(footer, 0)
    (offset, size), _ = _handle(footer, position)
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
    key, position = b"", 0
    while position < end:
        shared, position = varint(block, position)
        own, position = varint(block, position)
        length, position = varint(block, position)
        key = key[:shared] + block[position : position + own]
        yield key, block[position + own : position + own + length]
        position += own + length


def _handle(data: bytes, position: int) -> Tuple[Tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position
