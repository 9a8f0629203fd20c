"""The local cloud in the place of Google's addresses, for the clients of this process."""

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
from orchestrator.emulator.state.cloud_settings import CloudSettings
from orchestrator.emulator.state.machine import Machine

PROJECT = "test-project"
SERVED = frozenset({"tpu.googleapis.com", "compute.googleapis.com", "storage.googleapis.com"})
GOOGLE = (".googleapis.com", "metadata.google.internal", "169.254.169.254")


class GoogleCloud:
    """
    Hold one empty cloud. Machines are states only: they boot nothing. Time passes by `advance` alone.

    *settings* are those of the local cloud, for example `stockouts={"us-central1-a"}`,
    `quotas={("CPUS", "us-central1"): 8}` or `denied_permissions={"tpu.nodes.create"}`.
    """

    def __init__(self, project: str = PROJECT, **settings: Any) -> None:
        self.project = project
        self.clock = VirtualClock()
        self._inside = InProcess(self.clock, CloudSettings(project=project, **settings))
        self.cloud = self._inside.cloud

    @contextmanager
    def installed(self) -> Iterator["GoogleCloud"]:
        """Answer for Google in this process while the block runs; application default credentials are there."""
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
        """Let time pass: operations end, notices run out, machines are billed."""
        self.clock.advance(seconds)
        self.cloud.tick()

    def preempt(self, name: str, *, notice: bool = True) -> None:
        """Take a TPU node or a spot VM away; with *notice* it has 30 s."""
        self.cloud.preempt(name, notice)

    def fail(self, method: str, *failures: str) -> None:
        """
        Let the next calls of *method* fail, one each: `fail("tpu.nodes.create", "stockout", "drop-answer")`.

        Raise LocalCloudError for a method or failure that does not exist, with those that do.
        """
        self.cloud.fail_next(method, failures)

    @property
    def calls(self) -> Counter[str]:
        """Return how often each method was called, such as `tpu.nodes.create`."""
        return self.cloud.calls

    @property
    def running(self) -> list[str]:
        """Return the names of the VMs and TPU nodes that run, which are billed."""
        self.cloud.tick()
        return sorted({_resource(machine) for machine in self.cloud.machines()})

    @property
    def bill(self) -> list[BillLine]:
        """Return what all of it would have cost, line by line."""
        return self.cloud.bill()

    def assert_nothing_left(self) -> None:
        """Fail the test when a machine still runs, which would be billed, or when a planned failure was not met."""
        running, unused = self.running, self.cloud.unused_faults()
        if running:
            raise AssertionError(f"still running, and billed: {', '.join(running)}")
        if unused:
            raise AssertionError(f"did not occur: {', '.join(f'{m} {fault}' for m, fault in unused)}")


def _resource(machine: Machine) -> str:
    """Return the name by which a user knows it: a worker's own name is made by the cloud."""
    if machine.kind == "vm":
        return machine.name
    return machine.id.removeprefix(f"tpu-{machine.zone}-").rsplit("-", 2)[0]
