"""
What the tests of secrets share: values with every character that somebody may quote wrongly, and their forms.
"""

import base64
import json
import random
import shlex
import string
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


def spellings(value: str) -> set[bytes]:
    """Return a value as programs write it; of one with several lines also each line."""
    data = value.encode()
    found = {
        data, base64.b64encode(data).rstrip(b"="), base64.urlsafe_b64encode(data).rstrip(b"="),
        quote(value, safe="").encode(), quote_plus(value).encode(), shlex.quote(value).encode(),
        json.dumps(value)[1:-1].encode(), repr(value)[1:-1].encode(), data.hex().encode(),
    }  # fmt: skip
    return found | {line.encode() for line in value.splitlines() if "-----" not in line}
