"""Put the local cloud at Google's addresses, for the clients of this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import requests
from google.auth.credentials import AnonymousCredentials
from requests.adapters import BaseAdapter

from orchestrator.clock import VirtualClock
from orchestrator.emulator.client import InProcess
from orchestrator.emulator.state.billing import BillLine
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.values.machine import Machine

PROJECT = "test-project"
SERVED = frozenset({"tpu.googleapis.com", "compute.googleapis.com", "storage.googleapis.com"})
GOOGLE = (".googleapis.com", "metadata.google.internal", "169.254.169.254")


class GoogleCloud:
    """
    An empty cloud. Machines have states only and boot nothing; time passes only by `advance`.

    *settings* are those of the local cloud, for example `stockouts={"us-central1-a"}`, `quotas={("CPUS",
    "us-central1"): 8}` or `denied_permissions={"tpu.nodes.create"}`.
    """

    def __init__(self, project: str = PROJECT, **settings: Any) -> None:
        self.project = project
        self.clock = VirtualClock()
        self._inside = InProcess(self.clock, LocalCloudSettings(project=project, **settings))
        self.cloud = self._inside.cloud

    @contextmanager
    def installed(self) -> Iterator["GoogleCloud"]:
        """
        Answer in place of Google while the block runs; application default credentials are set too.

        Other addresses raise requests.ConnectionError.
        """
        ours, adapters = self._inside.adapter(), requests.Session.get_adapter

        def get_adapter(session: requests.Session, url: str) -> BaseAdapter:
            host = urlsplit(url).hostname or ""
            if host in SERVED:
                return ours
            if host.endswith(GOOGLE):
                raise requests.ConnectionError(
                    f"a test calls {host}, which this Google Cloud does not emulate"
                )
            return adapters(session, url)

        login = (AnonymousCredentials(), self.project)
        with (
            mock.patch.object(requests.Session, "get_adapter", get_adapter),
            mock.patch("google.auth.default", return_value=login),
            mock.patch.dict("os.environ", {"GOOGLE_CLOUD_PROJECT": self.project}),
        ):
            yield self

    def advance(self, seconds: float) -> None:
        """Advance the clock by *seconds*: operations finish, notice periods end, machines are billed."""
        self.clock.advance(seconds)
        self.cloud.tick()

    def preempt(self, name: str, *, notice: bool = True) -> None:
        """Preempt a TPU node or a spot VM: at once, or with *notice* after 30 s."""
        self.cloud.preempt(name, notice)

    def fail(self, method: str, *faults: str) -> None:
        """
        Make the next calls of *method* fail, one for each of *faults*.

        For example `fail("tpu.nodes.create", "stockout", "drop-answer")`. Raise LocalCloudError for an
        unknown method or fault; the message lists the known ones.
        """
        self.cloud.fail_next(method, faults)

    @property
    def calls(self) -> Counter[str]:
        """Return how often each method was called, by names such as `tpu.nodes.create`."""
        return self.cloud.calls

    @property
    def running(self) -> list[str]:
        """Return the names of running VMs and TPU nodes, which are billed."""
        self.cloud.tick()
        return sorted({_resource(machine) for machine in self.cloud.machines()})

    @property
    def bill(self) -> list[BillLine]:
        """Return the cost of everything so far, in lines."""
        return self.cloud.bill()

    def assert_nothing_left(self) -> None:
        """Raise AssertionError if a machine still runs, or if a planned fault did not occur."""
        running, unused = self.running, self.cloud.unused_faults()
        if running:
            raise AssertionError(f"still running, and billed: {', '.join(running)}")
        if unused:
            raise AssertionError(f"did not occur: {', '.join(f'{m} {fault}' for m, fault in unused)}")


def _resource(machine: Machine) -> str:
    """Return the resource's name: for a worker its TPU node's, since the worker's own is generated."""
    if machine.kind == "vm":
        return machine.name
    return machine.id.removeprefix(f"tpu-{machine.zone}-").rsplit("-", 2)[0]
