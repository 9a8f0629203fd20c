"""
Refuse what a browser sends for a page: no page is a client of the local cloud.

A page reaches loopback with the rights of the computer's user. Its requests say where they come from
(Origin, Sec-Fetch-Site: fetch.spec.whatwg.org), they name the page's host when its DNS leads to loopback,
and the browser asks before it sends them (CORS), unless their body is text, a form or of no type.
"""

from collections.abc import Collection, Mapping

from orchestrator.emulator.http.router import Request, Response

JSON = "application/json"
BATCH = "multipart/mixed"
MISDIRECTED, FORBIDDEN, UNSUPPORTED = 421, 403, 415


def from_page(headers: Mapping[str, str], origin: str | None = None) -> str:
    """Return why a request comes from a page, or nothing; *origin* is what the one known client sends."""
    if headers.get("origin", origin) != origin:
        return "it has an Origin"
    site = headers.get("sec-fetch-site", "none")
    return "" if site == "none" else f"its Sec-Fetch-Site is {site[:20]!r}"


def from_browser(headers: Mapping[str, str]) -> str:
    """
    Return why a request comes from a browser, or nothing: a page whose name leads here is on its own site.

    Then there is neither Origin nor, without TLS, Sec-Fetch-Site. Every browser says which languages it
    likes, and no page keeps it from that; Google's clients and curl do not (docs/facts.md 5.1).
    """
    for name in ("accept-language", "referer", *(one for one in headers if one.startswith("sec-"))):
        if name in headers:
            return f"it has the header {name[:40]}"
    return "its User-Agent is a browser's" if headers.get("user-agent", "").startswith("Mozilla/") else ""


def refusal(request: Request, hosts: Collection[str], *, json: bool = True) -> Response | None:
    """
    Return the answer to a request that no client of ours makes; None for one that may go on.

    *hosts* are the names that the service has. With *json*, bodies that no upload carries must be declared
    as JSON: a page cannot do so unasked.
    """
    headers = request.headers
    host = headers.get("host", "")
    if host.lower() not in hosts:
        return _refused(MISDIRECTED, f"it has no host {host[:100]!r}")
    if page := from_page(headers):
        return _refused(FORBIDDEN, f"it answers no web page, and this request comes from one: {page}")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if json and _has_body(headers) and not _uploads(request.path) and kind != JSON:
        if kind == BATCH and request.path.startswith("/batch"):
            return None
        return _refused(UNSUPPORTED, f"the body's Content-Type must be {JSON}, not {kind[:60]!r}")
    return None


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0").strip() not in ("", "0") or "transfer-encoding" in headers


def _uploads(path: str) -> bool:
    return path.startswith(("/upload/", "/resumable/upload/"))


def _refused(status: int, why: str) -> Response:
    message = f"The local cloud refused this request: {why}."
    return Response.of({"error": {"code": status, "message": message}}, status, {"connection": "close"})
