"""
Mask secrets in what is shown or stored: values that are known, and texts that have the shape of a token.

A stream is masked piece by piece: what may be the beginning of a secret is held back until the rest shows.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Pattern, Sequence, Set, Tuple, Union

from orchestrator.contract.secret_forms import forms_of

LONGEST_KEY = 16 << 10
"""Bytes of a private key without an end, after which text is shown again."""

_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_BEGINS = re.compile(rb"(?:-{1,5}|-----B(?:E(?:G(?:IN?)?)?)?|-----BEGIN [A-Z0-9 ]{0,60}-{0,4})\Z")
_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_KEY = "private key"


@dataclass(frozen=True)
class SecretShape:
    """
    Describe tokens that begin with *start*: at least *least* characters of the set *more* follow.

    A shape that is *sure* means nothing else.
    """

    name: str
    start: bytes
    more: bytes
    least: int
    sure: bool = True

    @property
    def whole(self) -> Pattern[bytes]:
        """Match a token, as far as it goes."""
        return re.compile(b"(?<![A-Za-z0-9])%s[%s]{%d,}" % (re.escape(self.start), self.more, self.least))

    @property
    def begun(self) -> Pattern[bytes]:
        """Match the beginning of a token at the end of the text."""
        parts = [re.escape(self.start[:count]) for count in range(1, len(self.start))]
        parts.append(b"%s[%s]{0,%d}" % (re.escape(self.start), self.more, self.least - 1))
        return re.compile(rb"(?<![A-Za-z0-9])(?:%s)\Z" % b"|".join(parts))


SHAPES = (
    SecretShape("a Hugging Face token", b"hf_", b"A-Za-z0-9_", 16),
    SecretShape("a Google access token", b"ya29.", rb"A-Za-z0-9_.\-", 10),
    SecretShape("a W&B API key", b"wandb_v1_", rb"A-Za-z0-9_\-", 16),
    SecretShape("a GitHub token", b"ghp_", b"A-Za-z0-9", 30),
    SecretShape("a GitHub token", b"github_pat_", b"A-Za-z0-9_", 30),
    SecretShape("a Google API key", b"AIza", rb"A-Za-z0-9_\-", 35),
)
_WANDB = "a W&B API key"
_BREAK = re.compile(rb"\r?\n[ \t]*|\r\Z")
"""What a value may be wrapped by: `base64` does so after 76 columns, programs at the width of a terminal."""
_LEAST_BEGUN = 2
"""Bytes of a value at the end of a line for which the next line is waited for; one would delay many lines."""
CONTEXT = 80
"""Bytes before a text of 40 hexadecimal digits that say whether it is a key."""
_REVISION = re.compile(
    rb"(?:[/@#]|\bpy[0-9.]*-"
    rb"|\b(?:commit|revision|rev|sha-?1|tree|parent|head|checkout(?: -\w+)*|snapshot|hash)\b"
    rb"[\s:='\"(\[]{0,3})\Z",
    re.IGNORECASE,
)
_KEYISH = re.compile(rb"key|token|secret|passw|login|auth", re.IGNORECASE)
_HEX = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_HEX_BEGUN = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{1,40}\Z")
_PATTERNS = [(shape, shape.whole, shape.begun) for shape in SHAPES]
_Span = Tuple[int, int, str, Optional[Pattern[bytes]]]
_Looker = Callable[[bytes, int], Optional[_Span]]


def shapes_in(text: Union[str, bytes], sure_only: bool = False) -> List[str]:
    """Return what the tokens in *text* look like, each kind once."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    found = [shape.name for shape, whole, _ in _PATTERNS if shape.start in data and whole.search(data)]
    found += [_KEY] if _BEGIN.search(data) else []
    found += [_WANDB] if not sure_only and _HEX.search(data) else []
    return list(dict.fromkeys(found))


def masked(text: str) -> str:
    """Return *text* without anything that looks like a token."""
    return Redactor().text(text)


