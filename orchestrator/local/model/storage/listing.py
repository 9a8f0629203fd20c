"""
One page of a listing: prefixes, delimiters, offsets and page tokens over sorted names.
"""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.local.model.storage.errors import invalid

PAGE_LIMIT = 1000
_AFTER_ALL = "\U0010ffff"  # sorts behind every name with the same beginning


@dataclass(frozen=True)
class Query:
    """
    What a list request asks for; the names are those of the API in snake case.
    """

    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    include_trailing_delimiter: bool = False
    max_results: int = PAGE_LIMIT
    page_token: str = ""


@dataclass(frozen=True)
class Page:
    """
    Names found on one page; *next_token* is empty on the last.
    """

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    next_token: str


def page_of(names: Sequence[str], query: Query) -> Page:
    """
    Return one page of *names*, which are sorted; items and prefixes together fill it.

    Code point order is UTF-8 byte order, which is the order of Cloud Storage.
    """
    limit = min(query.max_results, PAGE_LIMIT)
    start = max(query.prefix, query.start_offset, _position(query.page_token))
    found: list[str] = []
    prefixes: list[str] = []
    index = bisect_left(names, start)
    while index < len(names) and _within(names[index], query):
        if len(found) + len(prefixes) >= limit:
            return Page(tuple(found), tuple(prefixes), _token(names[index]))
        folder = _folder(names[index], query)
        if not folder or (query.include_trailing_delimiter and names[index] == folder):
            found.append(names[index])
        if folder:
            prefixes.append(folder)
        index = bisect_left(names, folder + _AFTER_ALL) if folder else index + 1
    return Page(tuple(found), tuple(prefixes), "")


def _within(name: str, query: Query) -> bool:
    return name.startswith(query.prefix) and not (query.end_offset and name >= query.end_offset)


def _folder(name: str, query: Query) -> str:
    """
    Return the name up to the first delimiter after the prefix, or nothing.
    """
    at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
    return name[: at + len(query.delimiter)] if at >= 0 else ""


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _position(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid("Invalid page token.") from None
