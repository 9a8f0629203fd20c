"""Look at everything once, in parallel. What cannot be seen is Unknown."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from orchestrator import threads
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.clean_text import cut
from orchestrator.domain.node_price import Prices, prices
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Claim,
    Heartbeat,
    Node,
    Operation,
    OperationResult,
    Present,
    Sight,
    Unknown,
    Vm,
    World,
)
from orchestrator.domain.plan import Kind
from orchestrator.domain.ports import Cloud
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.all_zone_list import WideLook
from orchestrator.engine.heartbeats import Heartbeats
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.engine.race_claim import read_claim, round_to_look_up
from orchestrator.errors import UNFORESEEN, NotFoundError, TpuctlError, UnknownCloudError
from orchestrator.planning.tpu_types import types_of

T = TypeVar("T")
L = TypeVar("L", Bucket, Vm)


@cache
def known_prices(kinds: tuple[str, ...], zones: tuple[str, ...], bucket: str) -> Prices:
    """Return what the price table says of types and zones, and of the way from there to the bucket."""
    return prices(load_catalog(), kinds, zones, bucket)


def zones_to_look_at(spec: Spec, record: Record) -> tuple[str, ...]:
    """Return every zone where a machine of ours may be: the wanted ones and all ever used."""
    billed = (span.zone for span in record.spans)
    return tuple(dict.fromkeys((*spec.tpu.zones, *record.zones_used, *billed)))


def observe(
    cloud: Cloud,
    spec: Spec,
    record: Record,
    bucket: str,
    now: float,
    reports: Heartbeats | None = None,
    wide: WideLook | None = None,
) -> World:
    """Return the world of this moment; *reports* and *wide* remember what earlier looks have read."""
    zones, reports = zones_to_look_at(spec, record), reports or Heartbeats(cloud.store)
    with threads.pool(8) as pool:
        seen_bucket = pool.submit(_guarded, lambda: _bucket(cloud, spec, bucket))
        seen_vm = pool.submit(_guarded, lambda: _vm(cloud, spec, record))
        seen_nodes = pool.submit(
            _guarded,
            lambda: (wide or WideLook()).tpus(nodes_of(cloud, spec, record), spec, record, zones, now),
        )
        told = pool.submit(_guarded, lambda: reports.read(record.node.incarnation))
        polled = pool.map(lambda operation: _poll(cloud, operation), record.operations)
        return World(
            bucket=seen_bucket.result(),
            vm=seen_vm.result(),
            nodes=seen_nodes.result(),
            heartbeats=_of(told.result(), script=False),
            operations=tuple(r for r in polled if r is not None),
            seen_at=now,
            prices=known_prices(types_of(spec), spec.tpu.zones, names.home_region(spec)),
            claim=_guarded(lambda: _claim(cloud, record, seen_nodes.result())),
            boots=boots.value if isinstance(boots := _of(told.result(), script=True), Present) else (),
        )


def _claim(cloud: Cloud, record: Record, nodes: Sight[tuple[Node, ...]]) -> Sight[Claim]:
    return read_claim(cloud.store, round_to_look_up(record, nodes), record, nodes)


def _of(told: Sight[tuple[Heartbeat, ...]], *, script: bool) -> Sight[tuple[Heartbeat, ...]]:
    """Return the reports of startup scripts, or of agents."""
    if not isinstance(told, Present):
        return told
    return Present(tuple(beat for beat in told.value if beat.script is script))


def _vm(cloud: Cloud, spec: Spec, record: Record) -> Sight[Vm]:
    """
    Look for the VM in its zone, and before it counts as absent in all that were ever used.

    Whoever was killed right after asking for it has not seen it, and the file may name other zones now.
    """
    if spec.vm == "none":
        return Absent()
    earlier = (span.zone for span in record.spans if span.kind is Kind.VM)
    for zone in dict.fromkeys((names.vm_zone(spec), *earlier, *record.zones_used)):
        seen = _ours(cloud.vms.observe(names.vm_name(spec), zone), spec)
        if not isinstance(seen, Absent):
            return seen
    return Absent()


def _bucket(cloud: Cloud, spec: Spec, name: str) -> Sight[Bucket]:
    seen = cloud.buckets.observe(name)
    return seen if spec.bucket.adopt else _ours(seen, spec)


def _ours(seen: Sight[L], spec: Spec) -> Sight[L]:
    """Take a stranger's resource of our name for none of ours: asking for ours then meets the taken name."""
    if isinstance(seen, Present) and seen.value.labels.get(names.DEPLOYMENT_LABEL) != spec.name:
        return Absent()
    return seen


def _guarded(look: Callable[[], T]) -> T | Unknown:
    """
    Turn an error that an adapter let through into Unknown.

    One that nobody has foreseen too: it hides one part of the sight, and budget and ttl need the rest.
    """
    try:
        return look()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)
    except UNFORESEEN as error:
        return Unknown(unforeseen(error))


def unforeseen(error: Exception) -> str:
    """Return what is said of an error that no rule covers."""
    return cut(f"a fault of this tpuctl, please report it ({type(error).__name__}: {error})", 300)


FAULTS = (TpuctlError, *UNFORESEEN)
"""All that one part of a pass may raise without ending the others."""


def as_error(fault: Exception) -> TpuctlError:
    """Return the error of ours that tells of *fault*."""
    return fault if isinstance(fault, TpuctlError) else UnknownCloudError(unforeseen(fault))


def _poll(cloud: Cloud, operation: Operation) -> OperationResult | None:
    """Poll one operation; one that the cloud has forgotten is over, its effect is seen elsewhere."""
    adapter = cloud.nodes if operation.kind == "node" else cloud.vms
    try:
        return adapter.poll(operation)
    except NotFoundError:
        return OperationResult(operation, done=True)
    except TpuctlError:
        return None
