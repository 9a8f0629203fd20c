"""
Mask secrets in what is shown or stored: known values, and texts with the shape of a token.

A stream is masked piece by piece: a possible beginning of a secret is held back until the rest arrives.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Pattern, Sequence, Set, Tuple, Union

from orchestrator.contract.secrets.secret_forms import forms_of

MAX_KEY = 16 << 10
"""Bytes of a private key without an end, after which text is shown again."""

_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_BEGINS = re.compile(rb"(?:-{1,5}|-----B(?:E(?:G(?:IN?)?)?)?|-----BEGIN [A-Z0-9 ]{0,60}-{0,4})\Z")
_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_KEY = "private key"


@dataclass(frozen=True)
class SecretShape:
    """
    Tokens that begin with *start*, followed by at least *least* characters of the set *more*.

    A *sure* shape cannot mean anything else.
    """

    name: str
    start: bytes
    more: bytes
    least: int
    sure: bool = True

    @property
    def whole(self) -> Pattern[bytes]:
        """Return the pattern for a whole token of this shape."""
        return re.compile(b"(?<![A-Za-z0-9])%s[%s]{%d,}" % (re.escape(self.start), self.more, self.least))

    @property
    def begun(self) -> Pattern[bytes]:
        """Return the pattern for an unfinished token of this shape at the end of the text."""
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
"""Line breaks inside a value: `base64` wraps after 76 columns, other programs at the terminal's width."""
_LEAST_BEGUN = 2
"""Bytes of a value at the end of a line for which the next line is awaited; one would delay many lines."""
CONTEXT = 80
"""Bytes before 40 hexadecimal digits that are searched for words that tell a key from a commit."""
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
    """Return the names of the token shapes in *text*, each once."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    found = [shape.name for shape, whole, _ in _PATTERNS if shape.start in data and whole.search(data)]
    found += [_KEY] if _BEGIN.search(data) else []
    found += [_WANDB] if not sure_only and _HEX.search(data) else []
    return list(dict.fromkeys(found))


def masked(text: str) -> str:
    """Return *text* with all token-like parts masked."""
    return Redactor().text(text)


class Redactor:
    """
    The secrets of one machine, safe for use from any thread.

    *forms* maps everything to look for to the secret's name, *lookers* find the next place of each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Dict[str, Set[str]] = {}
        self.forms: Dict[bytes, str] = {}
        self.finders: Sequence[_Looker] = _SHAPED

    def know(self, name: str, value: str) -> None:
        """Mask *value* from now on, in every form in which programs print it; earlier values stay masked too."""
        with self._lock:
            if value in self._values.setdefault(name, set()):
                return
            self._values[name].add(value)
            # Replaced, not changed: a stream on another thread may be using the old ones.
            self.forms = {**self.forms, **dict.fromkeys(forms_of(value), name)}
            values = [_value(form, name) for form, name in self.forms.items()]
            self.finders = (*values, _wrapped(self.forms), *_SHAPED)

    def text(self, text: str) -> str:
        """Return a whole text, masked."""
        stream = RedactedStream(self)
        data = text.encode("utf-8", "surrogateescape")
        return (stream.feed(data) + stream.end()).decode("utf-8", "surrogateescape")


class RedactedStream:
    """Mask one stream; not safe for use from several threads."""

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
        """Return what is held back, masked, because nothing more comes."""
        shown = self._take(b"", last=True)
        self._before, self._held, self._inside, self._key = b"", b"", None, 0
        return shown

    def _take(self, data: bytes, last: bool) -> bytes:
        # Keep some shown text: a token never begins inside a word, and the words before a commit identify it.
        text = self._before + self._held + data
        at, shown = len(self._before), b""
        hits: List[Optional[_Span]] = []
        while True:
            at = self._leave(text, at)
            if at < 0:
                return shown
            hold = len(text) if last else self._hold(text, at)
            hits = self._hits(text, at, hits)
            # The earliest match; of several at one place the longest.
            due = (hit for hit in hits if hit is not None and hit[0] < hold)
            span = min(due, key=lambda hit: (hit[0], -hit[1]), default=None)
            if span is None:
                shown += text[at:hold]
                self._before, self._held = text[max(0, hold - CONTEXT) : hold], text[hold:]
                return shown
            start, end, name, self._inside = span
            shown += text[at:start] + f"[masked: {name}]".encode()
            # A key without an end would otherwise mask everything after it.
            self._key = MAX_KEY if self._inside is _END else 0
            at = end

    def _leave(self, text: bytes, at: int) -> int:
        """Return the end of the rest of a token or key that is masked already; -1 if it does not end in *text*."""
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
        """Return the next place of each thing to look for, from *at* on, reusing what was found *before*."""
        finders = self._redactor.finders
        # A secret was added in the middle of the text, so everything is searched again.
        if len(before) != len(finders):
            return [find(text, at) for find in finders]
        passed = [hit is not None and hit[0] < at for hit in before]
        return [find(text, at) if passed[n] else before[n] for n, find in enumerate(finders)]

    def _hold(self, text: bytes, at: int) -> int:
        """Return where the first possible beginning of a secret is, to be completed by later bytes."""
        first = len(text)
        forms = self._redactor.forms
        for form in forms:
            first = min(first, _begun(form, text, at))
        first = min(first, _begun_above(forms, text, at))
        # No shape is longer than this, so the search does not grow with the held text.
        for pattern in (_BEGINS, _HEX_BEGUN, *(begun for _, _, begun in _PATTERNS)):
            match = pattern.search(text, max(at, len(text) - 160))
            if match is not None:
                first = min(first, match.start())
        return first


