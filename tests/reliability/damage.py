"""Damage to stored bytes: every cut, and a flipped bit in every byte."""

import os


def depth(name, normal):
    """Return a number that says how deep a run goes; .ci/reliability sets larger ones in the environment."""
    return int(os.environ.get(name, normal))


def cuts(data):
    """Yield every proper beginning of *data*."""
    for length in range(len(data)):
        yield data[:length]


def flips(data, bits):
    """Yield *data* with one bit changed, *bits* times for each byte; which bits depends on the position."""
    for place in range(len(data)):
        for number in range(bits):
            changed = data[place] ^ (1 << (place + number) % 8)
            yield data[:place] + bytes([changed]) + data[place + 1 :]


def damages(data, bits):
    """Yield every cut and every flip of *data*."""
    yield from cuts(data)
    yield from flips(data, bits)
