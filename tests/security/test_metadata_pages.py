"""A page whose DNS leads to the metadata server of a local machine is on its own site there: it gets nothing."""

import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.emulator.http.metadata_server import NAMES, _foreign
from orchestrator.emulator.http.router import Request
from tests.kit.waiting import until

ADDRESS = "127.70.1.2"
FLAVOR = {"metadata-flavor": "Google"}
FIREFOX = {
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "accept": "*/*", "accept-language": "en-US,en;q=0.5", "accept-encoding": "gzip, deflate",
    "referer": "http://metadata.google.internal/", **FLAVOR,
}  # fmt: skip
CLIENTS = {
    "curl": {"user-agent": "curl/7.88.1", "accept": "*/*", **FLAVOR},
    "google-auth with requests": {
        "user-agent": "python-requests/2.34.2", "accept-encoding": "gzip, deflate", "accept": "*/*",
        "connection": "keep-alive", "x-goog-api-client": "gl-python/3.11.7 auth/2.62.2", **FLAVOR,
    },
    "google-auth with urllib3": {
        "accept-encoding": "identity", "user-agent": "python-urllib3/2.8.0", **FLAVOR
    },
    "gcloud": {"accept-encoding": "identity", "user-agent": "Python-urllib/3.12", **FLAVOR},
    "Go's metadata package": {"user-agent": "gcloud-golang/0.1", "accept-encoding": "gzip", **FLAVOR},
}  # fmt: skip
"""What they send, recorded; Go's from its source (docs/facts.md 5.1)."""
PAGE = """<script>
fetch("/computeMetadata/v1/?recursive=true", {referrerPolicy: "no-referrer", headers: {
  "Metadata-Flavor": "Google", "Accept-Language": "*", "User-Agent": "curl/8", "Accept": "*/*"}});
</script>"""


def refused(headers, host):
    """Return why the metadata server refuses a request, or nothing."""
    return _foreign(ADDRESS, Request.parse("GET", "/computeMetadata/v1/", {"host": host, **headers}, b""))


@pytest.mark.parametrize("host", NAMES)
@pytest.mark.parametrize(
    "hidden", [(), ("referer",), ("referer", "user-agent"), ("user-agent", "accept-language")]
)
def test_a_browser_is_refused_by_what_it_cannot_hide_all_at_once(host, hidden):
    """A page leaves out the Referer and sets some; which languages its reader likes is sent in any case."""
    assert "no web page" in refused({k: v for k, v in FIREFOX.items() if k not in hidden}, host)


@pytest.mark.parametrize("host", [*NAMES, f"{NAMES[0]}:8080", ADDRESS])
@pytest.mark.parametrize("client", CLIENTS)
def test_googles_clients_are_answered(host, client):
    """So it is the browser that is refused, and not everybody."""
    assert refused(CLIENTS[client], host) == ""


def test_who_names_the_address_is_no_page():
    """Such as Node's own fetch, which likes all languages: a page there would have come from this server."""
    assert refused({"user-agent": "node", "accept-language": "*", "sec-fetch-mode": "cors"}, ADDRESS) == ""


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_what_a_real_browser_sends_for_such_a_page_is_refused(tmp_path):
    """It was set to look like curl."""
    observed = []

    class Rebound(BaseHTTPRequestHandler):
        def do_GET(self):
            observed.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode() if self.path == "/" else b"")

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Rebound)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    browser = subprocess.Popen(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         f"--user-data-dir={tmp_path / 'profile'}", f"--host-resolver-rules=MAP {NAMES[0]} 127.0.0.1",
         "--remote-debugging-port=0", f"http://{NAMES[0]}:{site.server_port}/"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        asked = until(
            lambda: [headers for path, headers in observed if path.startswith("/computeMetadata")],
            "the page's request",
            90,
        )
    finally:
        os.killpg(browser.pid, 9)
        browser.wait()
        site.shutdown()
    assert asked[0]["metadata-flavor"] == "Google"
    assert not {"origin", "referer", "sec-fetch-site"} & asked[0].keys()
    assert "no web page" in refused(asked[0], asked[0]["host"])
