"""Connect only to a local cloud of this user; after its end another user may own the port."""

import socket
import time
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError

from orchestrator.emulator.address import Address
from orchestrator.emulator.machines.socket_owner import held_for_us
from orchestrator.errors import TransientError

POLL_SECONDS = 0.01
"""Seconds between two checks of who accepts a connection."""


def adapter_for(address: Address) -> "OwnServer | None":
    """Return the adapter for requests to the local cloud; None on its machines, which may not see owners."""
    return OwnServer() if address.pid else None


class OwnServer(HTTPAdapter):
    """
    Sends requests to servers of this user and of root only; another user's gets no byte.

    If a connection is not accepted, it fails after the request's connect timeout.
    """

    def init_poolmanager(self, *words: Any, **named: Any) -> None:
        """Use connections that check the server."""
        super().init_poolmanager(*words, **named)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool}


class _Connection(HTTPConnection):
    def connect(self) -> None:
        try:
            super().connect()
        except NewConnectionError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError):
                raise
            # With the command in the message: of what could not be observed only the message is shown.
            raise TransientError(
                "the local cloud does not run: `tpuctl local start` starts it", hint="run: tpuctl local start",
                changed="nothing was sent", code="TPU-401",
            ) from error  # fmt: skip
        try:
            self._check_owner()
        except BaseException:
            self.close()
            raise

    def _check_owner(self) -> None:
        """Raise TransientError for another user's server, before anything is sent; or OSError."""
        limit = self.timeout if isinstance(self.timeout, int | float) else socket.getdefaulttimeout()
        end = time.monotonic() + (30.0 if limit is None else limit)
        while (ours := held_for_us(self.sock)) is None:
            if time.monotonic() > end:
                raise NewConnectionError(self, f"the local cloud does not answer at port {self.port}")
            time.sleep(POLL_SECONDS)  # Another process accepts, without a notification.
        if not ours:
            raise TransientError(
                f"the local cloud has ended, and another user of this computer has its port {self.port}",
                hint="run: tpuctl local start; it says who has the port", changed="nothing was sent",
                code="TPU-401",
            )  # fmt: skip


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection
