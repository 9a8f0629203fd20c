"""
Refuse requests that a browser sends for a web page, which is never a client of the local cloud.

A page reaches loopback with the rights of the computer's user. Its requests show their origin (Origin,
Sec-Fetch-Site: fetch.spec.whatwg.org), they name the page's host if its DNS points to loopback, and the
browser asks before it sends them (CORS), unless their body is text, a form or without a type.
"""

from collections.abc import Collection, Mapping

from orchestrator.emulator.http.router import Request, Response

JSON = "application/json"
BATCH = "multipart/mixed"
MISDIRECTED, FORBIDDEN, UNSUPPORTED = 421, 403, 415


def from_page(headers: Mapping[str, str], origin: str | None = None) -> str:
    """Return why a request comes from a page, "" if not; *origin* is that of the one known client."""
    if headers.get("origin", origin) != origin:
        return "it has an Origin"
    site = headers.get("sec-fetch-site", "none")
    return "" if site == "none" else f"its Sec-Fetch-Site is {site[:20]!r}"


def from_browser(headers: Mapping[str, str]) -> str:
    """
    Return why a request comes from a browser, "" if not.

    For a page whose own name resolves to loopback there is neither Origin nor, without TLS, Sec-Fetch-Site.
    But every browser sends Accept-Language, which no page can prevent, and Google's clients and curl do not
    (docs/facts.md 5.1).
    """
    for name in ("accept-language", "referer", *(one for one in headers if one.startswith("sec-"))):
        if name in headers:
            return f"it has the header {name[:40]}"
    return "its User-Agent is a browser's" if headers.get("user-agent", "").startswith("Mozilla/") else ""


def refusal(request: Request, hosts: Collection[str], *, json: bool = True) -> Response | None:
    """
    Return the answer to a request that none of our clients makes; None to accept it.

    *hosts* are the service's names. With *json*, bodies outside of uploads must be declared as JSON, which a
    page cannot do without a preflight request.
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


def _refused(status: int, message: str) -> Response:
    text = f"The local cloud refused this request: {message}."
    return Response.of({"error": {"code": status, "message": text}}, status, {"connection": "close"})