def _value(form: bytes, name: str) -> _Looker:
    def find(text: bytes, at: int) -> Optional[_Span]:
        start = text.find(form, at)
        return None if start < 0 else (start, start + len(form), name, None)

    return find


def _wrapped(forms: Mapping[bytes, str]) -> _Looker:
    """Return a function that finds values broken over lines, by reading the lines as one."""

    def find(text: bytes, at: int) -> Optional[_Span]:
        if text.find(b"\n", at) < 0:
            return None
        flat = _BREAK.sub(b"", text[at:])
        found = [(start, -len(form), name) for form, name in forms.items() if (start := flat.find(form)) >= 0]
        if not found:
            return None
        start, size, name = min(found)
        first, last = _positions(text, at, start, start - size - 1)
        return first, last + 1, name, None

    return find


def _positions(text: bytes, at: int, *offsets: int) -> List[int]:
    """Return the positions in *text* of bytes whose rising *offsets* from *at* do not count line breaks."""
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
    """Return the first 40 hexadecimal digits that are no commit or folder name, else None."""
    for match in _HEX.finditer(text, at):
        # Keys and commits are both 40 such digits; only the words before them on the line tell which it is.
        line = text[max(0, match.start() - CONTEXT) : match.start()].rpartition(b"\n")[2]
        revision = _REVISION.search(line) or text.startswith(b"/", match.end())
        if not revision or _KEYISH.search(line):
            return match.start(), match.end(), _WANDB, None
    return None


def _pattern(pattern: Pattern[bytes], name: str, start: bytes, inside: Optional[Pattern[bytes]]) -> _Looker:
    def find(text: bytes, at: int) -> Optional[_Span]:
        # Searching for plain bytes first is many times faster.
        match = pattern.search(text, at) if text.find(start, at) >= 0 else None
        return None if match is None else (match.start(), match.end(), name, inside)

    return find


_SHAPED = (
    *(_pattern(whole, one.name, one.start, re.compile(b"[%s]*" % one.more)) for one, whole, _ in _PATTERNS),
    _pattern(_BEGIN, _KEY, b"-----BEGIN ", _END),
    _hexadecimal,
)


def _begun_above(forms: Mapping[bytes, str], text: bytes, at: int) -> int:
    """Return where a value begins that may continue in the next line; the length of *text* for none."""
    longest = max(map(len, forms), default=0)
    at = max(at, len(text) - 2 * longest)
    if not longest or (text.find(b"\n", at) < 0 and not text.endswith(b"\r")):
        return len(text)
    flat = _BREAK.sub(b"", text[at:])
    first = min(_begun(form, flat, 0) for form in forms)
    return _positions(text, at, first)[0] if first <= len(flat) - _LEAST_BEGUN else len(text)


def _begun(form: bytes, text: bytes, at: int) -> int:
    """Return where the longest suffix of *text* that is a prefix of *form* begins; len(text) for none."""
    if text[-2:] not in form:
        # The usual case, checked much faster: at most the first byte can be there.
        return len(text) - 1 if len(text) > at and text.endswith(form[:1]) else len(text)
    position = text.find(form[:1], max(at, len(text) - len(form) + 1))
    while position >= 0:
        if form.startswith(text[position:]):
            return position
        position = text.find(form[:1], position + 1)
    return len(text)