class Redactor:
    """
    Know the secrets of one machine. Safe from any thread.

    *forms* is everything to look for with the secret's name, *lookers* find the next place of each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Dict[str, Set[str]] = {}
        self.forms: Dict[bytes, str] = {}
        self.lookers: Sequence[_Looker] = _SHAPED

    def know(self, name: str, value: str) -> None:
        """Mask *value* from now on, in each way in which programs write it; values before it stay masked too."""
        with self._lock:
            if value in self._values.setdefault(name, set()):
                return
            self._values[name].add(value)
            # Replaced and not changed: a stream on another thread goes on with the old ones in the middle of
            # a look.
            self.forms = {**self.forms, **dict.fromkeys(forms_of(value), name)}
            values = [_value(form, name) for form, name in self.forms.items()]
            self.lookers = (*values, _wrapped(self.forms), *_SHAPED)

    def text(self, text: str) -> str:
        """Return a whole text, masked."""
        stream = RedactedStream(self)
        data = text.encode("utf-8", "surrogateescape")
        return (stream.feed(data) + stream.end()).decode("utf-8", "surrogateescape")


class RedactedStream:
    """Mask one stream. Not safe from several threads."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""
        self._held = b""
        self._inside: Optional[Pattern[bytes]] = None
        self._key = 0

    def feed(self, data: bytes) -> bytes:
        """Take a piece and return what may be shown of everything so far."""
        return self._take(data, last=False)

    def end(self) -> bytes:
        """Return what is held back, masked: nothing more comes."""
        shown = self._take(b"", last=True)
        self._before, self._held, self._inside, self._key = b"", b"", None, 0
        return shown

    def _take(self, data: bytes, last: bool) -> bytes:
        # Some of what was shown stays: no token begins inside a word, and a revision is known by the words before.
        text = self._before + self._held + data
        at, shown = len(self._before), b""
        hits: List[Optional[_Span]] = []
        while True:
            at = self._leave(text, at)
            if at < 0:
                return shown
            hold = len(text) if last else self._hold(text, at)
            hits = self._hits(text, at, hits)
            # The first one, and of those that begin there the longest.
            due = (hit for hit in hits if hit is not None and hit[0] < hold)
            span = min(due, key=lambda hit: (hit[0], -hit[1]), default=None)
            if span is None:
                shown += text[at:hold]
                self._before, self._held = text[max(0, hold - CONTEXT) : hold], text[hold:]
                return shown
            start, end, name, self._inside = span
            shown += text[at:start] + f"[masked: {name}]".encode()
            # A key without an end would else mask all that comes after it.
            self._key = LONGEST_KEY if self._inside is _END else 0
            at = end

    def _leave(self, text: bytes, at: int) -> int:
        """Pass over the rest of a token or key that is masked already; -1 when it does not end in *text*."""
        inside = self._inside
        if inside is None:
            return at
        found = inside.search(text, at) if inside is _END else inside.match(text, at)
        if inside is _END and found is None and self._key > len(text) - at:
            tail = text[at:][-80:]
            self._key -= len(text) - at - len(tail)
            self._before, self._held = b"", tail
            return -1
        if inside is _END:
            self._inside = None
            return found.end() if found is not None else at
        end = found.end() if found is not None else at
        if end == len(text):
            self._before, self._held = text[-CONTEXT:], b""
            return -1
        self._inside = None
        return end

    def _hits(self, text: bytes, at: int, before: List[Optional[_Span]]) -> List[Optional[_Span]]:
        """Return the next place of each thing to look for, from *at* on; what was found *before* still counts."""
        lookers = self._redactor.lookers
        # A secret was learned in the middle of the text; all is looked for again.
        if len(before) != len(lookers):
            return [look(text, at) for look in lookers]
        passed = [hit is not None and hit[0] < at for hit in before]
        return [look(text, at) if passed[n] else before[n] for n, look in enumerate(lookers)]

    def _hold(self, text: bytes, at: int) -> int:
        """Return where the first thing begins that may become a secret with the bytes that are still to come."""
        first = len(text)
        forms = self._redactor.forms
        for form in forms:
            first = min(first, _begun(form, text, at))
        first = min(first, _begun_above(forms, text, at))
        # No shape is longer than this, so the search does not grow with the text that is held back.
        for pattern in (_BEGINS, _HEX_BEGUN, *(begun for _, _, begun in _PATTERNS)):
            match = pattern.search(text, max(at, len(text) - 160))
            if match is not None:
                first = min(first, match.start())
        return first


