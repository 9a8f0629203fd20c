"""
Look at everything once, in parallel. What cannot be seen is Unknown.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.core import names
from orchestrator.core.history import History
from orchestrator.core.spec import Spec
from orchestrator.core.world import Absent, Operation, OperationResult, Sight, Unknown, Vm, World
from orchestrator.engine.heartbeats import read_heartbeats
from orchestrator.errors import NotFoundError, TpuctlError
from orchestrator.ports import Cloud

T = TypeVar("T")


def zones_to_look_at(spec: Spec, history: History) -> tuple[str, ...]:
    """
    Return every zone where a node of ours may be: the wanted ones and all ever used.
    """
    return tuple(dict.fromkeys((*spec.tpu.zones, *history.zones_used)))


def observe(cloud: Cloud, spec: Spec, history: History, bucket: str, now: float) -> World:
    """
    Return the world of this moment.
    """
    zones = zones_to_look_at(spec, history)
    with ThreadPoolExecutor(max_workers=8) as pool:
        seen_bucket = pool.submit(_guarded, lambda: cloud.buckets.observe(bucket))
        seen_vm = pool.submit(_guarded, lambda: _vm(cloud, spec))
        seen_nodes = pool.submit(
            _guarded, lambda: cloud.nodes.labelled(names.DEPLOYMENT_LABEL, spec.name, zones)
        )
        beats = pool.submit(_guarded, lambda: read_heartbeats(cloud.store, history.incarnation))
        polled = pool.map(lambda operation: _poll(cloud, operation), history.operations)
        return World(
            bucket=seen_bucket.result(),
            vm=seen_vm.result(),
            nodes=seen_nodes.result(),
            heartbeats=beats.result(),
            operations=tuple(r for r in polled if r is not None),
            seen_at=now,
        )


def _vm(cloud: Cloud, spec: Spec) -> Sight[Vm]:
    if spec.vm == "none":
        return Absent()
    return cloud.vms.observe(names.vm_name(spec), names.vm_zone(spec))


def _guarded(look: Callable[[], T]) -> T | Unknown:
    """
    Turn an error that an adapter let through into Unknown.
    """
    try:
        return look()
    except TpuctlError as error:
        return Unknown(error.message, error.retry)


def _poll(cloud: Cloud, operation: Operation) -> OperationResult | None:
    """
    Poll one operation; one that the cloud has forgotten is over, its effect is seen elsewhere.
    """
    adapter = cloud.nodes if operation.kind == "node" else cloud.vms
    try:
        return adapter.poll(operation)
    except NotFoundError:
        return OperationResult(operation, done=True)
    except TpuctlError:
        return None
