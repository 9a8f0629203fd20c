"""Define what a deployment record may hold, because anyone who may write to the bucket may write one."""

import math
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.contract.bucket.limits import LATEST_TIME
from orchestrator.domain.observation import Operation
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Record
from orchestrator.pricing.cost_so_far import METERS

MAX_NUMBER = 10**9
"""Largest incarnation or count."""
MAX_SERIAL = 10**15
"""Largest serial; serials of a new record start at milliseconds since the epoch."""
MAX_INT = 1 << 63
MAX_LENGTH = 64 << 10
_HALF = re.compile("[\ud800-\udfff]")
_ZONE = re.compile(r"[a-z0-9-]{1,40}")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_TYPE = re.compile(r"[a-z0-9-]{1,40}")
_OPERATION = re.compile(r"[A-Za-z0-9._/-]{1,500}")
_CODE = re.compile(r"TPU-\d{3}")
_DIGEST = r"[0-9a-f]{64}"
_MARKS = {
    "bundle": re.compile(_DIGEST),
    "agent": re.compile(_DIGEST),
    "uploaded": re.compile(f"{_DIGEST}:{_DIGEST}"),
    "pushed": re.compile(rf"(\d{{1,10}}:)?{_DIGEST}"),
}
_ASKED = frozenset(Kind) - {Kind.QUEUED}


def check_record(record: Record) -> None:
    """Raise ValueError if a record holds a value that tpuctl never writes and cannot handle."""
    _check_leaves(vars(record))
    given = (record.node.incarnation, record.node.highest, record.race.round, record.node.unwanted)
    numbers = (
        *given,
        *record.deadline.on_demand,
        *record.deadline.flex_start,
        *record.silence.heartbeat_at_boot,
        *(r.incarnation for r in record.race.candidates),
        record.node.preemptions,
    )
    if not all(0 <= number <= MAX_NUMBER for number in numbers) or not 0 <= record.serial <= MAX_SERIAL:
        raise ValueError("a number that no TPU has")
    for name, pattern in _MARKS.items():
        _fits(name, getattr(record.job, name), pattern)
    zones = (record.node.zone, *record.zones_used, *(r.zone for r in record.race.candidates))
    spans = (*record.spans, *record.disks)
    for zone in (*zones, *(s.zone for s in spans), *(o.zone for o in record.operations)):
        _fits("zone", zone, _ZONE)
    for kind in (record.node.type, *(s.type for s in record.spans)):
        _fits("type", kind, _TYPE)
    for refusal in record.refusals:
        # It is stored in front of the message and must be separable from it.
        _fits("code", refusal.code, _CODE)
    for span in spans:
        _fits("name", span.name, _NAME)
        if span.kind not in METERS:
            raise ValueError(f"a span of the kind {span.kind.value}")
    for operation in record.operations:
        _check_operation(operation)


def _check_operation(operation: Operation) -> None:
    _fits("operation", operation.name, _NAME)
    _fits("operation", operation.id, _OPERATION)
    # The id becomes part of a URL and must not lead to another resource.
    if ".." in operation.id or operation.kind not in _ASKED or operation.verb not in frozenset(Verb):
        raise ValueError("an operation that tpuctl never starts")


def _fits(name: str, value: str, pattern: "re.Pattern[str]") -> None:
    if value and not pattern.fullmatch(value):
        raise ValueError(f"{name} is {value[:60]!r}")


def _check_leaves(value: Any, name: str = "") -> None:
    """Check every number and text below *value*; *name* is the field that contains it."""
    # Texts and numbers first, because they are most, and each pass checks its record several times.
    if isinstance(value, str):
        _check_text(name, value)
    elif isinstance(value, (int, float)):
        if not isinstance(value, bool):
            _check_number(name, value)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_leaves(inner, name)
    elif hasattr(value, "__dataclass_fields__"):
        _check_leaves(vars(value), name)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check_text(name or str(key), str(key))
            _check_leaves(inner, name or str(key))


def _check_text(name: str, value: str) -> None:
    if len(value) > MAX_LENGTH:
        raise ValueError(f"{name} has {len(value)} characters")
    if not value.isascii() and _HALF.search(value):
        raise ValueError(f"{name} holds half of a character")


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value) or abs(value) > (LATEST_TIME if isinstance(value, float) else MAX_INT):
        raise ValueError(f"{name} is out of range")
