"""Addresses and ports of this computer for servers of tests."""

import random
import socket


def free_address() -> str:
    """Return a loopback address that nothing else is likely to use."""
    return f"127.{random.randint(40, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"


def free_port(address: str) -> int:
    """Return a port of *address* that the system says is free."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
