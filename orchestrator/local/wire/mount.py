"""
The local cloud inside the HTTP session of an official client: no listener, no threads.
"""

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

from orchestrator.local.model.world import LocalCloud
from orchestrator.local.wire.dispatch import dispatch
from orchestrator.local.wire.http import Request, Router

if TYPE_CHECKING:
    from requests import PreparedRequest

BASE = "http://cloud.invalid"


class CloudAdapter(BaseAdapter):
    """
    Hand each prepared request to `dispatch`; mount it with `session.mount(BASE, adapter)`.
    """

    def __init__(self, router: Router, cloud: LocalCloud) -> None:
        super().__init__()
        self._router, self._cloud = router, cloud

    def send(self, request: "PreparedRequest", *_args: Any, **_options: Any) -> requests.Response:
        """
        Answer one request; options such as timeouts have no meaning here.
        """
        target = (request.path_url or "/").partition("#")[0]
        # http.client adds the host last, so a prepared request has none yet; upload sessions need it.
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
        """
        Do nothing: there is no connection.
        """


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
