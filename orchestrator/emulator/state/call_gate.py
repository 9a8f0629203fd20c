"""Pass every call through one gate: time advances, permissions are checked, faults apply."""

import contextlib
from collections.abc import Callable
from typing import TypeVar

from orchestrator.emulator.state.api_errors import ApiError, tpu_case
from orchestrator.emulator.state.kernel import CallTarget
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values import methods
from orchestrator.emulator.state.values.faults import FaultKind, FaultSpec

T = TypeVar("T")


def admitted(cloud: LocalCloud, method: str, target: CallTarget, act: Callable[[], T]) -> T:
    """
    Call *act*, a call of the TPU or Compute API, under the cloud's lock, with the fault in force.

    Raise ApiError, and what *act* raises.
    """
    with cloud.lock:
        kernel = cloud.kernel
        kernel.tick()
        try:
            fault = kernel.admit(method, target)
            if fault and fault.kind is FaultKind.LATENCY and method not in methods.WITH_OPERATION:
                cloud.pause(fault.seconds)
            return _answered(method, fault, act)
        finally:
            kernel.armed = None


def admitted_storage(cloud: LocalCloud, method: str, act: Callable[[], T]) -> T:
    """Call *act*, a call of the storage API, which takes the storage's own lock. Raise as `admitted` does."""
    with cloud.lock:
        cloud.kernel.tick()
        try:
            fault = cloud.kernel.admit(method, CallTarget())
        finally:
            cloud.kernel.armed = None
    # Without the cloud's lock: a slow upload or a latency must not block TPUs and VMs.
    if fault and fault.kind is FaultKind.LATENCY:
        cloud.clock.wait(fault.seconds)
    return _answered(method, fault, act)


def _answered(method: str, fault: FaultSpec | None, act: Callable[[], T]) -> T:
    """Return the result of *act*; with a dropped answer it takes effect, but an error is returned."""
    if fault is None or fault.kind is not FaultKind.DROP_ANSWER:
        return act()
    # As with a lost connection, the caller does not learn whether the call was refused or done.
    with contextlib.suppress(ApiError, ValueError):
        act()
    error = tpu_case("transient").error()
    reason = error.reason if method.startswith("tpu.") else "backendError"
    raise ApiError(error.status, reason, error.message)
