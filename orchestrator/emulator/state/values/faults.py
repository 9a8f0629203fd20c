"""Describe faults as data: what happens to the next call of a method."""

from dataclasses import dataclass
from enum import Enum

from orchestrator.emulator.state.api_errors import ErrorArrival, cases
from orchestrator.emulator.state.values import methods
from orchestrator.errors import LocalCloudError

_TIMED = ("latency", "no-capacity", "late-ready")
_QUEUE = "tpu.queuedResources.create"
_NODE = "tpu.nodes.create"
SICK = ("TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE")
"""Values of a node's health other than HEALTHY."""


class FaultKind(Enum):
    CALL_ERROR = "call-error"
    OPERATION_ERROR = "operation-error"
    DROP_ANSWER = "drop-answer"
    STUCK = "stuck"
    LATENCY = "latency"
    UNREACHABLE = "unreachable"
    NO_CAPACITY = "no-capacity"
    FALL_BACK = "fall-back"
    LATE_FAILURE = "late-failure"
    NEVER_ACTIVE = "never-active"
    SILENT = "never-reports"
    BORN = "born"
    LATE_READY = "late-ready"


_MORE = (
    FaultKind.CALL_ERROR,
    FaultKind.OPERATION_ERROR,
    FaultKind.LATENCY,
    FaultKind.BORN,
    FaultKind.LATE_READY,
)
_PLAIN = [kind.value for kind in FaultKind if kind not in _MORE]
"""Faults without a parameter."""

# Later fates of a queued resource: no capacity (for SECONDS, or forever), nodes removed during provisioning
# (once; with an internal error; repeatedly).
FATES = frozenset(
    {FaultKind.NO_CAPACITY, FaultKind.FALL_BACK, FaultKind.LATE_FAILURE, FaultKind.NEVER_ACTIVE}
)


# How a node comes up: its machines never run their startup script; it is READY but unhealthy from the start;
# its machines work while the API still says CREATING (docs/facts.md 1.3).
BIRTHS = frozenset({FaultKind.SILENT, FaultKind.BORN, FaultKind.LATE_READY})


@dataclass(frozen=True)
class FaultSpec:
    """
    One fault; *case* is a row of error_messages.csv, or the health that a node is BORN with.

    *seconds* is for LATENCY, NO_CAPACITY and LATE_READY.
    """

    kind: FaultKind
    case: str = ""
    seconds: float = 0.0

    @classmethod
    def parse(cls, method: str, text: str) -> "FaultSpec":
        """
        Parse `drop-answer`, `stuck`, `unreachable`, `latency:SECONDS` or a case name. Raise LocalCloudError.

        For a queued resource's creation also `no-capacity`, `no-capacity:SECONDS`, `fall-back`,
        `late-failure`, `never-active`. For a node's creation also `never-reports`, `born:HEALTH`,
        `late-ready:SECONDS`.
        """
        check_method(method)
        word = text.partition(":")[0]
        if text in _PLAIN:
            fault = cls(FaultKind(text))
        elif word == FaultKind.BORN.value:
            fault = cls(FaultKind.BORN, case=text.partition(":")[2])
        elif ":" in text and word in _TIMED:
            fault = cls(FaultKind(word), seconds=_seconds(text))
        else:
            fault = cls(_kind_of_case(method, text), text)
        return check(method, fault)


def check_method(method: str) -> None:
    if method not in methods.ALL:
        near = ", ".join(
            sorted(m for m in methods.ALL if m.split(".")[0] == method.split(".", maxsplit=1)[0])
        )
        raise _refused(
            f"fault on {method}: no such method", f"known: {near or ', '.join(sorted(methods.ALL))}"
        )


def check(method: str, fault: FaultSpec) -> FaultSpec:
    """Return *fault*. Raise LocalCloudError if *method* cannot meet it."""
    check_method(method)
    needs_operation = fault.kind in (FaultKind.OPERATION_ERROR, FaultKind.STUCK)
    if needs_operation and method not in methods.WITH_OPERATION:
        raise _refused(
            f"fault {fault.case or fault.kind.value} on {method}: the method starts no operation", ""
        )
    if fault.kind is FaultKind.UNREACHABLE and method not in methods.PARTIAL:
        raise _refused(f"fault unreachable on {method}: its answer is never partial", "")
    only = _QUEUE if fault.kind in FATES else _NODE if fault.kind in BIRTHS else method
    if method != only:
        raise _refused(f"fault {fault.kind.value} on {method}: only {only} can meet it", "")
    if fault.kind is FaultKind.BORN:
        if fault.case not in SICK:
            raise _refused(
                f"fault born:{fault.case} on {method}: no such health", f"known: {', '.join(SICK)}"
            )
    elif fault.case and _kind_of_case(method, fault.case) is not fault.kind:
        raise _refused(f"fault {fault.case} on {method}: it is not a {fault.kind.value}", "")
    if not 0 <= fault.seconds < float("inf"):
        raise _refused(f"fault latency on {method}: {fault.seconds} seconds cannot be waited for", "")
    return fault


def _kind_of_case(method: str, name: str) -> FaultKind:
    table = methods.error_table_of(method)
    case = cases().get((table, name))
    if case is None:
        known = ", ".join(sorted(n for api, n in cases() if api == table))
        raise _refused(
            f"fault {name!r} on {method}: unknown", f"known: {', '.join(_PLAIN)}, latency:SECONDS, {known}"
        )
    return FaultKind.CALL_ERROR if case.where is ErrorArrival.CALL else FaultKind.OPERATION_ERROR


def _seconds(text: str) -> float:
    try:
        return float(text.partition(":")[2])
    except ValueError:
        raise _refused(f"fault {text}: not a number of seconds", "write for example latency:2.5") from None


def _refused(message: str, hint: str) -> LocalCloudError:
    return LocalCloudError(message, changed="no fault was added", hint=hint)
