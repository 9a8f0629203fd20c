"""
Provide an in-process registry for the OCI distribution API, and small images.

An image is made from this computer's files: bash and a few programs, their libraries, no Python, and the file
/etc/image-only.
"""

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.emulator.machines.registry_client import architecture

JOB = Path(__file__).with_name("image_job.sh")
"""A training program for these images."""
PROGRAMS = ("bash", "cat", "mkdir", "mv", "rm", "sleep", "touch", "ls", "id", "readlink")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@cache
def why_no_containers() -> str:
    """Return why containers cannot run here, "" if they can; tried in a process without threads."""
    code = "from orchestrator.emulator.machines import namespaces; print(namespaces.refused())"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


WHY = f"no containers here: {why_no_containers()}"
needs_containers = pytest.mark.skipif(bool(why_no_containers()), reason=WHY)


def sha256(data: bytes) -> str:
    """Return a digest in the form of registries."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ImageRegistry(ThreadingHTTPServer):
    """Serves images; with *password* only to clients that send it, through a token as registries do."""

    daemon_threads = True

    def __init__(self, password: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.password = password
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.corrupt = ""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def push(
        self, repository: str, tag: str, layers: list[bytes], *, index: bool = True, **config: object
    ) -> str:
        """Store an image with these layers (compressed tars); return its digest."""
        whole = {
            "architecture": architecture(), "os": "linux", "config": {"Env": ["COLOUR=of-the-image"]},
            "rootfs": {"type": "layers", "diff_ids": [sha256(one) for one in layers]}, **config,
        }  # fmt: skip
        settings = json.dumps(whole).encode()
        for one in (settings, *layers):
            self.blobs[sha256(one)] = one
        body = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": sha256(settings), "size": len(settings)},
            "layers": [{"mediaType": LAYER, "digest": sha256(one), "size": len(one)} for one in layers],
        }).encode()  # fmt: skip
        digest = self._put(repository, tag, MANIFEST, body)
        if index:
            other = {"digest": sha256(b"other"), "platform": {"os": "linux", "architecture": "s390x"}}
            mine = {"digest": digest, "platform": {"os": "linux", "architecture": str(whole["architecture"])}}
            listed = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, mine]}
            digest = self._put(repository, tag, INDEX, json.dumps(listed).encode())
        return digest

    def _put(self, repository: str, tag: str, kind: str, body: bytes) -> str:
        for name in (tag, sha256(body)):
            self.manifests[repository, name] = (kind, body)
        return sha256(body)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that were killed."""


class _Requests(BaseHTTPRequestHandler):
    server: ImageRegistry

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(self.path)
        given = self.headers.get("Authorization", "")
        if self.path.startswith("/token"):
            wanted = base64.b64encode(f"oauth2accesstoken:{server.password}".encode()).decode()
            if given != f"Basic {wanted}":
                return self._answer(401, "", b"")
            return self._answer(200, "application/json", json.dumps({"token": "good"}).encode())
        if server.password and given != "Bearer good":
            return self._answer(
                401, "", b"", {"WWW-Authenticate": f'Bearer realm="http://{server.host}/token",service="s"'}
            )
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", self.path)
        if found and found[2] == "manifests" and (found[1], found[3]) in server.manifests:
            kind, body = server.manifests[found[1], found[3]]
            return self._answer(200, kind, body)
        if found and found[3] in server.blobs:
            body = server.blobs[found[3]]
            return self._answer(
                200, "application/octet-stream", body + b"!" if found[3] == server.corrupt else body
            )
        return self._answer(404, "application/json", b"{}")

    def _answer(self, status: int, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def registry(password: str = "") -> Iterator[ImageRegistry]:
    """Serve for as long as the block runs."""
    server = ImageRegistry(password)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def layer(files: Mapping[str, bytes | Path], *, links: Mapping[str, str] | None = None) -> bytes:
    """Return a compressed tar of links, and of files by name, all executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, target in (links or {}).items():
            one = tarfile.TarInfo(name)
            one.type, one.linkname = tarfile.SYMTYPE, target
            tar.addfile(one)
        for name, content in files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            one = tarfile.TarInfo(name)
            one.size, one.mode = len(data), 0o755
            tar.addfile(one, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), 1, mtime=0)


@cache
def programs() -> bytes:
    """Return the layer of PROGRAMS with their libraries."""
    files: dict[str, Path] = {}
    for name in PROGRAMS:
        found = Path(str(shutil.which(name))).resolve()
        files[f"bin/{name}"] = found
        listed = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            files[library.lstrip("/")] = Path(library)
    return layer(files)


def small_image() -> list[bytes]:
    """Return the layers of an image with bash; the second layer removes a file of the first."""
    first = layer({"etc/image-only": b"made of layers\n", "etc/taken-away": b""})
    return [programs(), first, layer({"etc/.wh.taken-away": b""})]
