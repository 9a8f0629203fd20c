"""Text that others have written: machines, the job, the cloud. It is shown, and never steers the terminal."""

import re

LONGEST = 4096
"""Most characters of one text that a machine reports."""
_UNSAFE = re.compile(
    # Control characters but tab and line feed; halves of a character; what turns the direction of writing.
    # The carriage return is in it too: it would let a line be written over by what follows.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_BREAKS = re.compile(r"[\t\n]+")
# Bounded repeats: a machine chooses this text, and must not choose how long it takes to read.
_COLOUR = re.compile(r"(\x1b\[(?:0?[1-7]|[0-9]{2,3}|0?)(?:[;:][0-9]{0,3}){0,15}m)")
"""What sets colours and weights (SGR, ECMA-48 8.3.117), and nothing else; not what hides text."""
_HIDES = re.compile(r"[\[;:]0?8[;:m]")


def clean(text: str, *, colours: bool = False) -> str:
    """
    Return *text* with everything visible that would steer a terminal; tabs and line feeds stay.

    With *colours* what sets colours stays too.
    """
    if not colours or "\x1b" not in text:
        return _UNSAFE.sub(_visible, text)
    parts = _COLOUR.split(text)
    # Every second part is what the pattern has found.
    cleaned = (part if n % 2 and not _HIDES.search(part) else clean(part) for n, part in enumerate(parts))
    return "".join(cleaned)


def cut(text: str, most: int = LONGEST) -> str:
    """
    Return *text* cleaned, on one line, and cut where it is longer than *most* characters.

    A line of its own could pass for one of ours: `next: run ...`.
    """
    # Cut before it is cleaned: a cleaned character is up to six long, and the limit is for what came in.
    return clean(_BREAKS.sub(" ", text if len(text) <= most else f"{text[:most]}..."))


def indented(text: str, width: int) -> str:
    """Return *text* with its further lines moved to the right, so that none of them passes for one of ours."""
    return text.replace("\n", "\n" + " " * width)


def _visible(found: "re.Match[str]") -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
