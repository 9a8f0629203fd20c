"""The dashboard answers nobody but the one who was given its address."""

import asyncio

import pytest

from orchestrator.cli.views.report import Bugs
from orchestrator.errors import TransientError, UsageError
from orchestrator.report.dashboard_app import COOKIE, HEADERS, OPEN, Dashboard

PORT = 4711
HOST = f"127.0.0.1:{PORT}"


def made(page=lambda wanted: "<main>told</main>", failed=pytest.fail):
    """Return a dashboard that nobody listens for; *failed* is called with its bugs."""
    return Dashboard(page, PORT, failed)


def ask(app, path, *, method="GET", query="", token="", **headers):
    """Send one request; return status, headers and body."""
    known = {"host": HOST, **({"cookie": f"{COOKIE.format(port=PORT)}={token}"} if token else {})}
    asked = {**known, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(), "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", PORT),
        "headers": [(name.encode(), value.encode()) for name, value in asked.items()],
    }  # fmt: skip
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:]).decode()


def test_each_route_is_refused_without_the_token():
    """The table of routes is the list; a new one is refused too unless it is named as open, and none is."""
    app = made()
    assert not OPEN
    for path in (*app.routes, "/nothing", "/../etc/passwd", "//page", "/page/"):
        for token in ("", "x", app.token[:-1], app.token + "x"):
            status, _, body = ask(app, path, token=token)
            assert status == 403, path
            assert "told" not in body


def test_each_route_answers_to_the_token_with_all_the_headers():
    """No inline script or style, no frame, no copy in a cache."""
    app = made()
    for path in app.routes:
        status, headers, body = ask(app, path, token=app.token)
        assert (status, bool(body)) == (200, True)
        assert {name: headers[name.lower()] for name in HEADERS} == HEADERS
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]
    assert ask(app, "/nothing", token=app.token)[0] == 404


def test_the_token_moves_from_the_address_into_a_cookie():
    """Scripts cannot read it, other sites cannot use it, and it is in no history."""
    app = made()
    status, headers, _ = ask(app, "/", query=f"token={app.token}")
    assert (status, headers["location"]) == (303, app.folder)
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    for path in app.routes:
        assert ask(app, path, query=f"token={app.token}")[0] == 403, "only the first page takes it so"
    assert ask(app, "/", query="token=wrong")[0] == 403
    assert made().token != app.token
    assert len(app.token) >= 40


def test_the_cookie_is_for_a_folder_that_cannot_be_guessed():
    """Cookies know no ports: without it a TensorBoard at the end of a tunnel would be sent the token."""
    app = made()
    cookie = ask(app, "/", query=f"token={app.token}")[1]["set-cookie"]
    assert f"Path={app.folder};" in cookie
    assert len(app.folder) >= 22
    assert made().folder != app.folder
    assert all(path.startswith(app.folder) for path in app.routes)
    assert ask(app, "/", token=app.token)[0] == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": f"evil.example:{PORT}"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        (
            {
                "host": f"localhost:{PORT}",
                "origin": f"http://localhost:{PORT}",
                "sec_fetch_site": "same-origin",
            },
            200,
        ),
    ],
)
def test_other_names_and_other_sites_are_refused_also_with_the_token(headers, status):
    """A name that somebody points at 127.0.0.1 gets nothing, nor does another page in the same browser."""
    app = made()
    assert ask(app, f"{app.folder}page", token=app.token, **headers)[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_nothing_can_be_changed(method):
    """It only shows."""
    app = made()
    assert ask(app, "/page", method=method, token=app.token)[0] == 405


def test_the_address_names_another_deployment():
    """Each has a page of its own, and one that is not known here is refused in words."""

    def page(wanted):
        if wanted == "other":
            raise UsageError("no deployment 'other'", changed="nothing was changed")
        return f"<main>told of {wanted or 'mine'}</main>"

    app = made(page)
    asked = {
        query: ask(app, f"{app.folder}page", token=app.token, query=query)[::2]
        for query in ("", "deployment=second", "deployment=other")
    }
    assert asked[""] == (200, "<main>told of mine</main>")
    assert asked["deployment=second"] == (200, "<main>told of second</main>")
    assert asked["deployment=other"][0] == 503
    assert "no deployment 'other'" in asked["deployment=other"][1]


def test_an_error_of_the_dashboard_is_shown_without_its_inside(capsys, tmp_path, monkeypatch):
    """An error of ours in its words, a bug in none; the terminal has one line of it, and a file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bug = ZeroDivisionError("secret inside")
    answers = [TransientError("the bucket does not answer"), bug, bug, None]

    def page(wanted):
        error = answers.pop(0)
        if error:
            raise error
        return "<main>told</main>"

    app = made(page, Bugs())
    status, _, body = ask(app, f"{app.folder}page", token=app.token)
    assert (status, body) == (503, "the bucket does not answer (TPU-400)\n")
    assert capsys.readouterr().err == ""
    for _ in range(2):
        status, _, body = ask(app, f"{app.folder}page", token=app.token)
        assert status == 500
        assert "inside" not in body
        assert "Traceback" not in body
    (line,) = capsys.readouterr().err.splitlines()
    (report,) = tmp_path.iterdir()
    assert "bug in tpuctl: ZeroDivisionError: secret inside" in line
    assert str(report) in line
    assert "Traceback" in report.read_text()
    assert ask(app, f"{app.folder}page", token=app.token)[0] == 200
    assert ask(app, f"{app.folder}page", token=app.token)[0] == 200, "a page is cached for some seconds"
