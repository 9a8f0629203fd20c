"""A TCP relay that goes bad after a given number of bytes."""

import contextlib
import socket
import struct
import threading


class Relay:
    """Forward to *target*; after *after* bytes from the client: "close", "reset" or "hole" (swallow everything)."""

    def __init__(self, target: tuple[str, int], address: str, after: int | None, action: str) -> None:
        self.target = target
        self.after = after
        self.action = action
        self.forwarded = 0
        self.connections = 0
        self._bad = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((address, 0))
        self.address, self.port = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def break_now(self) -> None:
        """Go bad at once, whatever was forwarded."""
        self.after = self.forwarded
        self._bad.set()
        if self.action != "hole":
            self._cut()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for sock in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self.target)
                self._sockets += [client, server]
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(4096):
                if self.after is not None and self.forwarded + len(data) >= self.after:
                    server.sendall(data[: max(0, self.after - self.forwarded)])
                    self.forwarded = self.after
                    self._bad.set()
                    break
                self.forwarded += len(data)
                server.sendall(data)
            else:
                server.shutdown(socket.SHUT_WR)
                return
            if self.action != "hole":
                self._cut()

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if not (self._bad.is_set() and self.action == "hole"):
                    client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def _cut(self) -> None:
        """End both sides; a reset wakes our own readers first, or the kernel would keep the sockets open."""
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                if self.action == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.shutdown(socket.SHUT_RD)
                    sock.close()
                else:
                    sock.shutdown(socket.SHUT_RDWR)
