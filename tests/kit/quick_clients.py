"""
What Google's clients do again and again with equal values, done once; and nothing of what they do for nobody.

A request costs them as much as the whole simulated service does. None of this changes what is sent or read.
"""

import urllib.parse
from contextlib import nullcontext
from functools import lru_cache

from google.cloud.storage import _helpers, _http
from google.protobuf import json_format

MOST = 5000
"""Answers that are remembered."""
NO_TRACE = nullcontext()

_parse = json_format.Parse
_parsed = {}


def parse_json(text, message, **options):
    """Parse JSON into a protobuf message; equal texts are parsed once."""
    key = (type(message), text)
    known = _parsed.get(key)
    if known is None:
        if len(_parsed) > MOST:
            _parsed.clear()
        known = _parsed[key] = _parse(text, type(message)(), **options)
    message.CopyFrom(known)
    return message


QUICK = (
    (json_format, "Parse", parse_json),
    (urllib.parse, "quote", lru_cache(20_000)(urllib.parse.quote)),
    # Traces that nobody collects.
    (_helpers._PropertyMixin, "_create_trace_span", lambda *_, **__: NO_TRACE),
    (_http, "create_trace_span", lambda *_, **__: NO_TRACE),
)
"""What to patch: a holder, the name in it, and the quick way."""
GENUINE = tuple((holder, name, getattr(holder, name)) for holder, name, _ in QUICK)
"""What was there before."""
