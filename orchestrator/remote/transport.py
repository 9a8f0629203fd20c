"""
The transport of every SSH connection: fast ciphers, small buffers, no word about a closed channel.
"""

import socket
from typing import Any, cast

import paramiko
from paramiko import common, util

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


class Transport(paramiko.Transport):
    """
    Send nothing about a channel after its close, as RFC 4254 section 5.3 asks.

    paramiko 5.1 decides under a channel's lock and sends outside of it. When the other side closes the
    channel in between, a window adjustment follows the close, and a strict server ends the whole connection
    with all other channels. OpenSSH only logs it.
    """

    def _send_message(self, data: Any) -> None:
        """
        Send one message; messages of channels come here one at a time, under `clear_to_send_lock`.
        """
        raw = cast("bytes", util.asbytes(data))
        if raw[0] in _ABOUT_AN_OPEN_CHANNEL and not self._is_open(int.from_bytes(raw[1:5], "big")):
            return
        super()._send_message(data)  # type: ignore[misc]

    def _is_open(self, number: int) -> bool:
        """
        Tell whether the other side's channel *number* is one that this side has not closed.
        """
        channels = self._channels.values()  # type: ignore[attr-defined]
        return any(channel.remote_chanid == number and not channel.closed for channel in channels)


def open_transport(sock: Any, **options: Any) -> Transport:
    """
    Build a transport with fast ciphers and a send buffer that a slow link empties within the stall time.
    """
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    transport = Transport(sock, **options)
    transport.get_security_options().ciphers = _CIPHERS
    return transport
