"""
The transport of every SSH connection: fast ciphers, small buffers, no word about a closed channel.

A machine may say more than it was given room for: it is cut off before this computer has no memory left.
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
LARGEST_PACKET = 256 << 10
"""Bytes of a packet, as OpenSSH bounds them; RFC 4253 6.1 asks for 35,000, and a channel allows 32 KiB."""


class FloodError(paramiko.SSHException):
    """Say that a machine sends more than it may."""


class _Packets(Packetizer):
    """Read packets of a bounded size: the other side says how long each is, before any login up to 4 GiB."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read *n* bytes. Raise FloodError for more than a packet may have."""
        if n > LARGEST_PACKET:
            raise FloodError(f"the machine announces a packet of {n} bytes")
        return super().read_all(n, check_rekey)


def _within(feed: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return *feed*, which takes data of a channel, with a bound: paramiko keeps what is beyond the window."""

    def take(channel: Any, message: Any) -> None:
        feed(channel, message)
        # Of both streams, read or not. Twice: who miscounts by a little is no attacker.
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * channel.in_window_size:
            raise FloodError("the machine sends more than the agreed window")

    return take


_HANDLERS: dict[int, Any] = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined] # noqa: SLF001


class BoundedTransport(paramiko.Transport):
    """
    Hold the other side to its window, and send nothing about a channel after its close.

    RFC 4254 asks for both (5.2, 5.3). paramiko 5.1 decides under a channel's lock and sends outside of it.
    When the other side closes the channel in between, a window adjustment follows the close, and a strict
    server ends the whole connection with all other channels. OpenSSH only logs it.
    """

    _channel_handler_table = {  # noqa: RUF012 - as paramiko has it
        **_HANDLERS,
        **{
            kind: _within(_HANDLERS[kind])
            for kind in (common.MSG_CHANNEL_DATA, common.MSG_CHANNEL_EXTENDED_DATA)
        },
    }

    def _send_message(self, data: Any) -> None:
        """Send one message; messages of channels come here one at a time, under `clear_to_send_lock`."""
        raw = cast("bytes", util.asbytes(data))
        if raw[0] in _ABOUT_AN_OPEN_CHANNEL and not self._is_open(int.from_bytes(raw[1:5], "big")):
            return
        super()._send_message(data)  # type: ignore[misc]

    def _is_open(self, number: int) -> bool:
        """Tell whether the other side's channel *number* is one that this side has not closed."""
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
