"""The way out of a machine: storage hosts are the local cloud's own, everything else is refused or foreign."""

import asyncio
import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.clock import SystemClock
from orchestrator.emulator.http.asgi import asgi_app
from orchestrator.emulator.http.certificates import certificates
from orchestrator.emulator.http.connect_proxy import ConnectProxy, ProxyRefusedError, is_link_local, target_of
from orchestrator.emulator.http.router import Response, Router
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from orchestrator.emulator.start_options import free_ports
from orchestrator.emulator.state.storage.service import Storage
from tests.emulator.http_fixture import serve

HOST = "storage.googleapis.com"
UPLOAD = "/upload/storage/v1/b/bkt/o?uploadType=media&name="


class ProxyLab:
    """A running proxy before a storage service, and a client of it."""

    def __init__(self, folder: Path, storage: Storage, url: str) -> None:
        self.storage = storage
        self.certificates = certificates(folder)
        there = ("127.0.0.1", int(url.rpartition(":")[2]))
        self.proxy = ConnectProxy(self.certificates.context(), lambda: socket.create_connection(there))
        self.closed, self.open = free_ports(2)

    def dial(self, request: bytes, *, open_port: bool = False) -> tuple[socket.socket, bytes]:
        """Send bytes to the proxy; return the connection and the head of its answer."""
        client = socket.create_connection(("127.0.0.1", self.open if open_port else self.closed), timeout=60)
        client.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and (data := client.recv(1)):
            answer += data
        return client, answer

    def status(self, request: str, *, open_port: bool = False) -> int:
        """Return the status of the answer to a request without a body."""
        client, answer = self.dial(f"{request}\r\n\r\n".encode(), open_port=open_port)
        client.close()
        return int(answer.split()[1])

    def tunnel(self, host: str = HOST) -> ssl.SSLSocket:
        """Return a connection that a client of *host* takes for the real one."""
        client, answer = self.dial(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200 ")
        trust = ssl.create_default_context(cadata=self.certificates.authority.decode())
        return trust.wrap_socket(client, server_hostname=host)


@contextmanager
def looping() -> Iterator[Callable[[Any], Any]]:
    """Run an event loop in a thread; yield what runs a coroutine there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def way(tmp_path_factory) -> Iterator[ProxyLab]:
    """Return a proxy before a storage service that holds the bucket `bkt`."""
    storage, router = Storage(SystemClock()), Router()
    storage.buckets.create("p", {"name": "bkt"})
    storage_routes(router, storage)
    xml_routes(router, storage)
    with serve(router, storage=True) as url, looping() as call:
        one = ProxyLab(tmp_path_factory.mktemp("tls"), storage, url)
        call(one.proxy.start(one.closed, one.open))
        try:
            yield one
        finally:
            call(one.proxy.close())


def read_answer(client: ssl.SSLSocket) -> tuple[int, dict[str, str], bytes]:
    """Read one answer with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    length = int({key.lower(): value for key, value in headers.items()}.get("content-length", "0"))
    while len(body) < length:
        body += client.recv(65536)
    return int(lines[0].split()[1]), headers, body


def test_one_tunnel_carries_many_requests_of_every_framing(way):
    """By length, in chunks with trailers, and with the header identity that TensorFlow sends."""
    big = os.urandom(300_000)
    bodies = {
        "length": (b"Content-Length: 300000\r\n", big),
        "chunks": (
            b"Transfer-Encoding: chunked\r\n",
            b"493e0;x=1\r\n" + big + b"\r\n0\r\nX-Sum: 1\r\n\r\n",
        ),
        "identity": (b"Transfer-Encoding: identity\r\nContent-Length: 300000\r\n", big),
    }
    with way.tunnel() as client:
        for name, (header, body) in bodies.items():
            client.sendall(
                f"POST {UPLOAD}{name} HTTP/1.1\r\nHost: {HOST}\r\n".encode() + header + b"\r\n" + body
            )
            assert read_answer(client)[0] == 200
            client.sendall(f"GET /bkt/{name} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert read_answer(client)[2] == big


def test_client_that_waits_for_100_continue_gets_it(way):
    """The body is sent only after the server has asked for it."""
    with way.tunnel("www.googleapis.com") as client:
        head = f"POST {UPLOAD}late HTTP/1.1\r\nHost: www.googleapis.com\r\nContent-Length: 4\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b"100 Continue" in client.recv(65536)
        client.sendall(b"body")
        assert read_answer(client)[0] == 200


def test_upload_session_stays_in_the_tunnel(way):
    """Its address is https: a client that follows it in plain HTTP would reach the real service."""
    with way.tunnel() as client:
        path = UPLOAD.replace("media", "resumable")
        client.sendall(f"POST {path}s HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n".encode())
        headers = read_answer(client)[1]
    assert {key.lower(): value for key, value in headers.items()}["location"].startswith(
        f"https://{HOST}/upload/"
    )


def test_headers_are_spelled_as_google_spells_them():
    """TensorFlow does not find the address of its upload session under any other spelling."""
    sent = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": []}
    answer = Response(200, b"", {"location": "x", "content-range": "y"})
    asyncio.run(asgi_app(lambda _request: answer)(scope, receive, send))
    assert [key for key, _ in sent[0]["headers"]][:2] == [b"Location", b"Content-Range"]


@pytest.mark.parametrize(
    ("request_line", "closed", "opened"),
    [
        ("CONNECT storage.googleapis.com:443 HTTP/1.1", 200, 200),
        ("CONNECT STORAGE.googleapis.com.:443 HTTP/1.1", 200, 200),
        ("CONNECT storage.googleapis.com:80 HTTP/1.1", 403, 403),
        ("CONNECT bucket.storage.googleapis.com:443 HTTP/1.1", 403, 403),
        ("CONNECT oauth2.googleapis.com:443 HTTP/1.1", 403, 403),
        ("CONNECT europe-docker.pkg.dev:443 HTTP/1.1", 403, 403),
        ("CONNECT metadata.google.internal:443 HTTP/1.1", 403, 403),
        ("CONNECT storage.cloud.google.com:443 HTTP/1.1", 403, 403),
        ("GET http://storage.googleapis.com/bkt/o HTTP/1.1", 403, 403),
        # A name that no resolver knows: the open port tries it.
        ("CONNECT nowhere.invalid:443 HTTP/1.1", 403, 502),
        ("GET http://nowhere.invalid/ HTTP/1.1", 403, 502),
        ("CONNECT nowhere.invalid HTTP/1.1", 400, 400),
        ("CONNECT [::1 HTTP/1.1", 400, 400),
        ("CONNECT host:99999 HTTP/1.1", 400, 400),
        ("GET / HTTP/1.1", 400, 400),
        ("nonsense", 400, 400),
    ],
)
def test_only_storage_is_answered_and_google_is_never_reached(way, request_line, closed, opened):
    """The closed port leads to storage alone, the open one also to foreign hosts; both never to Google."""
    assert way.status(request_line) == closed
    assert way.status(request_line, open_port=True) == opened


def test_refusal_is_counted_and_says_what_to_do(way):
    """The status line carries the reason, because most clients show nothing else."""
    before = way.proxy.refused["models.invalid:443"]
    for _ in range(2):
        client, answer = way.dial(b"CONNECT models.invalid:443 HTTP/1.1\r\n\r\n")
        client.close()
        assert b"REHEARSAL_NETWORK: open" in answer.split(b"\r\n")[0]
    assert way.proxy.refused["models.invalid:443"] == before + 2


def test_the_own_computer_is_reached_through_both_ports(way):
    """Some clients know no address ranges in no_proxy; in a tunnel or plain, they come through."""
    with socket.create_server(("127.7.7.7", 0)) as server:
        port = server.getsockname()[1]
        tunnel, _ = way.dial(f"CONNECT 127.7.7.7:{port} HTTP/1.1\r\n\r\n".encode())
        there, _ = server.accept()
        tunnel.sendall(b"ping")
        assert there.recv(10) == b"ping"
        tunnel.close()
        assert there.recv(10) == b""
        there.close()
        head = (
            f"GET http://127.7.7.7:{port}/a?b=c HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n\r\n"
        )
        plain = socket.create_connection(("127.0.0.1", way.closed), timeout=60)
        plain.sendall(head.encode())
        there, _ = server.accept()
        assert there.recv(1000) == b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        plain.close()
        there.close()


def test_head_without_end_is_refused(way):
    """A client cannot fill the memory with headers."""
    assert way.status("CONNECT a:1 HTTP/1.1\r\nX: " + "x" * 40_000) == 431


def test_many_tunnels_at_once_end_cleanly(way):
    """All are served, and nothing is left of them when their clients have gone."""
    tunnels = [way.tunnel() for _ in range(60)]
    for client in tunnels:
        client.sendall(f"GET /storage/v1/b/bkt HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    assert [read_answer(client)[0] for client in tunnels] == [200] * 60
    for client in tunnels:
        client.close()
    for _ in range(400):
        if not way.proxy._tasks:
            break
        threading.Event().wait(0.05)
    assert way.proxy._tasks == set()


def test_proxy_listens_on_loopback_only(way):
    """Other computers must not use it."""
    hosts = {one.getsockname()[0] for server in way.proxy._servers for one in server.sockets}
    assert hosts == {"127.0.0.1"}


def test_certificates_are_made_once_and_readable_by_their_owner_only(tmp_path):
    """A new daemon serves what machines already trust; files are their owner's; a damaged one is replaced."""
    first = certificates(tmp_path / "tls")
    assert certificates(tmp_path / "tls") == first
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    (tmp_path / "tls/storage-hosts.pem").write_text("torn")
    assert certificates(tmp_path / "tls").authority != first.authority


def test_bundle_keeps_the_authorities_that_the_computer_trusts(tmp_path, monkeypatch):
    """Requests and pip obey CURL_CA_BUNDLE too and must still reach their index."""
    own = tmp_path / "own.pem"
    own.write_text("-- the authorities of a company --")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(own))
    made = certificates(tmp_path / "tls")
    assert made.bundle() == own.read_bytes() + b"\n" + made.authority


def test_authority_can_vouch_for_google_alone(tmp_path):
    """Even where it is trusted, a certificate of it for another name is refused; its key is on no disk."""
    from cryptography import x509

    made = certificates(tmp_path)
    limits = x509.load_pem_x509_certificate(made.authority).extensions.get_extension_for_class(
        x509.NameConstraints
    )
    assert limits.critical
    assert limits.value.permitted_subtrees == [x509.DNSName("googleapis.com")]
    assert b"PRIVATE KEY" not in made.authority


def test_target_of_plain_http_has_no_proxy_headers():
    """Credentials for a proxy are not passed on."""
    found = target_of(b"GET http://a.invalid:81 HTTP/1.1\r\nProxy-Authorization: secret\r\nX: 1\r\n\r\n")
    assert (found.host, found.port) == ("a.invalid", 81)
    assert found.head == b"GET / HTTP/1.1\r\nX: 1\r\nConnection: close\r\n\r\n"
    with pytest.raises(ProxyRefusedError):
        target_of(b"GET ftp://a.invalid/ HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0", "fd20:ce::254"]
)
def test_a_metadata_server_is_known_by_its_address(address):
    """On a laptop that is a machine of a cloud itself, any name may lead there."""
    assert is_link_local(address)
    assert not is_link_local("127.0.0.1")
    assert not is_link_local("2001:db8::1")


@pytest.mark.parametrize(
    "request_line", ["CONNECT 127.7.7.8:{port} HTTP/1.1", "GET http://127.7.7.8:{port}/ HTTP/1.1"]
)
def test_no_metadata_server_of_the_computer_is_reached(way, monkeypatch, request_line):
    """It is known after its name was looked up; here 127.7.7.8 stands in for its address."""
    from orchestrator.emulator.http import connect_proxy

    with socket.create_server(("127.7.7.8", 0)) as server:
        line = request_line.format(port=server.getsockname()[1])
        monkeypatch.setattr(connect_proxy, "is_link_local", lambda address: address == "127.7.7.8")
        assert way.status(line) == 403
        assert way.status(line, open_port=True) == 403
        server.accept()[0].settimeout(5)


def test_the_metadata_server_is_the_one_of_the_machine_that_asks(tmp_path):
    """A startup script takes what curl prints for the value: it got a refusal, with exit status 0."""
    asked = []

    def metadata(peer: tuple[str, int], here: tuple[str, int]) -> tuple[str, int] | None:
        asked.append((peer[0], here[1]))
        return there if len(asked) == 1 else None

    with socket.create_server(("127.0.0.1", 0)) as server, looping() as call:
        there = server.getsockname()
        one = ProxyLab(tmp_path, Storage(SystemClock()), "http://127.0.0.1:1")
        one.proxy = ConnectProxy(
            one.certificates.context(), lambda: socket.create_connection(there), metadata=metadata
        )
        call(one.proxy.start(one.closed, one.open))

        def serve_one() -> None:
            connection, _ = server.accept()
            head = connection.recv(4096)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + head.splitlines()[0])
            connection.close()

        thread = threading.Thread(target=serve_one)
        thread.start()
        get = (
            "GET http://metadata.google.internal/computeMetadata/v1/instance/name HTTP/1.1\r\nHost: metadata"
        )
        assert one.status(get) == 200
        thread.join()
        assert one.status(get) == 403  # nobody's machine
        assert one.status("CONNECT metadata.google.internal:80 HTTP/1.1\r\nHost: m") == 403
        assert asked == [("127.0.0.1", one.closed)] * 2
        call(one.proxy.close())
