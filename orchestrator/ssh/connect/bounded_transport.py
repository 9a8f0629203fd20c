"""
Bound what every SSH connection keeps in memory, and use fast ciphers and a small send buffer.

A machine that announces or sends more than it may is disconnected before this computer runs out of memory.
"""

import socket
from collections.abc import Callable
from typing import Any, cast

import paramiko
from paramiko import common, util
from paramiko.packet import Packetizer

_SEND_BUFFER = 512 * 1024
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
_ABOUT_AN_OPEN_CHANNEL = {
    common.MSG_CHANNEL_WINDOW_ADJUST,
    common.MSG_CHANNEL_DATA,
    common.MSG_CHANNEL_EXTENDED_DATA,
    common.MSG_CHANNEL_EOF,
    common.MSG_CHANNEL_REQUEST,
    common.MSG_CHANNEL_SUCCESS,
    common.MSG_CHANNEL_FAILURE,
}
MAX_PACKET = 256 << 10
"""Bytes; OpenSSH has the same limit. RFC 4253 6.1 requires 35,000, and a channel allows 32 KiB."""


class FloodError(paramiko.SSHException):
    """A machine sends more than the protocol allows."""


class _Packets(Packetizer):
    """Refuse packets above MAX_PACKET: the peer announces each length, before the login up to 4 GiB."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read *n* bytes. Raise FloodError for more than a packet may have."""
        if n > MAX_PACKET:
            raise FloodError(f"the machine announces a packet of {n} bytes")
        return super().read_all(n, check_rekey)


def _within(feed: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """
    Wrap *feed*, paramiko's handler of channel data, so that it raises FloodError beyond the window.

    paramiko itself buffers whatever arrives, also what exceeds the window that it has granted.
    """

    def take(channel: Any, message: Any) -> None:
        feed(channel, message)
        # Unread bytes of both streams. Twice the window, so that a peer which miscounts slightly is not cut off.
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * channel.in_window_size:
            raise FloodError("the machine sends more than the agreed window")

    return take


_HANDLERS: dict[int, Any] = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined] # noqa: SLF001


class BoundedTransport(paramiko.Transport):
    """
    Enforce the channel window on the peer, and send nothing about a channel after its close.

    RFC 4254 requires both (5.2, 5.3). paramiko 5.1 decides under a channel's lock and sends outside of it. If
    the peer closes the channel in between, a window adjustment follows the close. OpenSSH only logs that; a
    strict server ends the connection with all of its channels.
    """

    _channel_handler_table = {  # noqa: RUF012 - as paramiko has it
        **_HANDLERS,
        **{
            kind: _within(_HANDLERS[kind])
            for kind in (common.MSG_CHANNEL_DATA, common.MSG_CHANNEL_EXTENDED_DATA)
        },
    }

    def _send_message(self, data: Any) -> None:
        """
        Send one message, or drop it if its channel is closed.

        Messages about channels arrive here one at a time, under `clear_to_send_lock`.
        """
        raw = cast("bytes", util.asbytes(data))
        if raw[0] in _ABOUT_AN_OPEN_CHANNEL and not self._is_open(int.from_bytes(raw[1:5], "big")):
            return
        super()._send_message(data)  # type: ignore[misc]

    def _is_open(self, number: int) -> bool:
        """Return whether the channel with the peer's number *number* has not been closed by this side."""
        channels = self._channels.values()  # type: ignore[attr-defined]
        return any(channel.remote_chanid == number and not channel.closed for channel in channels)


def open_transport(sock: Any, **options: Any) -> BoundedTransport:
    """Build a transport with fast ciphers and a send buffer that a slow link empties within the stall time."""
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    transport = BoundedTransport(sock, packetizer_class=_Packets, **options)
    transport.get_security_options().ciphers = _CIPHERS
    return transport
