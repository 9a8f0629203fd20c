"""Numbers in a line of output: short, finite or openly not."""

from __future__ import annotations

from typing import Optional

from orchestrator.contract.limits import LARGEST_FLOAT

COUNT = rb"(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?!\d|\.\d|%)"
"""A whole number, perhaps with commas between thousands; no part of a longer one, no fraction, no share."""
VALUE = rb"([-+]?(?:\d{1,15}(?:\.\d{0,20})?|\.\d{1,20}|nan|inf(?:inity)?)(?:e[-+]?\d{1,3})?)(?![\w])"
"""A number as frameworks print a loss, NaN and infinity among them."""


def count(text: bytes) -> int:
    """Return what COUNT has matched."""
    return int(text.replace(b",", b""))


def value(text: bytes) -> float:
    """Return what VALUE has matched; NaN for what is not finite or too large to be a loss."""
    try:
        number = float(text)
    except ValueError:
        return float("nan")
    return number if abs(number) <= LARGEST_FLOAT else float("nan")


def usable(number: Optional[float]) -> Optional[float]:
    """Return a number that may be reported; None for NaN and for what was never there."""
    return number if number is not None and abs(number) <= LARGEST_FLOAT else None
