"""Listing follows the rules of Cloud Storage, page by page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.emulator.state.storage.listing import Query, page_of
from orchestrator.emulator.state.storage.refusals import StorageError

NAMES = sorted(["a", "dir/", "dir/x", "dir/y/z", "e", "é", "z/1"])


def whole(names, **asked):
    """Return everything that all pages list."""
    found, prefixes, token = [], [], ""
    while True:
        page = page_of(names, Query(**asked, page_token=token))
        found += page.names
        prefixes += page.prefixes
        token = page.next_token
        if not token:
            return found, prefixes


def test_names_come_in_the_order_of_their_bytes():
    """Code point order is UTF-8 order."""
    assert whole(NAMES)[0] == sorted(NAMES, key=str.encode)


def test_a_prefix_limits_the_names():
    """Only names with the prefix are found, including the prefix itself."""
    assert whole(NAMES, prefix="dir/") == (["dir/", "dir/x", "dir/y/z"], [])


def test_a_delimiter_folds_what_lies_below_it():
    """Each folder appears once among the prefixes and none of its objects does."""
    assert whole(NAMES, delimiter="/") == (["a", "e", "é"], ["dir/", "z/"])
    assert whole(NAMES, delimiter="/", prefix="dir/") == (["dir/", "dir/x"], ["dir/y/"])


def test_a_folder_marker_is_an_item_too_when_asked_for():
    """With includeTrailingDelimiter `dir/` is both an item and a prefix."""
    found = whole(NAMES, delimiter="/", include_trailing_delimiter=True)
    assert found == (["a", "dir/", "e", "é"], ["dir/", "z/"])


def test_offsets_include_the_start_and_exclude_the_end():
    """The range is half open."""
    assert whole(NAMES, start_offset="dir/x", end_offset="e") == (["dir/x", "dir/y/z"], [])


def test_a_page_holds_at_most_a_thousand():
    """A larger limit is lowered to 1000."""
    names = [f"{n:05}" for n in range(2500)]
    page = page_of(names, Query(max_results=5000))
    assert len(page.names) == 1000
    assert page.next_token
    assert whole(names)[0] == names


def test_a_spoilt_token_is_refused():
    """A token that we did not make is a 400."""
    with pytest.raises(StorageError) as refused:
        page_of(NAMES, Query(page_token="%%%"))
    assert refused.value.status == 400


@given(
    names=st.sets(st.text("ab/é", min_size=1, max_size=6)),
    size=st.integers(1, 4),
    prefix=st.text("ab/", max_size=2),
    delimiter=st.sampled_from(["", "/", "ab"]),
)
def test_small_pages_add_up_to_the_whole(names, size, prefix, delimiter):
    """Whatever the page size, every name is found once, as an item or below one prefix."""
    listed = sorted(names)
    found, prefixes = whole(listed, max_results=size, prefix=prefix, delimiter=delimiter)
    assert (found, prefixes) == whole(listed, prefix=prefix, delimiter=delimiter)
    assert len(set(prefixes)) == len(prefixes)
    expected = {n for n in names if n.startswith(prefix)}
    covered = {n for n in expected if any(n.startswith(p) for p in prefixes)}
    assert set(found) | covered == expected
    assert not set(found) & covered
