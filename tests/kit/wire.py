"""
Connect Google's clients to the tests' clouds without a network.

Creating the clients takes 60 ms, so all tests of a process share them, and the active cloud answers.
"""

from dataclasses import replace
from functools import cache

from orchestrator.domain.ports import CloudAccount
from orchestrator.emulator.client import BASE, shorten
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.factory import open_cloud

PROJECT = "local-project"
ACCOUNT = "123456789012-compute@developer.gserviceaccount.com"


class Wire:
    """The clients' transport; *cloud* answers the requests, within a timeout in seconds."""

    cloud = None

    def answer(self, request, timeout):
        return self.cloud.answer(request, timeout)


WIRE = Wire()


class WiredClients(Clients):
    """Google's clients, with sessions that the active cloud answers."""

    def _local_only(self, client, session):
        shorten(session, WIRE.answer)
        return super()._local_only(client, session)


@cache
def clients(read_retry=0.0):
    """Return the shared clients; those with another *read_retry*, in seconds, are separate."""
    return WiredClients(CloudSettings(PROJECT, BASE, read_retry=read_retry))


def wired_cloud(spec, remote, *, account=ACCOUNT, read_retry=0.0, lists=None):
    """Return the real adapters for one deployment, over the shared clients."""
    ours = WiredClients(CloudSettings(PROJECT, BASE, read_retry=read_retry, lists=lists))
    ours._made = clients(read_retry)._made
    cloud = open_cloud(ours.settings, spec, remote, ask_account=False, clients=ours)
    return replace(cloud, account=CloudAccount(PROJECT, account))
