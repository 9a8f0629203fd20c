"""Clean text from machines, the job or the cloud, so that it cannot control the terminal."""

import re

MAX_LENGTH = 4096
"""Most characters of a text that a machine reports."""
_UNSAFE = re.compile(
    # Control characters but tab and line feed, surrogates, and marks that reverse the direction of writing. The
    # carriage return is included, because it would let later text overwrite a line.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_BREAKS = re.compile(r"[\t\n]+")
# Bounded repeats: a machine chooses this text and must not choose how long matching takes.
_COLOUR = re.compile(r"(\x1b\[(?:0?[1-7]|[0-9]{2,3}|0?)(?:[;:][0-9]{0,3}){0,15}m)")
"""Escape sequences that set colours and weights (SGR, ECMA-48 8.3.117), without those that hide text."""
_HIDES = re.compile(r"[\[;:]0?8[;:m]")


def clean(text: str, *, colours: bool = False) -> str:
    """
    Return *text* with control characters made visible; tabs and line feeds stay.

    With *colours* the sequences that set colours stay too.
    """
    if not colours or "\x1b" not in text:
        return _UNSAFE.sub(_visible, text)
    parts = _COLOUR.split(text)
    # `split` puts the matches at the odd places.
    cleaned = (part if n % 2 and not _HIDES.search(part) else clean(part) for n, part in enumerate(parts))
    return "".join(cleaned)


def cut(text: str, most: int = MAX_LENGTH) -> str:
    """
    Return *text* cleaned, on one line, and cut to *most* characters.

    On one line, because a line of its own could pass for ours, for example `next: run ...`.
    """
    # Cut before cleaning: the limit is for the input, and a cleaned character can be six long.
    return clean(_BREAKS.sub(" ", text if len(text) <= most else f"{text[:most]}..."))


def indented(text: str, width: int) -> str:
    """Return *text* with all lines but the first indented, so that none of them passes for one of ours."""
    return text.replace("\n", "\n" + " " * width)


def _visible(found: "re.Match[str]") -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
