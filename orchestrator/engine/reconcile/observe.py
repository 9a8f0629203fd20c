"""Observe everything once, in parallel. What cannot be observed is Unknown."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from orchestrator import threads
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain import names
from orchestrator.domain.all_zones import both, expected_in, within
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.node_price import Prices, prices
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Claim,
    Node,
    Observed,
    Operation,
    OperationResult,
    Present,
    Unknown,
    Vm,
    World,
)
from orchestrator.domain.plan import Kind
from orchestrator.domain.ports import Cloud, Nodes, Vms
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.bucket.heartbeats import Heartbeats
from orchestrator.engine.bucket.race_claim import read_claim, round_to_read
from orchestrator.engine.queued_tpus import nodes_of
from orchestrator.errors import UNFORESEEN, Retry, TpuctlError, UnknownCloudError
from orchestrator.planning.job import heartbeat_interval
from orchestrator.planning.tpu.tpu_types import types_of

T = TypeVar("T")
L = TypeVar("L", Bucket, Vm)
FEW = 2
"""Most zones that are listed one by one; for these, one list over all zones would save no call."""
VOUCHED = 600.0
"""Seconds for which a zone's own list proves that the project may see the zone."""


class WideList:
    """
    List TPUs, and remember which zones have answered a list of their own.

    A list over all zones silently omits those that the project may not see. So the absence of a TPU counts
    for a zone only if that zone itself has answered within VOUCHED seconds.
    """

    def __init__(self) -> None:
        self._vouched_at = float("-inf")
        self._vouched: frozenset[str] = frozenset()

    def tpus(
        self, nodes: Nodes, spec: Spec, record: Record, zones: Sequence[str], now: float
    ) -> Observed[tuple[Node, ...]]:
        """
        Return our TPUs: zones where one should be are listed one by one, many others by one list over all zones.

        If the API refuses a list over all zones, each zone is listed.
        """
        label, near = names.DEPLOYMENT_LABEL, expected_in(record, zones)
        far = [zone for zone in zones if zone not in near]
        # A zone without a TPU in the wide list counts only if the zone itself has answered recently.
        if len(far) >= FEW and self._vouched.issuperset(far) and now - self._vouched_at < VOUCHED:
            wide = nodes.list_all_zones(label, spec.name)
            # A passing failure leaves the zones Unknown; a permanent refusal of wide lists makes us ask each zone.
            if not isinstance(wide, Unknown) or wide.retry is Retry.TRANSIENT:
                return both(nodes.labelled(label, spec.name, near), within(wide, far))
        found = nodes.labelled(label, spec.name, zones)
        if isinstance(found, Present):
            self._vouched, self._vouched_at = frozenset(zones), now
        return found


@cache
def known_prices(tpu_types: tuple[str, ...], zones: tuple[str, ...], bucket: str) -> Prices:
    """Return the prices of types and zones, and of the transfer between them and the bucket, from the table."""
    return prices(load_catalog(), tpu_types, zones, bucket)


def zones_to_observe(spec: Spec, record: Record) -> tuple[str, ...]:
    """Return every zone in which a machine of ours may exist: those in the file and all ever used."""
    billed = (span.zone for span in record.spans)
    return tuple(dict.fromkeys((*spec.tpu.zones, *record.zones_used, *billed)))


