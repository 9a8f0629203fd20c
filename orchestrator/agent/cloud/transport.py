"""One HTTP exchange by the standard library, with every network failure as TransientError."""

from __future__ import annotations

import calendar
import http.client
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, Callable, Dict, Mapping, Optional, TypeVar, Union

from orchestrator.contract.backoff import Backoff
from orchestrator.contract.machine_errors import TornError, TransientError

BLOCK = 1 << 20
_ENDS = (OSError, http.client.HTTPException, EOFError)


@dataclass(frozen=True)
class Reply:
    """Hold an answer of any status; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def time_of(reply: Reply) -> float:
    """Return the time by the server's clock, in seconds since the epoch. Raise TransientError without one."""
    try:
        return parsedate_to_datetime(reply.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError) as error:
        raise TransientError("the answer does not tell the time") from error


def seconds_of(text: str) -> float:
    """Return an RFC 3339 time in UTC as seconds since the epoch. Raises TransientError if it is not one."""
    whole, _, _ = text.partition(".")
    try:
        return float(calendar.timegm(time.strptime(whole.rstrip("Z"), "%Y-%m-%dT%H:%M:%S")))
    except ValueError as error:
        raise TransientError(f"{text!r} is no time") from error


class Transport:
    """Send requests. Without *proxies*, the proxy settings of the environment are ignored."""

    def __init__(self, proxies: bool = True) -> None:
        handlers = [] if proxies else [urllib.request.ProxyHandler({})]
        self._opener = urllib.request.build_opener(*handlers)

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        body: Union[bytes, IO[bytes], None] = None,
        timeout: float = 20.0,
        sink: Optional[IO[bytes]] = None,
        limit: Optional[int] = None,
    ) -> Reply:
        """
        Return the answer, whatever its status; a body of status 200 goes to *sink* when one is given.

        Of a body that is returned, *limit* bytes come; one that goes to a sink and is longer is a TornError.
        Raises TransientError when there is no whole answer. *timeout* bounds each wait for the network.
        """
        request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)  # noqa: S310
        try:
            try:
                answer = self._opener.open(request, timeout=timeout)
            except urllib.error.HTTPError as error:
                return Reply(error.code, _lower(error.headers), error.read(BLOCK))
            with answer:
                if sink is None or answer.status != 200:
                    return Reply(answer.status, _lower(answer.headers), _body(answer, limit))
                _drain(answer, sink, limit)
                return Reply(answer.status, _lower(answer.headers), b"")
        # Also http.client's own exceptions, which are no OSError: half an answer is worth another try.
        except _ENDS as error:
            raise TransientError(
                f"{method} {url.split('?', maxsplit=1)[0]}: {error or type(error).__name__}"
            ) from error


def _body(answer: http.client.HTTPResponse, limit: Optional[int]) -> bytes:
    """Return the body, or its first *limit* bytes; read(n) ends silently at a cut connection."""
    if limit is None:
        return answer.read()
    # Of an object that grew without bounds no more than this may come into memory.
    data, length = answer.read(limit), answer.headers.get("content-length")
    if length is not None and len(data) < min(limit, int(length)):
        raise EOFError(f"{len(data)} of {length} bytes came")
    return data


def _drain(answer: http.client.HTTPResponse, sink: IO[bytes], limit: Optional[int]) -> None:
    """Copy the body; HTTPResponse.read(n) ends silently at a cut connection, so the length is checked."""
    expected = answer.headers.get("content-length")
    received = 0
    while True:
        block = answer.read(BLOCK)
        if not block:
            break
        received += len(block)
        if limit is not None and received > limit:
            raise TornError(f"more than the {limit} bytes that it is to have came")
        sink.write(block)
    if expected is not None and received != int(expected):
        raise EOFError(f"{received} of {expected} bytes came")


def _lower(headers: Message) -> Dict[str, str]:
    return {key.lower(): value for key, value in headers.items()}


T = TypeVar("T")
PAUSES = Backoff(0.25, 16.0, jitter=1.0)
_dice = random.SystemRandom()


def retrying(call: Callable[[float], T], seconds: float) -> T:
    """
    Return what *call* returns; try again after TransientError until *seconds* are over.

    *call* gets the seconds that are left, as a bound for its own waiting. The last TransientError
    is raised when time is over.
    """
    end = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return call(max(1.0, end - time.monotonic()))
        except TransientError:
            failures += 1
            # Full jitter: all machines of a slice meet the same outage, and must not come back in one moment.
            pause = PAUSES.after(failures, _dice.random())
            if time.monotonic() + pause >= end:
                raise
            time.sleep(pause)  # The agent runs on real machines only: the service needs real time to recover.
