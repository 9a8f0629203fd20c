"""
The one way from Google's clients to the clouds of the tests: no network, nothing that costs and changes nothing.

To make the clients costs 60 ms, so all tests of a process share them, and whichever cloud is at work answers.
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
    """What the clients speak over; *cloud* is whoever answers a request now, within a limit in seconds."""

    cloud = None

    def answer(self, request, limit):
        return self.cloud.answer(request, limit)


WIRE = Wire()


class WiredClients(Clients):
    """Google's clients, each with its session answered by the cloud that is at work."""

    def _local_only(self, client, session):
        shorten(session, WIRE.answer)
        return super()._local_only(client, session)


@cache
def clients(read_retry=0.0):
    """Return the clients that all tests share; those that repeat reads for *read_retry* seconds are others."""
    return WiredClients(CloudSettings(PROJECT, BASE, read_retry=read_retry))


def wired_cloud(spec, remote, *, account=ACCOUNT, read_retry=0.0, lists=None):
    """Return the real adapters for one deployment, over the shared clients."""
    ours = WiredClients(CloudSettings(PROJECT, BASE, read_retry=read_retry, lists=lists))
    ours._made = clients(read_retry)._made
    cloud = open_cloud(ours.settings, spec, remote, ask_account=False, clients=ours)
    return replace(cloud, account=CloudAccount(PROJECT, account))