def _value(form: bytes, name: str) -> _Looker:
    def look(text: bytes, at: int) -> Optional[_Span]:
        start = text.find(form, at)
        return None if start < 0 else (start, start + len(form), name, None)

    return look


def _wrapped(forms: Mapping[bytes, str]) -> _Looker:
    """Look for values that lines are broken in, by reading the lines as one."""

    def look(text: bytes, at: int) -> Optional[_Span]:
        if text.find(b"\n", at) < 0:
            return None
        flat = _BREAK.sub(b"", text[at:])
        found = [(start, -len(form), name) for form, name in forms.items() if (start := flat.find(form)) >= 0]
        if not found:
            return None
        start, size, name = min(found)
        first, last = _places(text, at, start, start - size - 1)
        return first, last + 1, name, None

    return look


def _places(text: bytes, at: int, *offsets: int) -> List[int]:
    """Return where bytes stand in *text* that have these rising *offsets* from *at* on without breaks."""
    found, gone = [], at
    breaks = iter([(one.start(), one.end()) for one in _BREAK.finditer(text, at)])
    start, end = next(breaks, (len(text), len(text)))
    for offset in offsets:
        while offset + gone >= start < len(text):
            gone += end - start
            start, end = next(breaks, (len(text), len(text)))
        found.append(offset + gone)
    return found


def _hexadecimal(text: bytes, at: int) -> Optional[_Span]:
    """Return the first 40 hexadecimal digits that are not a commit or a folder's name, else None."""
    for match in _HEX.finditer(text, at):
        # The words before it on its line are all that tells a key from a commit: both are 40 such digits.
        line = text[max(0, match.start() - CONTEXT) : match.start()].rpartition(b"\n")[2]
        revision = _REVISION.search(line) or text.startswith(b"/", match.end())
        if not revision or _KEYISH.search(line):
            return match.start(), match.end(), _WANDB, None
    return None


def _pattern(pattern: Pattern[bytes], name: str, start: bytes, inside: Optional[Pattern[bytes]]) -> _Looker:
    def look(text: bytes, at: int) -> Optional[_Span]:
        # To look for plain bytes first is many times faster.
        match = pattern.search(text, at) if text.find(start, at) >= 0 else None
        return None if match is None else (match.start(), match.end(), name, inside)

    return look


_SHAPED = (
    *(_pattern(whole, one.name, one.start, re.compile(b"[%s]*" % one.more)) for one, whole, _ in _PATTERNS),
    _pattern(_BEGIN, _KEY, b"-----BEGIN ", _END),
    _hexadecimal,
)


def _begun_above(forms: Mapping[bytes, str], text: bytes, at: int) -> int:
    """Return where a value begins that may go on in the next line; the length of *text* for none."""
    longest = max(map(len, forms), default=0)
    at = max(at, len(text) - 2 * longest)
    if not longest or (text.find(b"\n", at) < 0 and not text.endswith(b"\r")):
        return len(text)
    flat = _BREAK.sub(b"", text[at:])
    first = min(_begun(form, flat, 0) for form in forms)
    return _places(text, at, first)[0] if first <= len(flat) - _LEAST_BEGUN else len(text)


def _begun(form: bytes, text: bytes, at: int) -> int:
    """Return where the longest end of *text* begins that *form* begins with; the length of *text* for none."""
    if text[-2:] not in form:
        # Most often so, and found out many times faster: no more than its first byte can be there.
        return len(text) - 1 if len(text) > at and text.endswith(form[:1]) else len(text)
    place = text.find(form[:1], max(at, len(text) - len(form) + 1))
    while place >= 0:
        if form.startswith(text[place:]):
            return place
        place = text.find(form[:1], place + 1)
    return len(text)
