"""
Contract cases over the ports, and the two ways to run one: through requests, and the short way of the tests.

A case is a function of a `CloudUnderTest`. It runs once on each way, over two clouds that are alike, and both must
give the same answers, the same errors and leave the same cloud behind. So what the simulations measure holds
for whoever speaks HTTP.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from requests.adapters import BaseAdapter

from orchestrator.clock import VirtualClock
from orchestrator.emulator.client import BASE, InProcess
from orchestrator.emulator.state.cloud_settings import PROFILES, LocalCloudSettings
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.errors import TpuctlError
from orchestrator.google.buckets import GcsBuckets
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.objects import GcsStore
from orchestrator.google.queued_resources import TpuQueuedResources
from orchestrator.google.vms import ComputeVms
from tests.google.adapter_lab import LABEL, PROJECT, ZONE, a_bucket, a_node, a_vm
from tests.kit.quick_clients import GENUINE, QUICK
from tests.kit.wire import WIRE, clients

BUCKET, NODE, VM = "demo-bucket", "demo-tpu-g3", "demo-vm"
START = 1_800_000_000.123456789  # so that cut fractions of seconds show


@dataclass(frozen=True)
class ContractCase:
    """One sentence of the contract: what to do, on which cloud."""

    act: Callable[["CloudUnderTest"], object]
    settings: dict[str, Any]


CASES: dict[str, ContractCase] = {}


def case(**settings: Any) -> Callable[[Callable[["CloudUnderTest"], object]], object]:
    """Register a case; *settings* are those of the local cloud, latency by its profile's name."""

    def register(act):
        CASES[act.__name__] = ContractCase(act, settings)
        return act

    return register


def each(values: Iterable[Any], **settings: Any) -> Callable[[Callable[..., object]], object]:
    """Register one case for each value, which the function gets as its second argument."""

    def register(act):
        for value in values:
            shown = "-".join(map(str, value)) if isinstance(value, tuple) else str(value)
            CASES[f"{act.__name__}[{shown}]"] = ContractCase(partial(act, value=value), settings)
        return act

    return register


@dataclass
class CloudUnderTest:
    """A cloud, the ports to it, and what was answered so far."""

    clock: VirtualClock
    local: LocalCloud
    storage: Storage
    nodes: Any
    queued: Any
    vms: Any
    buckets: Any
    adopted: Any
    store_of: Callable[[str], Any]
    log: list[object] = field(default_factory=list)

    @property
    def store(self):
        return self.store_of(BUCKET)

    def ok(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a port that must succeed; note and return the answer."""
        value = call(*args, **options)
        self.log.append(value)
        return value

    def refused(self, call: Callable[..., Any], *args: Any, **options: Any) -> TpuctlError:
        """Call a port that must refuse; note and return the error."""
        outcome = self.tried(call, *args, **options)
        assert isinstance(outcome, TpuctlError), outcome
        return outcome

    def tried(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a port; note and return the answer or the error."""
        try:
            return self.ok(call, *args, **options)
        except TpuctlError as error:
            self.log.append((type(error).__name__, error.as_dict(), getattr(error, "aborted", None)))
            return error

    def seen(self) -> Any:
        """Return the nodes of the usual zone, as the list shows them."""
        return self.ok(self.nodes.labelled, LABEL, "demo", [ZONE])

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.local.tick()

    def furnish(self) -> tuple[Any, Any]:
        """Make a bucket with an object, a node and a VM; return the operations of the last two."""
        self.buckets.create(a_bucket())
        self.store.write("a", b"hello")
        return self.nodes.create(a_node()), self.vms.create(a_vm())

    def state(self) -> dict[str, Any]:
        """Return all that the cloud remembers, without the names of blobs, which are random."""
        self.local.tick()
        whole = dict(vars(self.local.kernel.state))
        whole["random"], whole["pool"] = whole["random"].getstate(), vars(whole["pool"])
        whole["objects"] = [
            replace(held, blob=self.storage.objects.read(held).hex()) for held in self.storage.objects.all()
        ]
        return {**whole, "buckets": sorted(self.storage.buckets._buckets.items())}


class _Through(BaseAdapter):
    """Hand every request to the cloud that is at work: clients cost 60 ms, so all cases share theirs."""

    def send(self, request, **options):
        return WIRE.cloud.adapter().send(request, **options)

    def close(self):
        pass


_CLIENTS = Clients(CloudSettings(PROJECT, BASE, read_retry=0, adapter=_Through()))
WAYS = {"requests": (lambda: _CLIENTS, GENUINE), "short": (clients, QUICK)}


@contextmanager
def a_way(label: str, latency: str = "instant", **settings: Any) -> Iterator[CloudUnderTest]:
    """Be on one of the ways to a new cloud."""
    find, changes = WAYS[label]
    clock, over = VirtualClock(START), find()
    chosen = LocalCloudSettings(**{"latency": PROFILES[latency], "fresh_project": False, **settings})
    WIRE.cloud = inside = InProcess(clock, chosen, taken=["somebody-elses"])
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(patch.object(*change))
        yield CloudUnderTest(clock, inside.cloud, inside.storage, TpuNodes(over), TpuQueuedResources(over),
                  ComputeVms(over), GcsBuckets(over), GcsBuckets(over, adopted=True),
                  partial(GcsStore, over))  # fmt: skip


__all__ = [
    "BUCKET",
    "CASES",
    "LABEL",
    "NODE",
    "VM",
    "WAYS",
    "ZONE",
    "CloudUnderTest",
    "ContractCase",
    "a_way",
    "case",
    "each",
]
