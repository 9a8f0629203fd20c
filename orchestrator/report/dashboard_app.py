"""
Serve the report as a page that refreshes itself, for one person on this computer.

Nothing is answered without the token, for another host name, or for another site's page; nothing can be
changed through it. Browsers send a cookie to every port of a host, so also to a server of another user, or at
the end of a tunnel. So the token's cookie is limited to a path that cannot be guessed.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from orchestrator.errors import TpuctlError
from orchestrator.report.page import asset

HERE = "127.0.0.1"
COOKIE = "tpuctl-dashboard-{port}"
OPEN: frozenset[str] = frozenset()
"""Paths that are served without the token: none."""
REUSED_SECONDS = 4.0
"""Seconds for which a page is served again without a new observation of the cloud."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Answer = Callable[[Request], Awaitable[Response]]
Scope = Mapping[str, Any]


class Dashboard:
    """
    Answer HTTP, as an ASGI application: *page* renders the page, *port* is where it is served.

    *page* gets the deployment's name from the address, "" for none, and raises TpuctlError to refuse.
    *failed* is called with each bug, of which the browser learns nothing.
    """

    def __init__(self, page: Callable[[str], str], port: int, failed: Callable[[Exception], None]) -> None:
        self._page = page
        self._failed = failed
        # Held while the page is rendered: other tabs wait for it instead of asking the cloud too.
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, str]] = {}
        self.token = secrets.token_urlsafe(32)
        self.folder = f"/{secrets.token_urlsafe(16)}/"
        self.port = port
        self.routes: Mapping[str, Answer] = {
            self.folder: self._whole,
            f"{self.folder}page": self._whole,
            f"{self.folder}style.css": lambda _: _text(asset("style.css"), "text/css"),
            f"{self.folder}live.js": lambda _: _text(asset("live.js"), "text/javascript"),
        }

    @property
    def url(self) -> str:
        """Return the address to open, with the token."""
        return f"http://{HERE}:{self.port}/?token={self.token}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; anything but HTTP is refused."""
        if scope["type"] != "http":
            return
        response = await self._answer(Request(scope))
        for name, value in HEADERS.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        """Check the request first; then choose the route."""
        refused = self._refusal(request)
        if refused is not None:
            return refused
        if request.url.path == "/":
            return self._welcome()
        route = self.routes.get(request.url.path)
        if route is None:
            return PlainTextResponse("there is no such page\n", 404)
        try:
            return await route(request)
        except TpuctlError as error:
            return PlainTextResponse(f"{error.message} ({error.code})\n", 503)
        except Exception as error:  # Details of an error are not sent over HTTP.
            self._failed(error)
            return PlainTextResponse("`tpuctl report --live` has failed; its terminal says why\n", 500)

    def _refusal(self, request: Request) -> Response | None:
        hosts = {f"{name}:{self.port}" for name in (HERE, "localhost")}
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        # Against DNS rebinding: another site may point its own name at 127.0.0.1.
        if host not in hosts:
            return PlainTextResponse("this host name is not served\n", 421)
        foreign = origin is not None and origin not in {f"http://{name}" for name in hosts}
        if foreign or request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return PlainTextResponse("requests of other sites are refused\n", 403)
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse("this dashboard is read-only\n", 405)
        if request.url.path not in OPEN and not self._knows(request):
            return PlainTextResponse("open the address that `tpuctl report --live` has printed\n", 403)
        return None

    def _knows(self, request: Request) -> bool:
        """Return whether the request has the token: in the first address, later in the cookie."""
        given = [request.cookies.get(COOKIE.format(port=self.port), "")]
        if request.url.path == "/":
            given = parse_qs(request.url.query).get("token", [])
        # In constant time, because other users of this computer may try to guess it.
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)

    def _welcome(self) -> Response:
        """Move the token into a cookie, so that it does not stay in the address, the history and the log."""
        response = RedirectResponse(self.folder, 303)
        response.set_cookie(
            COOKIE.format(port=self.port), self.token, httponly=True, samesite="strict", path=self.folder
        )
        return response

    async def _whole(self, request: Request) -> Response:
        wanted = request.query_params.get("deployment", "")
        return Response(await run_in_threadpool(self._fresh, wanted), media_type="text/html")

    def _fresh(self, wanted: str) -> str:
        """Return the page; several tabs that ask at the same time cost one observation."""
        with self._lock:
            made, text = self._made.get(wanted, (0.0, ""))
            if not text or time.monotonic() - made >= REUSED_SECONDS:
                text = self._page(wanted)
                # At most one page for each existing deployment is kept.
                self._made[wanted] = (time.monotonic(), text)
            return text


async def _text(text: str, kind: str) -> Response:
    return Response(text, media_type=kind)
