"""
Accept loopback connections of one user only; those of other users are closed unread.

Loopback is shared by all users, and Google's clients send no credentials to the local cloud. Linux knows the
owner of the socket at the other end: sock_diag(7) answers for one connection; if it is unavailable, proc(5)
lists all. Connections are checked once, when they are accepted.
"""

import errno
import os
import pwd
import re
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.emulator.machines import process_table
from orchestrator.errors import LocalCloudError

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
SOCK_DIAG, BY_FAMILY, REQUEST, REFUSED = 4, 20, 1, 2  # linux/netlink.h, linux/sock_diag.h
ALL_STATES = 0xFFFFFFFF
NO_COOKIE = 0xFFFFFFFF
ESTABLISHED, CLOSE_WAIT, LISTEN = 1, 8, 10  # include/net/tcp_states.h
ANY_PEER = ("0.0.0.0", 0)  # noqa: S104 - the other end of a socket that listens
TIMES = 3
MANY = 256
REFUSALS = 16
"""Connections that one `accept` refuses before the event loop handles other work."""
End = tuple[str, int]
Inside = Callable[[int], bool]


@dataclass(frozen=True)
class SocketOwner:
    """The owner of a socket: the *uid* of its creator, and its *inode*."""

    uid: int
    inode: int


NO_OWNER = SocketOwner(0, 0)


_answered: list[bool] = []


"""Whether sock_diag has found a socket before; where it is unavailable it always reports "no such socket"."""


def socket_owner_of(end: End, other: End) -> SocketOwner | None:
    """
    Return the owner of the socket at *end* of the IPv4 connection to *other*; None if there is none.

    A socket that its process has closed is listed under root without an inode, so it has no owner. With
    ANY_PEER as *other*, it is the socket that listens at *end*.
    """
    found = _asked(end, other)
    for _ in range(TIMES):
        # Read again, as a line may be missed while others are removed from the table.
        found = found or _listed(end, other)
        if found is not None:
            break
    return found if found is not None and found.inode else None


