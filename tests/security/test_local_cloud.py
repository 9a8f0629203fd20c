"""The local cloud runs commands for its user: no web page and no other user of the computer gets anything."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.app.local import ensure_running
from orchestrator.emulator import control
from orchestrator.emulator.address import PREFIX
from orchestrator.emulator.daemon import Daemon
from orchestrator.emulator.machines.machine_settings import MARKER
from orchestrator.emulator.machines.process_table import members
from orchestrator.emulator.start_options import load_options
from tests.kit.waiting import until
from tests.security.other_user import ROOT, as_nobody

CHROMIUM = shutil.which("chromium")
PAGES = {
    "fetch from another site": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "image, script or frame": {"sec-fetch-site": "cross-site"},
    "page of another port": {"sec-fetch-site": "same-site"},
    "page of this very address": {"sec-fetch-site": "same-origin"},
    "form of a file": {"origin": "null"},
    "DNS that leads to loopback": {"host": "rebind.evil.example:PORT"},
    "Google's host without a tunnel": {"host": "storage.googleapis.com"},
    "another port": {"host": "127.0.0.1:1"},
    "no host": {"host": ""},
}
UNASKED = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
"""Types of a body that a page may send without asking first (fetch.spec.whatwg.org, CORS-safelisted)."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """Return a local cloud that has every route and serves nobody yet."""
    folder, loop = tmp_path_factory.mktemp("cloud"), asyncio.new_event_loop()
    yield Daemon(folder, load_options(folder), loop, on_demand=False)
    loop.close()


def asked(app, method, path, headers, body=b""):
    """Return the status and the body of one request."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": method, "raw_path": path.encode(), "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def routes(daemon):
    """Return each route of the clients' port: its method, and a path that it answers."""
    for method, pattern in daemon._router.table():
        yield method, re.sub(r"\\(.)", r"\1", re.sub(r"\(\?P<\w+>[^)]*\)", "x", pattern.strip("^$")))


def test_no_route_answers_a_page(daemon, monkeypatch):
    """Whatever is added to the router is refused the same, before a handler hears of it."""
    reached = []
    monkeypatch.setattr("orchestrator.emulator.daemon.dispatch", lambda *a: reached.append(a))
    app, own = daemon.apps().clients, f"127.0.0.1:{daemon._options.port}"
    tried = 0
    for method, path in routes(daemon):
        for name, page in PAGES.items():
            headers = {"host": own, **page}
            headers["host"] = headers["host"].replace("PORT", str(daemon._options.port))
            status, said = asked(app, method, path, headers)
            assert status in (403, 421), (method, path, name)
            assert b"refused this request" in said
            tried += 1
        if method != "GET" and not path.startswith(("/upload/", "/resumable/upload/")):
            for kind in UNASKED:
                headers = {"host": own, "content-type": kind, "content-length": "2"}
                assert asked(app, method, path, headers, b"{}")[0] == 415, (method, path, kind)
                headers = {"host": own, "content-type": kind, "transfer-encoding": "chunked"}
                assert asked(app, method, path, headers, b"{}")[0] == 415, (method, path, kind)
    assert not reached
    assert tried > 500


def test_the_same_routes_answer_a_client(daemon):
    """So it is the page that is refused, and not everybody."""
    app, own = daemon.apps().clients, f"127.0.0.1:{daemon._options.port}"
    json_type = {"content-type": "application/json; charset=utf-8", "content-length": "2"}
    for method, path in routes(daemon):
        headers = {"host": own} if method == "GET" else {"host": own, **json_type}
        assert b"refused this request" not in asked(app, method, path, headers, b"{}")[1], (method, path)


def test_the_port_has_no_verb_of_the_command_line(daemon):
    """`tpuctl local` goes over a socket in the user's folder; no tunnel of a machine leads there."""
    for router in (daemon._router, daemon._tunnelled):
        assert not [pattern for _, pattern in router.table() if pattern.startswith(f"^{PREFIX}")]
    assert {pattern.rpartition("/")[2].strip("$") for _, pattern in daemon._controls.table()} == {
        "status", "preempt", "kill", "state", "fault", "stop",
    }  # fmt: skip


def ports_of(pid):
    """Return every address and port that a process listens on, from the kernel."""
    held = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(str(link.readlink()))
        except OSError:
            continue
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in held:
            address, _, port = words[1].partition(":")
            found.append((socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)))
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Start a local cloud with one machine, and a job's secret in its Secret Manager."""
    folder = tmp_path_factory.mktemp("running") / "cloud"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPUCTL_LOCAL_DIR", str(folder))
        address, _ = ensure_running()
        assert curl(address, ZONE + "/instances", body(folder / "booted")) == 200
        until((folder / "booted").exists, "the machine's startup script", 60)
        yield folder, address
        control.reset()


ZONE = "/compute/v1/projects/local-project/zones/us-central1-b"


def body(mark, name="canary"):
    """Return a request for a VM whose startup script leaves a mark."""
    return {
        "name": name, "machineType": "zones/us-central1-b/machineTypes/e2-small",
        "metadata": {"items": [{"key": "startup-script", "value": f"#!/bin/sh\ntouch {mark}\n"}]},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {
            "sourceImage": "projects/debian-cloud/global/images/family/debian-13"}}],
        "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{}]}],
    }  # fmt: skip