def observe(
    cloud: Cloud,
    spec: Spec,
    record: Record,
    bucket: str,
    now: float,
    heartbeat_reader: Heartbeats | None = None,
    wide: WideList | None = None,
) -> World:
    """
    Observe the deployment's resources at *now*; *heartbeat_reader* and *wide* cache what earlier passes have read.

    What fails is Unknown in the result; nothing is raised.
    """
    zones, reader = zones_to_observe(spec, record), heartbeat_reader or Heartbeats(cloud.store)

    def claimed(nodes: Observed[tuple[Node, ...]]) -> Observed[Claim]:
        return read_claim(cloud.store, round_to_read(record, nodes), record, nodes)

    with threads.pool(8) as pool:
        bucket_observed = pool.submit(_or_unknown, lambda: _bucket(cloud, spec, bucket))
        vm_observed = pool.submit(_or_unknown, lambda: _vm(cloud, spec, record))
        node_observed = pool.submit(
            _or_unknown,
            lambda: (wide or WideList()).tpus(nodes_of(cloud, spec, record), spec, record, zones, now),
        )
        heartbeats = pool.submit(_or_unknown, lambda: reader.read(record.node.incarnation))
        polled = pool.map(
            lambda operation: poll(cloud.nodes if operation.kind is Kind.NODE else cloud.vms, operation),
            record.operations,
        )
        return World(
            bucket=bucket_observed.result(),
            vm=vm_observed.result(),
            nodes=node_observed.result(),
            heartbeats=_heartbeats_by(heartbeats.result(), script=False),
            operations=tuple(polled),
            observed_at=now,
            prices=known_prices(types_of(spec), spec.tpu.zones, names.home_region(spec)),
            claim=_or_unknown(lambda: claimed(node_observed.result())),
            boot_heartbeats=boots.value
            if isinstance(boots := _heartbeats_by(heartbeats.result(), script=True), Present)
            else (),
            heartbeat_interval=heartbeat_interval(spec) if spec.job.run_on == "tpu" else None,
        )


def _heartbeats_by(
    heartbeats: Observed[tuple[Heartbeat, ...]], *, script: bool
) -> Observed[tuple[Heartbeat, ...]]:
    """Return the heartbeats of startup scripts, or those of agents."""
    if not isinstance(heartbeats, Present):
        return heartbeats
    return Present(tuple(heartbeat for heartbeat in heartbeats.value if heartbeat.script is script))


def _vm(cloud: Cloud, spec: Spec, record: Record) -> Observed[Vm]:
    """
    Observe the VM in its zone; before it counts as absent, in every zone ever used.

    A process that was killed right after the create has not recorded the VM, and the file may name other
    zones now.
    """
    if spec.vm == "none":
        return Absent()
    earlier = (span.zone for span in record.spans if span.kind is Kind.VM)
    for zone in dict.fromkeys((names.vm_zone(spec), *earlier, *record.zones_used)):
        observed = _labelled_or_absent(cloud.vms.observe(names.vm_name(spec), zone), spec)
        # An adoption that was not finished: the VM is not prepared, so it counts as absent except for
        # giving it back.
        if isinstance(observed, Present) and observed.value.labels.get(names.ADOPTED_LABEL) == names.ADOPTING:
            return Absent()
        if not isinstance(observed, Absent):
            return observed
    return Absent()


def _bucket(cloud: Cloud, spec: Spec, name: str) -> Observed[Bucket]:
    observed = cloud.buckets.observe(name)
    return observed if spec.bucket.adopt else _labelled_or_absent(observed, spec)


def _labelled_or_absent(observed: Observed[L], spec: Spec) -> Observed[L]:
    """Treat a resource with our name but without our label as absent; a create then fails with a conflict."""
    if isinstance(observed, Present) and observed.value.labels.get(names.DEPLOYMENT_LABEL) != spec.name:
        return Absent()
    return observed


def _or_unknown(read: Callable[[], T]) -> T | Unknown:
    """
    Return Unknown for an error that *read* raises.

    Unforeseen errors too: each hides only one part of the observation, and budget and ttl need the rest.
    """
    try:
        return read()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)
    except UNFORESEEN as error:
        return Unknown(unforeseen(error))


OWN_BUG = "a bug in tpuctl, please report it"


def unforeseen(error: Exception) -> str:
    """Return the text for an error that no rule covers."""
    return cut(f"{OWN_BUG} ({type(error).__name__}: {error})", 300)


PASS_ERRORS = (TpuctlError, *UNFORESEEN)
"""Everything that one part of a pass may raise without ending the others."""


def as_error(caught: Exception) -> TpuctlError:
    """Return *caught* unchanged if it is a TpuctlError, else wrapped in one."""
    return caught if isinstance(caught, TpuctlError) else UnknownCloudError(unforeseen(caught))


def poll(adapter: Nodes | Vms, operation: Operation) -> OperationResult:
    """Poll one operation; any error, also a bug of ours, leaves the operation open."""
    try:
        return adapter.poll(operation)
    except PASS_ERRORS as caught:
        return OperationResult(operation, done=False, message=as_error(caught).message)
