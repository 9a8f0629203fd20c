"""Generate the forms in which programs print one value: as it is, quoted, escaped, encoded."""

from __future__ import annotations

import base64
import html
import json
import shlex
from typing import Callable, Iterator, List
from urllib.parse import quote, quote_plus

SHORTEST = 6
"""Shortest text to mask; shorter ones would be found everywhere."""
_ANSI_C = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'", "\x1b": "\\E"}
_BASH_QUOTED = frozenset(" !\"$&'()*,;<>?[\\]^`{|}")


def forms_of(value: str) -> List[bytes]:
    """Return all texts to look for, each once; a value of several lines is also looked for line by line."""
    # Short lines of a value (`}`) occur in many texts that are no secret.
    texts = [value, *(line for line in value.splitlines() if len(line) > 2 * SHORTEST)]
    whole = {text for text in (*texts, value.strip()) if len(text) >= SHORTEST}
    found = {form for text in whole for form in _forms(text) if len(form) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


def _forms(text: str) -> Iterator[bytes]:
    data = text.encode("utf-8", "surrogateescape")
    yield data
    yield from _hex(data)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield from _base64(data, encode)
    quoted = (quote(data, safe=""), quote(data), quote_plus(data))
    escaped = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
    more = (
        *(_lower_percent(form) for form in quoted),
        quote(quoted[0], safe=""),
        json.dumps(escaped[0])[1:-1],
        repr(data)[2:-1],
        html.escape(text),
        html.escape(text, quote=False),
        shlex.quote(text),
        text.replace("'", "'\\''"),
        # `set -x` and `printf %q` print arguments in these forms.
        *_bash(text),
    )
    for form in (*quoted, *escaped, *more):
        yield form.encode("utf-8", "surrogateescape")


def _hex(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in hexadecimal, in either case, joined or in pairs as `xxd` and OpenSSL write them."""
    small = data.hex()
    pairs = [small[at : at + 2] for at in range(0, len(small), 2)]
    for form in (small, ":".join(pairs), " ".join(pairs)):
        yield form.encode()
        yield form.upper().encode()


def _lower_percent(quoted: str) -> str:
    """Return a URL-encoded text with its escapes in lower case."""
    first, *rest = quoted.split("%")
    return first + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _bash(text: str) -> Iterator[str]:
    """Yield the text as bash's `printf %q` writes it: with backslashes, or inside $'...', possibly in octal."""
    yield "".join(f"\\{sign}" if sign in _BASH_QUOTED else sign for sign in text)
    escaped = "".join(_ANSI_C.get(sign, sign) for sign in text)
    yield escaped
    if not escaped.isascii():
        data = escaped.encode("utf-8", "surrogateescape")
        yield "".join(chr(byte) if byte < 127 else f"\\{byte:03o}" for byte in data)


def _base64(data: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the value in base64, also as part of a longer text (`Authorization: Basic`)."""
    yield encode(data).rstrip(b"=")
    # A group of base64 is three bytes, so the value may begin at any of three places in it.
    for before in (1, 2):
        whole = encode(b"\0" * before + data).rstrip(b"=")
        yield whole[before + 1 : -1]
