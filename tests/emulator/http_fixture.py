"""Serve a Router over real HTTP on a free port of 127.0.0.1, in a thread, behind the guards of the real one."""

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from orchestrator.emulator.http.asgi import asgi_app
from orchestrator.emulator.http.certificates import STORAGE_HOSTS
from orchestrator.emulator.http.guard import refusal
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.http.storage_json import route
from orchestrator.emulator.machines.socket_owner import listening


@contextmanager
def serve(
    router: Router,
    answer: Callable[[Request], Response] | None = None,
    *,
    storage: bool = False,
    names: Collection[str] = (),
) -> Iterator[str]:
    """
    Yield the base URL, for example `http://127.0.0.1:40123`.

    *answer* replaces the plain look-up in *router*, for example to inject faults. With *storage* it is
    what a tunnel to Google's storage hosts leads to. *names* are more hosts that it answers for: proxies.
    """
    inner = answer or (lambda request: route(router, request))
    listener = listening("127.0.0.1", 0)
    hosts = STORAGE_HOSTS if storage else (f"127.0.0.1:{listener.getsockname()[1]}",)

    def reply(request: Request) -> Response:
        return refusal(request, {*hosts, *names}, json=not storage) or inner(request)

    with served(asgi_app(reply), listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def served(app: Any, listener: socket.socket) -> Iterator[None]:
    """Serve an application while the block runs."""
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        # The socket listens from the start of the server; until then a connection would be refused.
        while not server.started and thread.is_alive():
            threading.Event().wait(0.005)
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
