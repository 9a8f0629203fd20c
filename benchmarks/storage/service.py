"""
The local cloud's Cloud Storage alone, on loopback: python -m benchmarks.storage.service FOLDER PORT.

It serves both APIs to everybody, so that clients need no certificates. Code and storage are those of the daemon.
"""

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.clock import SystemClock
from orchestrator.emulator.http.asgi import asgi_app, server
from orchestrator.emulator.http.router import Router
from orchestrator.emulator.http.storage_json import route, storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from orchestrator.emulator.state.storage.blobs import FolderBlobs
from orchestrator.emulator.state.storage.service import Storage

BUCKET = "bench-storage"


def main() -> None:
    """Serve until the process is ended."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    storage, router = Storage(SystemClock(), FolderBlobs(folder)), Router()
    storage.buckets.create("p", {"name": BUCKET, "softDeletePolicy": {"retentionDurationSeconds": "0"}})
    storage_routes(router, storage)
    xml_routes(router, storage)
    app = asgi_app(lambda request: route(router, request), ThreadPoolExecutor(32))
    with socket.create_server(("127.0.0.1", port)) as listener:
        asyncio.run(server(app).serve([listener]))


if __name__ == "__main__":
    main()
