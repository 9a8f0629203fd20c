"""Every error of the official clients becomes one of ours here; `error_mapping` says what an answer means."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import TpuctlError
from orchestrator.google import client_failures
from orchestrator.google.error_mapping import CORRUPT, NETWORK, NO_LOGIN, UNKNOWN, Rule, judge, one_line
from orchestrator.google.refusal import Failure, of_compute


@contextmanager
def translated(what: str) -> Iterator[None]:
    """
    Turn errors of the clients into ours; *what* opens the message, for example `create TPU node 'a'`.

    Errors that are not the clients' (faults of our own) pass unchanged.
    """
    try:
        yield
    except TpuctlError:
        raise
    except Exception as error:
        ours = _translate(error, what)
        if ours is None:
            raise
        raise ours from error


def translate(error: BaseException, *, what: str) -> TpuctlError:
    """
    Return our error for any error of google.api_core, google.auth, storage, requests or urllib3.

    An error that no rule covers becomes UnknownCloudError.
    """
    if isinstance(error, TpuctlError):
        return error
    return _translate(error, what) or UNKNOWN(Failure(""), one_line(what, f"{type(error).__name__}: {error}"))


def translate_status(code: int, message: str, details: Iterable[Any] = (), *, what: str) -> TpuctlError:
    """Return our error for the google.rpc.Status of a long-running operation."""
    return judge(client_failures.of_status(code, message, details), what)


def translate_compute(code: str, message: str, http_status: int, *, what: str) -> TpuctlError:
    """Return our error for one entry of a compute operation's errors."""
    return judge(of_compute(code, message, http_status), what)


def _translate(error: BaseException, what: str) -> TpuctlError | None:
    """Return our error, or None when *error* does not come from the clients."""
    from google.api_core import exceptions as api

    if isinstance(error, api.RetryError) and isinstance(error.cause, Exception):
        return _translate(error.cause, what)
    if isinstance(error, api.GoogleAPICallError):
        return judge(client_failures.of_call(error), what)
    rule = _plain_rule(error)
    return rule(Failure(""), one_line(what, _reason(error))) if rule else None


def _reason(error: BaseException) -> str:
    """
    Return the system's word for a connection that failed, which is the same each time, else the error's text.

    The clients wrap it several times, in texts that name objects by their address in memory.
    """
    inner: list[BaseException] = [error]
    for one in inner:
        if isinstance(one, OSError) and one.strerror:
            return one.strerror.lower()
        told = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        inner += [other for other in told if isinstance(other, BaseException) and other not in inner]
    return str(error) or type(error).__name__


def _plain_rule(error: BaseException) -> Rule | None:
    """Return the rule for an error that carries no answer of an API."""
    import google.auth.exceptions as auth
    import requests
    import urllib3.exceptions
    from google.api_core import exceptions as api
    from google.cloud.storage import exceptions as gcs
    from google.protobuf.json_format import ParseError

    table: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Rule], ...] = (
        ((auth.TransportError, auth.TimeoutError, auth.ResponseError), NETWORK),
        (auth.GoogleAuthError, NO_LOGIN),
        (gcs.DataCorruption, CORRUPT),
        ((gcs.InvalidResponse, ParseError, api.GoogleAPIError), UNKNOWN),
        ((requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError), NETWORK),
    )
    if isinstance(error, auth.GoogleAuthError) and getattr(error, "retryable", False):
        return NETWORK
    return next((rule for kinds, rule in table if isinstance(error, kinds)), None)
