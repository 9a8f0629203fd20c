"""The checksum on what is stored: whatever writes it, whoever reads it finds each changed byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.checksum import bytes_with_checksum, verified, with_checksum

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.text().filter(lambda key: key != "checksum"), VALUES, min_size=1, max_size=4)


@given(BODIES)
def test_the_two_ways_to_write_a_checksum_are_read_as_the_same(body):
    """Written once or twice, it is one body with one checksum."""
    assert verified(bytes_with_checksum(body)) == verified(json.dumps(with_checksum(body)).encode()) == body
    assert json.loads(bytes_with_checksum(body)) == with_checksum(body)


def test_each_changed_byte_is_found():
    """No byte of what is stored can become another one unseen."""
    data = bytes_with_checksum({"schema": 1, "step": 41, "loss": 0.5, "names": ["a", "b"]})
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if b'"checksum"' not in changed:
            continue  # Without a checksum it would be an earlier version's.
        with pytest.raises((ValueError, TypeError)):
            verified(changed)
