"""
Define requests and responses as values, and a router over them.

The daemon mounts the router under an ASGI server; simulations mount the same router into the HTTP session of
the official clients. Handlers are plain functions, so both see the same bytes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote


@dataclass(frozen=True)
class Request:
    """
    One HTTP request; *path* is still percent-encoded, header names are lower case.

    *content* is the body, or its pieces as received. *peer* is the client's address and port over TCP, else
    None.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes | Sequence[bytes] = b""
    peer: tuple[str, int] | None = None

    @cached_property
    def body(self) -> bytes:
        """Return the whole body; a large one is copied once more."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def pieces(self) -> Sequence[bytes]:
        """Return the body in pieces as received."""
        return (self.content,) if isinstance(self.content, bytes) else self.content

    @classmethod
    def parse(
        cls,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        peer: tuple[str, int] | None = None,
    ) -> "Request":
        """Build a request from its target `path?query`; of a repeated query key the last value counts."""
        path, query = split_target(target)
        lowered = {key.lower(): value for key, value in headers.items()}
        return cls(method, path, dict(query), lowered, body, peer)

    def json(self) -> dict[str, Any]:
        """
        Return the body as a JSON object; an empty body and null, which Go sends, give {}.

        Raise ValueError for anything else.
        """
        try:
            value = json.loads(self.body) if self.body.strip() else {}
        except RecursionError:
            raise ValueError("the body is nested too deeply") from None
        if value is not None and not isinstance(value, dict):
            raise ValueError("the body is not a JSON object")
        return value or {}


@lru_cache(maxsize=1024)
def split_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return path and query of a request target; cached, as loops repeat the same requests."""
    path, _, query = target.partition("?")
    return path, tuple(parse_qsl(query, keep_blank_values=True))


@dataclass(frozen=True)
class Response:
    """
    One HTTP answer; *source* yields a body that is too large to hold, and *body* is then b"".

    Set content-length together with a source.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    source: Iterator[bytes] | None = None

    @classmethod
    def of(cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
        head = {"content-type": "application/json; charset=UTF-8", **(headers or {})}
        return cls(status, json.dumps(value).encode(), head)


Handler = Callable[..., Response]
MAX_PATHS = 10_000
"""Paths whose routes are cached, as loops repeat the same requests."""


class Router:
    """
    Matches method and path against patterns such as `/v2/projects/{project}/locations`.

    A `{name}` matches one path segment, which is percent-decoded for the handler; `{name:path}` matches the
    rest. Handlers get the request and the parts by name.
    """

    def __init__(self) -> None:
        self._routes: list[tuple[str, str, re.Pattern[str], Handler]] = []
        self._found: dict[tuple[str, str], tuple[Handler, dict[str, str]] | None] = {}

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """Register *handler* for *method* and *pattern*; earlier routes take precedence."""
        self._routes.append((method, pattern.partition("{")[0], _compiled(pattern), handler))
        self._found.clear()

    def table(self) -> list[tuple[str, str]]:
        return [(method, regex.pattern) for method, _, regex, _ in self._routes]

    def find(self, request: Request) -> tuple[Handler, dict[str, str]] | None:
        key = (request.method, request.path)
        if key not in self._found:
            if len(self._found) >= MAX_PATHS:
                self._found.clear()
            self._found[key] = self._matched(*key)
        return self._found[key]

    def _matched(self, method: str, path: str) -> tuple[Handler, dict[str, str]] | None:
        for at, start, regex, handler in self._routes:
            if at == method and path.startswith(start):
                match = regex.match(path)
                if match:
                    return handler, {k: unquote(v) for k, v in match.groupdict().items()}
        return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # Simulations make thousands of routers, more patterns than `re` caches for all its users.
    regex = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", re.escape(pattern))
    regex = re.sub(r"\\{(\w+):path\\}", r"(?P<\1>.+)", regex)
    return re.compile(f"^{regex}$")
