"""
Average gradients over all workers of a slice: each sends to worker 0, which adds up and answers.

A worker that is gone or silent ends the step for everybody: all leave with an error, and are started
again together.
"""

import os
import socket
import struct
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener

import numpy as np

HELLO = struct.Struct("<ii")  # worker, workers
HEADER = struct.Struct("<qdi")  # step, loss, wish


class GangError(Exception):
    """
    Report that another worker is gone, late or at another step.
    """


class Gang:
    """
    Connect the workers. *hosts* are their addresses; times are in seconds.
    """

    def __init__(self, worker, workers, hosts, *, port, join_seconds, step_seconds):
        self.worker, self.workers, self.step_seconds = worker, workers, step_seconds
        self.peers = []
        if workers == 1:
            return
        if len(hosts) != workers:
            raise GangError(f"TPUCTL_WORKER_HOSTS names {len(hosts)} machines, TPUCTL_WORKERS says {workers}")
        # Only workers of the same attempt know this key: one left over from an earlier attempt stays out.
        key = os.environ.get("TPUCTL_JOB", "numpy-lm").encode()
        join = self._gather if worker == 0 else self._connect
        deadline = time.monotonic() + join_seconds
        self.peers = join((hosts[0], port), key, deadline)
        for peer in self.peers:
            with socket.socket(fileno=os.dup(peer.fileno())) as line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def average(self, step, loss, grads, wish):
        """
        Return loss and gradients averaged over the gang, equal on every worker, and the largest wish.

        Raises GangError.
        """
        if not self.peers:
            return loss, grads, wish
        order = sorted(grads)
        flat = np.concatenate([grads[name].ravel() for name in order])
        try:
            exchange = self._collect if self.worker == 0 else self._ask
            loss, flat, wish = exchange(step, loss, flat, wish)
        except (EOFError, OSError) as error:
            raise GangError(f"worker {self.worker} lost a peer at step {step}: {error!r}") from error
        sizes = np.cumsum([grads[name].size for name in order])[:-1]
        parts = iter(np.split(flat, sizes))
        return loss, {name: next(parts).reshape(grads[name].shape) for name in order}, wish

    def _collect(self, step, loss, flat, wish):
        # Always added in the order of the workers: floating point sums depend on it.
        for peer in self.peers:
            other_loss, other, other_wish = self._receive(peer, step)
            loss, flat, wish = loss + other_loss, flat + other, max(wish, other_wish)
        loss, flat = loss / self.workers, flat / np.float32(self.workers)
        for peer in self.peers:
            self._send(peer, step, loss, flat, wish)
        return loss, flat, wish

    def _ask(self, step, loss, flat, wish):
        self._send(self.peers[0], step, loss, flat, wish)
        return self._receive(self.peers[0], step)

    def _send(self, peer, step, loss, flat, wish):
        peer.send_bytes(HEADER.pack(step, loss, wish) + flat.tobytes())

    def _receive(self, peer, step):
        if not peer.poll(self.step_seconds):
            raise GangError(f"worker {self.worker} heard nothing for {self.step_seconds:g} s at step {step}")
        data = peer.recv_bytes()
        other, loss, wish = HEADER.unpack_from(data)
        if other != step:
            raise GangError(f"worker {self.worker} is at step {step}, a peer at step {other}")
        return loss, np.frombuffer(data, np.float32, offset=HEADER.size), wish

    def _gather(self, address, key, deadline):
        """
        Wait on worker 0 until all others have called.
        """
        found = {}
        thread = threading.Thread(target=self._listen, args=(address, key, deadline, found), daemon=True)
        thread.start()
        thread.join(max(0.0, deadline - time.monotonic()))
        if len(found) < self.workers - 1:
            missing = sorted(set(range(1, self.workers)) - set(found))
            raise GangError(f"worker 0 at {address[0]}:{address[1]} waited in vain for workers {missing}")
        return [found[worker] for worker in sorted(found)]

    def _listen(self, address, key, deadline, found):
        with _until(deadline, lambda: Listener(address, backlog=self.workers, authkey=key)) as listener:
            while len(found) < self.workers - 1:
                try:
                    peer = listener.accept()
                    worker, workers = HELLO.unpack(peer.recv_bytes())
                except (AuthenticationError, EOFError, OSError, struct.error):
                    continue
                if workers == self.workers and 0 < worker < workers:
                    found[worker] = peer

    def _connect(self, address, key, deadline):
        """
        Call worker 0 until it answers.
        """
        peer = _until(deadline, lambda: Client(address, authkey=key))
        peer.send_bytes(HELLO.pack(self.worker, self.workers))
        return [peer]


def _until(deadline, attempt):
    while True:
        try:
            return attempt()
        except (AuthenticationError, EOFError, OSError) as error:
            if time.monotonic() > deadline:
                raise GangError(f"could not join the gang: {error!r}") from error
        time.sleep(0.2)