def curl(address, path, sent):
    """Return the status that the user's own curl gets."""
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Content-Type: application/json"]
    done = subprocess.run(
        [*words, "-d", json.dumps(sent), address.endpoint + path], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.e2e
@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_another_user_gets_nothing_from_any_port(running, tmp_path):
    """Every port that the daemon listens on: its API, both proxies, the relay, each metadata server."""
    folder, address = running
    ports = ports_of(address.pid)
    assert len(ports) >= 6
    mark = tmp_path / "ran"
    text = json.dumps(body(mark, "stranger")).encode()
    head = f"POST {ZONE}/instances HTTP/1.1\r\nHost: 127.0.0.1:{address.endpoint.rpartition(':')[2]}\r\n"
    typed = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    asks = [
        head.encode() + typed.encode() + text,
        b"GET /computeMetadata/v1/?recursive=true HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n",
        b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n",
    ]
    for where, port in ports:
        for ask in asks:
            assert as_nobody(where, port, ask) == b"", (where, port)
    # A dual-stack socket, and one that is closed before anybody looks: the kernel lists it under root.
    port = int(address.endpoint.rpartition(":")[2])
    assert as_nobody("::ffff:127.0.0.1", port, asks[0]) == b""
    for _ in range(20):
        as_nobody("127.0.0.1", port, asks[0], then="leave")
    for name in ("control.sock", "storage.sock"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    assert [one["name"] for one in control.call("status", folder=folder)["machines"]] == ["canary"]
    assert not mark.exists()


@pytest.mark.e2e
def test_the_own_user_gets_an_answer_from_each_port(running):
    """The same ports answer who may: so it is the user that decides."""
    _, address = running
    asks = [
        b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
        b"GET /computeMetadata/v1/ HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n",
    ]
    silent = []
    for where, port in ports_of(address.pid):
        got = b""
        for ask in asks:
            with socket.create_connection((where, port), timeout=20) as client:
                client.sendall(ask)
                try:
                    got += client.recv(4096)
                except ConnectionResetError:
                    continue
        silent += [(where, port)] if not got else []
    # These two speak TLS.
    assert len(silent) <= 2


@pytest.mark.e2e
def test_machines_of_a_daemon_that_was_killed_end_and_boot_again_at_the_next_start(monkeypatch, tmp_path):
    """Nobody owns them meanwhile, and its ports are anybody's; their disks stay."""
    folder, mark = tmp_path / "cloud", tmp_path / "booted"
    monkeypatch.setenv("TPUCTL_LOCAL_DIR", str(folder))
    try:
        address, _ = ensure_running()
        marker = f"{MARKER}={load_options(folder).cloud_id}/"
        assert curl(address, ZONE + "/instances", body(mark)) == 200
        until(mark.exists, "the first boot", 60)
        os.kill(address.pid, signal.SIGKILL)
        until(lambda: not members(marker), "the machine's end", 20)
        mark.unlink()
        again, started = ensure_running()
        assert started
        assert again.endpoint == address.endpoint
        until(mark.exists, "the next boot", 60)
    finally:
        control.reset()
    assert not members(marker)


PAGE = """<!doctype html><img src="{url}{zone}/instances?image">
<iframe src="{url}{zone}/instances?frame"></iframe>
<script src="{url}/storage/v1/b?project=local-project"></script>
<form id=f method=post enctype=text/plain target=t action="{url}{zone}/instances">
<input name='{form}' value='"}}'></form><iframe name=t></iframe>
<script>
const url = "{url}{zone}/instances", body = {body};
const told = (what) => navigator.sendBeacon("/told", what);
const ways = [["plain", {{method: "POST", mode: "no-cors", body: body}}], ["json", {{method: "POST",
  headers: {{"content-type": "application/json"}}, body: body}}], ["read", {{}}],
  ["untyped", {{method: "POST", mode: "no-cors", body: new Blob([body])}}]];
document.getElementById("f").submit();
navigator.sendBeacon(url, body);
try {{ new WebSocket("{ws}{zone}/instances"); }} catch (e) {{}}
Promise.all(ways.map(async ([name, how]) => {{
  try {{ const got = await fetch(url, how); told(name + " " + got.type + " " + (await got.text()).length); }}
  catch (e) {{ told(name + " refused"); }} }})).then(() => setTimeout(() => told("end"), 1500));
</script>"""


@pytest.mark.e2e
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1"])
def test_a_web_page_in_a_real_browser_gets_nothing(running, tmp_path, host):
    """
    By fetch, form, frame, image, script, beacon and websocket; of another site, and of another port of ours.

    Chromium's own guard (Local Network Access) is turned off: the local cloud has to say no itself.
    """
    folder, address = running
    mark, reported = tmp_path / "ran", []
    sent = json.dumps(body(mark, "from-a-page"))
    form = sent[:-1].replace("'", "&#39;") + ', "description": "'
    page = PAGE.format(
        url=address.endpoint,
        ws=address.endpoint.replace("http", "ws"),
        zone=ZONE,
        body=json.dumps(sent),
        form=form,
    )

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def do_POST(self):
            reported.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    browser = subprocess.Popen(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP evil.example 127.0.0.1",
         "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
         "--remote-debugging-port=0", f"http://{host}:{site.server_port}/"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: "end" in reported, "the page's end", 120)
    finally:
        os.killpg(browser.pid, 9)
        browser.wait()
        site.shutdown()
    assert sorted(one for one in reported if one != "end") == [
        "json refused", "plain opaque 0", "read refused", "untyped opaque 0",
    ]  # fmt: skip
    assert [one["name"] for one in control.call("status", folder=folder)["machines"]] == ["canary"]
    assert not mark.exists()
