"""Look at everything once, in parallel. What cannot be seen is Unknown."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from orchestrator import threads
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.all_zones import both, expected_in, within
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
from orchestrator.domain.ports import Cloud, Nodes, Vms
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.engine.heartbeats import Heartbeats
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.engine.race_claim import read_claim, round_to_look_up
from orchestrator.errors import UNFORESEEN, Retry, TpuctlError, UnknownCloudError
from orchestrator.planning.tpu_types import types_of

T = TypeVar("T")
L = TypeVar("L", Bucket, Vm)
FEW = 2
"""So few zones are asked one by one: a list over all of them would save no call."""
VOUCHED = 600.0
"""Seconds for which a zone's own list shows that the project may see it."""


class WideLook:
    """
    List TPUs, and remember which zones have answered by themselves.

    A list over all zones leaves out those that the project may not see, without a word: of a zone that it
    does not show, its silence counts only if that zone has answered a short while ago.
    """

    def __init__(self) -> None:
        self._vouched_at = float("-inf")
        self._vouched: frozenset[str] = frozenset()

    def tpus(
        self, nodes: Nodes, spec: Spec, record: Record, zones: Sequence[str], now: float
    ) -> Sight[tuple[Node, ...]]:
        """
        Return our TPUs: where one should be by the zone's own list, in many others by one over all zones.

        Where the API refuses such a list, each zone is asked.
        """
        label, near = names.DEPLOYMENT_LABEL, expected_in(record, zones)
        far = [zone for zone in zones if zone not in near]
        # Silence about a zone is evidence only if that zone has just answered by itself.
        if len(far) >= FEW and self._vouched.issuperset(far) and now - self._vouched_at < VOUCHED:
            wide = nodes.everywhere(label, spec.name)
            # A passing failure leaves the zones Unknown; a refusal of such lists makes us ask each zone.
            if not isinstance(wide, Unknown) or wide.retry is Retry.TRANSIENT:
                return both(nodes.labelled(label, spec.name, near), within(wide, far))
        found = nodes.labelled(label, spec.name, zones)
        if isinstance(found, Present):
            self._vouched, self._vouched_at = frozenset(zones), now
        return found


@cache
def known_prices(tpu_types: tuple[str, ...], zones: tuple[str, ...], bucket: str) -> Prices:
    """Return what the price table says of types and zones, and of the way from there to the bucket."""
    return prices(load_catalog(), tpu_types, zones, bucket)


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

    def claimed(nodes: Sight[tuple[Node, ...]]) -> Sight[Claim]:
        return read_claim(cloud.store, round_to_look_up(record, nodes), record, nodes)

    with threads.pool(8) as pool:
        bucket_sight = pool.submit(_guarded, lambda: _bucket(cloud, spec, bucket))
        vm_sight = pool.submit(_guarded, lambda: _vm(cloud, spec, record))
        node_sight = pool.submit(
            _guarded,
            lambda: (wide or WideLook()).tpus(nodes_of(cloud, spec, record), spec, record, zones, now),
        )
        beats = pool.submit(_guarded, lambda: reports.read(record.node.incarnation))
        polled = pool.map(
            lambda operation: poll(cloud.nodes if operation.kind is Kind.NODE else cloud.vms, operation),
            record.operations,
        )
        return World(
            bucket=bucket_sight.result(),
            vm=vm_sight.result(),
            nodes=node_sight.result(),
            heartbeats=_of(beats.result(), script=False),
            operations=tuple(polled),
            observed_at=now,
            prices=known_prices(types_of(spec), spec.tpu.zones, names.home_region(spec)),
            claim=_guarded(lambda: claimed(node_sight.result())),
            boots=boots.value if isinstance(boots := _of(beats.result(), script=True), Present) else (),
        )


def _of(beats: Sight[tuple[Heartbeat, ...]], *, script: bool) -> Sight[tuple[Heartbeat, ...]]:
    """Return the reports of startup scripts, or of agents."""
    if not isinstance(beats, Present):
        return beats
    return Present(tuple(beat for beat in beats.value if beat.script is script))


def _vm(cloud: Cloud, spec: Spec, record: Record) -> Sight[Vm]:
    """
    Look for the VM in its zone, and before it counts as absent in all that were ever used.

    Whoever was killed right after asking for it has not seen it, and the file may name other zones now.
    """
    if spec.vm == "none":
        return Absent()
    earlier = (span.zone for span in record.spans if span.kind is Kind.VM)
    for zone in dict.fromkeys((names.vm_zone(spec), *earlier, *record.zones_used)):
        sight = _ours(cloud.vms.observe(names.vm_name(spec), zone), spec)
        # One that is being taken over is not prepared yet: nothing is done with it, but to give it back.
        if isinstance(sight, Present) and sight.value.labels.get(names.ADOPTED_LABEL) == names.ADOPTING:
            return Absent()
        if not isinstance(sight, Absent):
            return sight
    return Absent()


def _bucket(cloud: Cloud, spec: Spec, name: str) -> Sight[Bucket]:
    sight = cloud.buckets.observe(name)
    return sight if spec.bucket.adopt else _ours(sight, spec)


def _ours(sight: Sight[L], spec: Spec) -> Sight[L]:
    """Treat a resource with our name but without our label as absent: the create then meets the taken name."""
    if isinstance(sight, Present) and sight.value.labels.get(names.DEPLOYMENT_LABEL) != spec.name:
        return Absent()
    return sight


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
    """Return *fault* as an error of ours."""
    return fault if isinstance(fault, TpuctlError) else UnknownCloudError(unforeseen(fault))


def poll(adapter: Nodes | Vms, operation: Operation) -> OperationResult:
    """Poll one operation; whatever hinders it, a fault of ours too, leaves the operation open."""
    try:
        return adapter.poll(operation)
    except FAULTS as fault:
        return OperationResult(operation, done=False, message=as_error(fault).message)
