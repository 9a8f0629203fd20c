"""What the tests of secrets share: values with every character that somebody may quote wrongly, and their forms."""

import base64
import functools
import html
import json
import random
import re
import shlex
import string
import subprocess
from urllib.parse import quote, quote_plus

KEY = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"
TAILS = (
    "", "'", '"', "$(id)", "`id`", "\\", "\\n", " two words", "&a=b", "%41", "+/=", "{{ 7*7 }}", "#x", "\t|",
    "é語", "🔑", "*?[a]", "~/x", ";rm", "-n",
)  # fmt: skip


def canaries(count: int = 20) -> dict[str, str]:
    """Return secrets by variable: each value stands nowhere else, and one of them has several lines."""
    rng = random.Random(5)
    word = lambda: "".join(rng.choices(string.ascii_letters + string.digits, k=24))  # noqa: E731
    found = {f"CANARY_{n}": f"cnry{n:02d}{word()}{TAILS[n % len(TAILS)]}{word()}" for n in range(count - 1)}
    lines = "\n".join(word() * 2 for _ in range(3))
    return {**found, f"CANARY_{count - 1}": KEY.format(lines)}


def more_spellings(value: str) -> set[bytes]:
    """Return what shells, tools and web pages make of a value."""
    data, percent = value.encode(), quote(value, safe="")
    pairs = [f"{byte:02x}" for byte in data]
    lower = re.sub("%..", lambda match: match[0].lower(), percent)
    said = {
        data.hex().upper(), ":".join(pairs), ":".join(pairs).upper(), " ".join(pairs), lower,
        quote(percent, safe=""), json.dumps(json.dumps(value))[3:-3], html.escape(value), repr(data)[2:-1],
    }  # fmt: skip
    shell = {quoted(value, locale) for locale in ("C", "C.UTF-8")}
    return {text.encode() for text in said} | shell


@functools.cache
def quoted(value: str, locale: str) -> bytes:
    """Return what the real bash makes of a value, inside its quotes."""
    words = ["bash", "-c", 'printf %q "$1"', "-", value]
    said = subprocess.run(words, env={"LC_ALL": locale}, capture_output=True, check=True).stdout
    return said[2:-1] if said.startswith(b"$'") else said


def spellings(value: str) -> set[bytes]:
    """Return a value as programs write it; of one with several lines also each line."""
    data = value.encode()
    found = {
        data, base64.b64encode(data).rstrip(b"="), base64.urlsafe_b64encode(data).rstrip(b"="),
        quote(value, safe="").encode(), quote_plus(value).encode(), shlex.quote(value).encode(),
        json.dumps(value)[1:-1].encode(), repr(value)[1:-1].encode(), data.hex().encode(),
    }  # fmt: skip
    found |= more_spellings(value)
    return found | {line.encode() for line in value.splitlines() if "-----" not in line}
