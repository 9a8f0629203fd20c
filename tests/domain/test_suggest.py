"""Suggestions for mistyped words."""

import random

import pytest

from orchestrator.config.setting_types import settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.text.suggest import closest, did_you_mean, edits, join


@pytest.mark.parametrize(
    ("remaining", "right", "count"),
    [
        ("spot", "spot", 0),
        ("spto", "spot", 1),
        ("spt", "spot", 1),
        ("sport", "spot", 1),
        ("", "abc", 3),
        ("ab", "ca", 2),
    ],
)
def test_edits_counts_swaps_as_one(remaining, right, count):
    """A swap of neighbours, the commonest slip, is one edit."""
    assert edits(remaining, right) == count


def test_nothing_is_suggested_for_a_word_unlike_all():
    """A far word gets no hint, since a wrong hint costs more than none."""
    assert did_you_mean("xylophone", ["spot", "zones"]) == ""


def test_a_short_word_is_not_rewritten_from_scratch():
    """Two edits in a word of two letters would suggest anything."""
    assert closest("xy", ["vm", "tpu"]) == []


def test_all_equally_near_options_are_named():
    """A type that never existed names its neighbours."""
    assert did_you_mean("v9-8", ["v2-8", "v3-8", "v4-8", "v6e-8"]) == "did you mean v2-8, v3-8 or v4-8?"


def test_nearly_every_slip_of_two_edits_gets_the_right_hint():
    """Of 300 slips of up to two edits in names of settings, types and zones, at least 95 % get a hint."""
    rng = random.Random(7)
    catalog = load_catalog()
    pools = [[s.name for s in settings().values()], list(catalog.served()), list(catalog.zones)]
    hinted = 0
    for _ in range(300):
        pool = rng.choice(pools)
        word = rng.choice([name for name in pool if len(name) > 3])
        hinted += bool(closest(_slip(rng, word), pool))
    assert hinted >= 285


def _slip(rng, word):
    letters = list(word)
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(letters))
        kind = rng.choice(("drop", "double", "replace"))
        if kind == "drop":
            del letters[place]
        elif kind == "double":
            letters.insert(place, letters[place])
        else:
            letters[place] = rng.choice("abcdefghijklmnopqrstuvwxyz")
    return "".join(letters)


def test_join_reads_like_english():
    """Lists in messages are prose."""
    assert [join([]), join(["a"]), join("ab"), join("abc", "and")] == ["", "a", "a or b", "a, b and c"]
