"""Build one page of a listing: prefixes, delimiters, offsets and page tokens over sorted names."""

import base64
import binascii
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.emulator.state.storage.refusals import invalid

PAGE_LIMIT = 1000
_AFTER_ALL = "\U0010ffff"  # sorts after every name with the same prefix


@dataclass(frozen=True)
class Query:
    """The parameters of a list request, under the API's names in snake case."""

    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    include_trailing_delimiter: bool = False
    max_results: int = PAGE_LIMIT
    page_token: str = ""
    match_glob: str = ""


@dataclass(frozen=True)
class Page:
    """The names on one page; *next_token* is "" on the last."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    next_token: str


def page_of(names: Sequence[str], query: Query) -> Page:
    """
    Return one page of *names*, which must be sorted; items and prefixes count together.

    Code point order equals UTF-8 byte order, which is Cloud Storage's.
    """
    limit = min(query.max_results, PAGE_LIMIT)
    matches = glob_pattern(query.match_glob) if query.match_glob else None
    start = max(query.prefix, query.start_offset, _position(query.page_token))
    found: list[str] = []
    prefixes: list[str] = []
    index = bisect_left(names, start)
    while index < len(names) and _within(names[index], query):
        if len(found) + len(prefixes) >= limit:
            return Page(tuple(found), tuple(prefixes), _token(names[index]))
        if matches and not matches.fullmatch(names[index]):
            index += 1
            continue
        folder = _folder(names[index], query)
        if not folder or (query.include_trailing_delimiter and names[index] == folder):
            found.append(names[index])
        if folder:
            prefixes.append(folder)
        index = bisect_left(names, folder + _AFTER_ALL) if folder else index + 1
    return Page(tuple(found), tuple(prefixes), "")


def glob_pattern(glob: str) -> "re.Pattern[str]":
    """
    Return the pattern of a matchGlob: `*` and `?` stop at slashes, `**` does not, `[a-c]` and `{a,b}` choose.

    Source: cloud.google.com/storage/docs/json_api/v1/objects/list, "List objects and prefixes using glob".
    """
    text, depth, at = "", 0, 0
    while at < len(glob):
        sign = glob[at]
        end = glob.find("]", at + 2) if sign == "[" else -1
        if glob.startswith("**/", at):
            text, at = text + "(?:.*/)?", at + 3
            continue
        if glob.startswith("**", at):
            text, at = text + ".*", at + 2
            continue
        if end > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            text, at = text + (f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"), end + 1
            continue
        if sign == "\\" and at + 1 < len(glob):
            text, at = text + re.escape(glob[at + 1]), at + 2
            continue
        depth += (sign == "{") - (sign == "}" and depth > 0)
        inner = {
            "*": "[^/]*",
            "?": "[^/]",
            "{": "(?:",
            "}": ")" if "(?:" in text else "\\}",
            ",": "|" if depth else ",",
        }
        text, at = text + inner.get(sign, re.escape(sign)), at + 1
    try:
        return re.compile(text, re.DOTALL)
    except re.error:
        raise invalid(f"Invalid value for matchGlob: {glob}") from None


def _within(name: str, query: Query) -> bool:
    return name.startswith(query.prefix) and not (query.end_offset and name >= query.end_offset)


def _folder(name: str, query: Query) -> str:
    """Return the name up to the first delimiter after the prefix, "" if there is none."""
    at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
    return name[: at + len(query.delimiter)] if at >= 0 else ""


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _position(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid("Invalid page token.") from None
