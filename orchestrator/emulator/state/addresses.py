"""Loopback addresses: one for each machine, so that machines look apart."""

from ipaddress import IPv4Address, IPv4Network

from orchestrator.errors import LocalCloudError


class AddressPool:
    """
    Hand out the addresses of the /16 at *base*, the longest unused first.

    An address is used again only when all others have been used. Errors: LocalCloudError when
    *base* is not inside 127.0.0.0/8, is 127.0.0.0/16, or when every address is taken.
    """

    def __init__(self, base: str) -> None:
        self._network = _network(base)
        self._fresh = 1
        self._free: list[str] = []

    def take(self) -> str:
        """Return an address that no machine has."""
        if self._fresh < self._network.num_addresses - 1:
            self._fresh += 1
            return str(self._network.network_address + self._fresh - 1)
        if not self._free:
            raise LocalCloudError(
                f"address pool {self._network}: every address is in use",
                unchanged="no machine was made",
                hint="delete machines, or choose another address base",
            )
        return self._free.pop(0)

    def release(self, address: str) -> None:
        """Take *address* back."""
        self._free.append(address)


def _network(base: str) -> IPv4Network:
    network = IPv4Network(f"{IPv4Address(base)}/16", strict=False)
    if not network.is_loopback or network.network_address == IPv4Address("127.0.0.0"):
        raise LocalCloudError(
            f"address base {base}: not usable for machines",
            unchanged="the local cloud was not started",
            hint="give an address between 127.1.0.0 and 127.255.0.0",
        )
    return network
