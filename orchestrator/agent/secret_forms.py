"""
The ways in which programs write one value: as it is, quoted, escaped, encoded.
"""

from __future__ import annotations

import base64
import json
import shlex
from typing import Callable, Iterator, List
from urllib.parse import quote, quote_plus

SHORTEST = 6
"""Shorter texts are not masked: they would be found everywhere."""


def forms_of(value: str) -> List[bytes]:
    """
    Return everything to look for, each once; a value of several lines is looked for by line, too.
    """
    texts = [value, *(line for line in value.splitlines() if len(line) > 2 * SHORTEST)]
    whole = {text for text in (*texts, value.strip()) if len(text) >= SHORTEST}
    found = {form for text in whole for form in _forms(text) if len(form) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


def _forms(text: str) -> Iterator[bytes]:
    data = text.encode("utf-8", "surrogateescape")
    yield data
    yield data.hex().encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield from _base64(data, encode)
    quoted = (quote(data, safe=""), quote(data), quote_plus(data))
    escaped = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
    for form in (*quoted, *escaped, shlex.quote(text), text.replace("'", "'\\''")):
        yield form.encode("utf-8", "surrogateescape")


def _base64(data: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """
    Yield the value, also as part of a longer text (`Authorization: Basic`): it can begin at three places.
    """
    yield encode(data).rstrip(b"=")
    for before in (1, 2):
        whole = encode(b"\0" * before + data).rstrip(b"=")
        yield whole[before + 1 : -1]
