"""Parse numbers in output lines: short and finite, else NaN."""

from __future__ import annotations

from typing import Optional

from orchestrator.contract.bucket.limits import MAX_FLOAT

COUNT = rb"(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?!\d|\.\d|%)"
"""An integer, possibly with commas between thousands; not part of a longer number, fraction or percentage."""
VALUE = rb"([-+]?(?:\d{1,15}(?:\.\d{0,20})?|\.\d{1,20}|nan|inf(?:inity)?)(?:e[-+]?\d{1,3})?)(?![\w])"
"""A number as frameworks print a loss, including NaN and infinity."""


def count(text: bytes) -> int:
    """Return the integer that COUNT matched."""
    return int(text.replace(b",", b""))


def value(text: bytes) -> float:
    """Return the number that VALUE matched; NaN if it is not finite or too large for a loss."""
    try:
        number = float(text)
    except ValueError:
        return float("nan")
    return number if abs(number) <= MAX_FLOAT else float("nan")


def usable(number: Optional[float]) -> Optional[float]:
    """Return a number that may be reported; None for NaN and None."""
    return number if number is not None and abs(number) <= MAX_FLOAT else None
