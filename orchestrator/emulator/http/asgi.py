"""Serve requests-as-values over ASGI."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Executor
from typing import Any

import uvicorn

from orchestrator.emulator.http.router import Request, Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
WITHOUT_BODY = (204, 304)


def asgi_app(
    answer: Callable[[Request], Response],
    executor: Executor | None = None,
    refuse: Callable[[Request], Response | None] = lambda _: None,
) -> App:
    """
    Return an ASGI application that calls *answer* in a thread.

    *refuse* may answer a request by its head; its body is then not read.
    """

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        loop, response = asyncio.get_running_loop(), refuse(_request(scope, b""))
        if response is None:
            pieces = await _body(receive)
            if pieces is None:
                return
            # In a thread, since handlers take locks, wait for injected latencies and start processes.
            response = await loop.run_in_executor(executor, answer, _request(scope, pieces))
        # TensorFlow compares header names case-sensitively with Google's, such as Location.
        headers = [(k.title().encode("latin-1"), v.encode("latin-1")) for k, v in response.headers.items()]
        if response.status not in WITHOUT_BODY and "content-length" not in response.headers:
            headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if response.source is not None:
            # Done when the client disconnects, after which no more pieces are read.
            gone = asyncio.ensure_future(receive())
            while not gone.done() and (
                piece := await loop.run_in_executor(executor, next, response.source, b"")
            ):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            gone.cancel()
        await send({"type": "http.response.body", "body": response.body})

    return app


def server(app: App) -> uvicorn.Server:
    """Return a server of *app* for a socket that already listens."""
    # No proxy headers: a machine could name the user's connection as its own.
    config = uvicorn.Config(
        app, log_level="error", lifespan="off", ws="none", proxy_headers=False, timeout_graceful_shutdown=2
    )
    return uvicorn.Server(config)


async def _body(receive: Receive) -> list[bytes] | None:
    """Return the pieces of the request's body, None if the client has disconnected."""
    pieces = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return pieces


def _request(scope: Message, body: bytes | list[bytes]) -> Request:
    target = scope["raw_path"].decode("latin-1")
    if scope["query_string"]:
        target += "?" + scope["query_string"].decode("latin-1")
    headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
    client = scope.get("client")
    peer = (str(client[0]), int(client[1])) if client and client[1] else None
    return Request.parse(scope["method"], target, headers, body, peer)
