"""Make one HTTP exchange with the standard library; every network failure becomes a TransientError."""

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

from orchestrator.agent.machine_clock import SYSTEM_CLOCK
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.clock import Clock
from orchestrator.contract.machine_errors import DamagedError, TransientError

T = TypeVar("T")
PAUSES = Backoff(0.25, 16.0, jitter=1.0)
"""Before a call is sent again; the whole pause is random, so that the workers of a slice do not come together."""
_dice = random.SystemRandom()
BLOCK = 1 << 20
_ENDS = (OSError, http.client.HTTPException, EOFError)


@dataclass(frozen=True)
class Reply:
    """An answer of any status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def time_of(reply: Reply) -> float:
    """Return the server's time (the Date header) in seconds since the epoch. Raise TransientError without one."""
    try:
        return parsedate_to_datetime(reply.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError) as error:
        raise TransientError("the answer does not tell the time") from error


def seconds_of(text: str) -> float:
    """Convert an RFC 3339 time in UTC to seconds since the epoch. Raise TransientError if it is not one."""
    whole, _, _ = text.partition(".")
    try:
        return float(calendar.timegm(time.strptime(whole.rstrip("Z"), "%Y-%m-%dT%H:%M:%S")))
    except ValueError as error:
        raise TransientError(f"{text!r} is not a time") from error


class Transport:
    """An HTTP client; without *proxies* it ignores the proxy settings of the environment."""

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
        Return the answer, whatever its status; the body of a 200 goes to *sink* if that is given.

        At most *limit* bytes of a body are returned; a longer one for a sink raises DamagedError. Raise
        TransientError if the answer is incomplete. *timeout* bounds each wait for the network, in seconds.
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
        # Includes http.client's own exceptions, which are no OSError: an incomplete answer is worth a retry.
        except _ENDS as error:
            raise TransientError(
                f"{method} {url.split('?', maxsplit=1)[0]}: {error or type(error).__name__}"
            ) from error


def _body(answer: http.client.HTTPResponse, limit: Optional[int]) -> bytes:
    """
    Return the body or its first *limit* bytes. Raise EOFError if the connection was cut.

    The length is compared, since HTTPResponse.read(n) ends silently at a cut connection.
    """
    if limit is None:
        return answer.read()
    # The limit bounds memory, whatever size the object has grown to.
    data, length = answer.read(limit), answer.headers.get("content-length")
    if length is not None and len(data) < min(limit, int(length)):
        raise EOFError(f"{len(data)} of {length} bytes came")
    return data


def _drain(answer: http.client.HTTPResponse, sink: IO[bytes], limit: Optional[int]) -> None:
    """
    Copy the body to *sink*. Raise EOFError if it was cut, DamagedError if it is too long.

    The length is compared, since HTTPResponse.read(n) ends silently at a cut connection.
    """
    expected = answer.headers.get("content-length")
    received = 0
    while True:
        block = answer.read(BLOCK)
        if not block:
            break
        received += len(block)
        if limit is not None and received > limit:
            raise DamagedError(f"more than the {limit} bytes that it is to have came")
        sink.write(block)
    if expected is not None and received != int(expected):
        raise EOFError(f"{received} of {expected} bytes came")


def _lower(headers: Message) -> Dict[str, str]:
    return {key.lower(): value for key, value in headers.items()}


def retrying(call: Callable[[float], T], timeout: float, clock: Clock = SYSTEM_CLOCK) -> T:
    """
    Call until it succeeds; retry after TransientError until *timeout* seconds are over, then raise the last one.

    *call* gets the seconds left, as a bound for its own waiting.
    """
    end = clock.monotonic() + timeout
    return retried(
        lambda: call(max(1.0, end - clock.monotonic())),
        (TransientError,),
        PAUSES,
        timeout=timeout,
        now=clock.monotonic,
        wait=clock.wait,
        # Full jitter, so that the machines of a slice do not all retry at the same moment after an outage.
        chance=_dice.random,
    )
