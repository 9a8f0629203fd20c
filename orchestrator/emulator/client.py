"""Answer an official client's HTTP session in-process, without listener or threads."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

from orchestrator.clock import Clock
from orchestrator.emulator.http.apis import served
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request, Response, Router, split_target
from orchestrator.emulator.http.storage_access import Callers, MachineOf, nobody
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.values.machine import NoMachines

BASE = "http://cloud.invalid"


class InProcess:
    """
    A local cloud, its buckets, and the routes of its three APIs.

    *machines* boot nothing by default: they are states only. *taken* are bucket names that belong to other
    users. With *machine_of*, a machine's access to buckets follows the roles of its account.
    """

    def __init__(
        self,
        clock: Clock,
        settings: LocalCloudSettings,
        machines: NoMachines | None = None,
        *,
        taken: Iterable[str] = (),
        machine_of: MachineOf | None = None,
    ) -> None:
        self.clock = clock
        self.cloud = LocalCloud(clock, machines or NoMachines(), settings)
        self.storage = Storage(clock, taken_names=list(taken))
        accounts = nobody if machine_of is None else Callers(self.cloud, machine_of)
        self.router = served(self.cloud, self.storage, accounts)

    def answer(self, request: Request, _timeout: float = 0.0) -> Response:
        return dispatch(self.router, self.cloud, request)

    def adapter(self) -> "CloudAdapter":
        return CloudAdapter(self.router, self.cloud)


class CloudAdapter(BaseAdapter):
    """Hand each prepared request to `dispatch`; mount it with `session.mount(BASE, adapter)`."""

    def __init__(self, router: Router, cloud: LocalCloud) -> None:
        super().__init__()
        self._router, self._cloud = router, cloud

    def send(self, request: requests.PreparedRequest, *_args: Any, **_options: Any) -> requests.Response:
        """Answer one request; options such as timeouts are ignored."""
        target = (request.path_url or "/").partition("#")[0]
        # http.client adds Host when sending, so a prepared request has none yet; upload sessions need it.
        host = urlsplit(request.url or "").netloc
        headers = {"host": host, **{key: _text(value) for key, value in request.headers.items()}}
        asked = Request.parse(request.method or "GET", target, headers, _body(request.body))
        answer = dispatch(self._router, self._cloud, asked)
        raw = HTTPResponse(
            body=io.BytesIO(answer.body),
            headers=HTTPHeaderDict(answer.headers),
            status=answer.status,
            preload_content=False,
            request_method=asked.method,
        )
        response = requests.Response()
        response.status_code = answer.status
        response.headers = requests.structures.CaseInsensitiveDict(answer.headers)
        response.raw, response.request, response.url = raw, request, request.url or ""
        response.encoding = requests.utils.get_encoding_from_headers(response.headers)
        return response

    def close(self) -> None:
        """Do nothing, as there is no connection."""


def _body(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    return _read(body) if hasattr(body, "read") else b"".join(body)


def _read(stream: Any) -> bytes:
    data = stream.read()
    return data.encode() if isinstance(data, str) else bytes(data)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def shorten(session: requests.Session, answer: Callable[[Request, float], Response]) -> None:
    """
    Make *answer* serve every request of *session*; its hooks still run, but nothing is prepared.

    *answer* gets the request and its timeout in seconds. A call then costs half of one through
    `CloudAdapter`, which matters to simulations.
    """

    def request(method: str, url: str, **options: Any) -> requests.Response:
        timeout = options.get("timeout")
        asked = _asked(method, url, options)
        response = _as_response(
            asked, url, answer(asked, float((timeout[-1] if isinstance(timeout, tuple) else timeout) or 60.0))
        )
        for hook in session.hooks["response"]:
            response = hook(response) or response
        return response

    session.request = request  # type: ignore[assignment,method-assign]


def _asked(method: str, url: str, options: Mapping[str, Any]) -> Request:
    host, slash, rest = url.partition("://")[2].partition("/")
    path, query = split_target(slash + rest.partition("#")[0])
    headers = {key.lower(): _text(value) for key, value in (options.get("headers") or {}).items()}
    return Request(
        method,
        path,
        {**dict(query), **_query(options.get("params") or {})},
        {"host": host, **headers},
        _body(options.get("data")),
    )


def _query(params: Any) -> dict[str, str]:
    """Return parameters as a server reads them from a URL: as text, the last value of each key."""
    pairs = params.items() if isinstance(params, Mapping) else params
    plain = ((key, value[-1] if isinstance(value, list | tuple) else value) for key, value in pairs)
    return {str(key): str(value) for key, value in plain}


_BLANK_RESPONSE = vars(requests.Response())


_BLANK_REQUEST = vars(requests.PreparedRequest())


def _as_response(asked: Request, url: str, answer: Response) -> requests.Response:
    # The constructor creates a cookie jar, which costs more than everything else here.
    response = requests.Response.__new__(requests.Response)
    made = requests.PreparedRequest.__new__(requests.PreparedRequest)
    vars(made).update(_BLANK_REQUEST, method=asked.method, url=url)
    vars(response).update(
        _BLANK_RESPONSE,
        status_code=answer.status,
        url=url,
        headers=requests.structures.CaseInsensitiveDict(answer.headers),
        # Clients use the raw headers for compression only, and the request for its method and URL.
        raw=_Raw(answer.headers, answer.body),
        history=[],
        request=made,
        encoding="utf-8",
        _content=answer.body,
        _content_consumed=True,
    )
    return response


@dataclass
class _Raw:
    headers: Mapping[str, str]
    body: bytes = b""

    def stream(self, _size: int, *, decode_content: bool = False) -> Iterator[bytes]:
        yield self.body