def _asked(end: End, other: End) -> SocketOwner | None:
    """Query the kernel for this one connection (linux/inet_diag.h); None if it does not answer."""
    ends = [(socket.inet_aton(address), port) for address, port in (end, other)]
    ports = struct.pack("!HH", ends[0][1], ends[1][1])
    names = b"".join(address.ljust(16, b"\0") for address, _ in ends)
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ALL_STATES)
    body += ports + names + struct.pack("=III", 0, NO_COOKIE, NO_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(struct.pack("=IHHII", 16 + len(body), BY_FAMILY, REQUEST, 1, 0) + body)
            answer = kernel.recv(8192)
    except OSError:
        return None
    kind = struct.unpack_from("=H", answer, 4)[0] if len(answer) >= 20 else 0
    if kind == REFUSED and _answered and -struct.unpack_from("=i", answer, 16)[0] == errno.ENOENT:
        return NO_OWNER
    if len(answer) < 88 or kind != BY_FAMILY:
        return None
    if not _answered:
        _answered.append(True)
    if answer[17] == LISTEN and other != ANY_PEER:
        return NO_OWNER  # for a connection that has ended, the kernel returns the listening socket
    return SocketOwner(*struct.unpack_from("=II", answer, 80))


def _listed(end: End, other: End, tables: tuple[str, ...] = TABLES) -> SocketOwner | None:
    """Look up the connection in the table; an IPv6 socket may hold an IPv4 connection."""
    for table in tables:
        six = table.endswith("6")
        wanted = b" ".join(_written(*one, six=six) for one in (end, other))
        try:
            lines = Path(table).read_bytes()
        except OSError:
            continue
        found = re.search(re.escape(wanted) + rb" \w\w \S+ \S+ \S+ +(\d+) +\d+ (\d+) ", lines)
        if found:
            return SocketOwner(int(found[1]), int(found[2]))
    return None


def _written(address: str, port: int, *, six: bool) -> bytes:
    """Return an end in the table's notation: words in the computer's byte order."""
    (word,) = struct.unpack("=I", socket.inet_aton(address))
    (mapped,) = struct.unpack("=I", b"\0\0\xff\xff")
    before = f"{'0' * 16}{mapped:08X}" if six else ""
    return f"{before}{word:08X}:{port:04X}".encode()


def held_for_us(connection: socket.socket) -> bool | None:
    """
    Return whether this user or root holds the other end; None until the connection is accepted.

    Until then the listening socket's owner decides, since another user could delay accepting. Raise OSError
    if the connection has ended.
    """
    there, here = connection.getpeername()[:2], connection.getsockname()[:2]
    owner = socket_owner_of(there, here)
    listener = socket_owner_of(there, ANY_PEER) if owner is None else None
    # Checked last: the results above mean nothing if the connection has ended meanwhile.
    if _state(connection) != ESTABLISHED:
        raise ConnectionResetError(f"{there[0]}:{there[1]} ended the connection")
    if owner is not None:
        return _is_ours(owner)
    return False if listener is not None and not _is_ours(listener) else None


def _is_ours(owner: SocketOwner) -> bool:
    return owner.uid in (os.geteuid(), 0)


def _state(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


class OwnerSocket(socket.socket):
    """
    A listener for connections of this user's processes and of root's; *inside* admits more by inode.

    On machines in namespaces a job may run under any uid, and still belongs to the user.
    """

    inside: Inside | None = None
    _refused: "set[int | None] | None" = None

    def accept(self) -> tuple[socket.socket, Any]:
        """
        Return the next admitted connection; others are closed.

        Raise BlockingIOError after REFUSALS of those, so that the event loop can handle other work.
        """
        for _ in range(REFUSALS):
            connection, peer = super().accept()
            if self._admits(connection, peer):
                return connection, peer
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "the connections so far were refused")

    def _admits(self, connection: socket.socket, peer: Any) -> bool:
        try:
            # Connections that were reset at once are skipped, because a lookup costs more than a connection.
            if _state(connection) not in (ESTABLISHED, CLOSE_WAIT):
                return False
            here = connection.getsockname()
            owner = socket_owner_of(peer[:2], here[:2])
            # Checked after the lookup: the port of a connection that has ended may already be reused.
            state = _state(connection)
        except OSError:
            return False
        if owner is None or state not in (ESTABLISHED, CLOSE_WAIT):
            return False
        if _is_ours(owner) or (self.inside is not None and self.inside(owner.inode)):
            return True
        self._refused = self._refused or set()
        if owner.uid not in self._refused:
            self._refused.add(owner.uid)
            print(f"a connection of user {owner.uid} was refused", file=sys.stderr, flush=True)  # noqa: T201 - the daemon's log
        return False


def listening(address: str, port: int, inside: Inside | None = None) -> OwnerSocket:
    """Return a socket that listens for this user. Raise OSError naming the owner if the port is taken."""
    # asyncio sets TCP_NODELAY only for sockets created with an explicit protocol.
    listener = OwnerSocket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.inside = inside
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(MANY)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            by = _named(socket_owner_of((address, port), ANY_PEER))
            raise OSError(error.errno, f"{address}:{port}: address already in use{by}") from None
        raise
    return listener


def _named(owner: SocketOwner | None) -> str:
    """Return the owner of a port for a message: the process if this user may see it, else its user."""
    if owner is None:
        return ""
    pid = process_table.socket_pid(owner.inode, sorted(process_table.table()))
    if pid is not None:
        return f" by process {pid} ({process_table.command(pid)})"
    with suppress(KeyError):
        return f" by user {pwd.getpwuid(owner.uid).pw_name} (uid {owner.uid})"
    return f" by the user with uid {owner.uid}"


def check_owner_reported(listener: OwnerSocket) -> None:
    """
    Raise LocalCloudError if the system does not report the owner of a connection.

    Without it, no connection could be admitted.
    """
    with socket.create_connection(listener.getsockname(), timeout=5.0) as client:
        if socket_owner_of(client.getsockname(), listener.getsockname()) is None:
            raise LocalCloudError(
                "this system does not say whose a connection is; the local cloud cannot keep other users out",
                hint="it needs Linux with sock_diag or a readable /proc/net/tcp",
                changed="nothing was started",
            )


def unix_listening(folder: Path, name: str) -> socket.socket:
    """Return a listening Unix socket *name* in *folder*, accessible to its owner only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(folder) as path:
        place = f"{path}/{name}"
        # The socket of a dead daemon would make `bind` fail.
        Path(place).unlink(missing_ok=True)
        listener.bind(place)
        # Before it listens, so that no other user can connect in between.
        Path(place).chmod(0o600)
    listener.listen(MANY)
    return listener


def unix_connection(folder: Path, name: str) -> socket.socket:
    """Return a connection to the Unix socket *name* in *folder*. Raise OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as path:
            client.connect(f"{path}/{name}")
    except OSError:
        client.close()
        raise
    return client


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path to a folder that fits into the 107 bytes of unix(7)."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
